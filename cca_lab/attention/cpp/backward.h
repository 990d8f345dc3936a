// One block of query rows, backward: five products a tile, given the log-sum-exp of the whole rows.
#pragma once

#include <vector>

#include "block.h"

namespace cca_lab {

// What a block of rows brings and gets, (count, D) or (count); delta = do . out - dlse.
template <class T>
struct BackwardRows {
  const T *q, *grad_out, *lse, *delta;
  T* grad_q;
};

// Keys, values and the sums of their gradients, each (N, D), of one source and KV head.
template <class T>
struct BackwardColumns {
  const T *k, *v;
  T *grad_k, *grad_v;
};

// Memory of a block: scaled queries and gradients, transposed, and the tiles of p and ds; lse and delta by lane.
template <class T>
struct BackwardSpace {
  Aligned<T> scaled, queries, grads, weights, slopes, lse, delta;

  explicit BackwardSpace(int64_t dim)
      : scaled(kBlockRows * dim), queries(dim * kBlockRows), grads(dim * kBlockRows),
        weights(kTileColumns * kTileRow), slopes(kTileColumns * kTileRow), lse(kBlockRows), delta(kBlockRows) {}
};

// (columns, 16 rows) of a group: logits become p = exp(logit - lse), and do . v becomes ds = p (do . v - delta).
template <class T>
void weigh(Matrix<T> logits, Matrix<T> slopes, int64_t columns, const T* lse, const T* delta) {
  for (int64_t lane = 0; lane < kGroup; lane += kWidth<T>) {
    const Vec<T> sums = Vec<T>::loadu(lse + lane), deltas = Vec<T>::loadu(delta + lane);
    for (int64_t j = 0; j < columns; ++j) {
      T *logit = logits.data + j * logits.row + lane, *slope = slopes.data + j * slopes.row + lane;
      const Vec<T> weight = (Vec<T>::loadu(logit) - sums).exp_u20();
      weight.store(logit);
      (weight * (Vec<T>::loadu(slope) - deltas)).store(slope);
    }
  }
}

// Add what `count` rows give to the gradients of q, k and v.
template <class T>
void differentiate(const std::vector<Interval>& intervals, int64_t count, int64_t dim, T scale,
                   const BackwardRows<T>& rows, const std::vector<BackwardColumns<T>>& sources,
                   BackwardSpace<T>& space) {
  const Matrix<const T> grad_out{rows.grad_out, dim}, scaled{space.scaled, dim};
  const Matrix<const T> queries{space.queries, kBlockRows}, grads{space.grads, kBlockRows};
  const Matrix<T> grad_q{rows.grad_q, dim};
  std::transform(rows.q, rows.q + count * dim, +space.scaled, [=](T x) { return x * scale; });
  transpose<T>(space.scaled, count, dim, space.queries);
  transpose<T>(rows.grad_out, count, dim, space.grads);
  std::copy(rows.lse, rows.lse + count, +space.lse);
  std::copy(rows.delta, rows.delta + count, +space.delta);

  for (const Interval& interval : intervals) {
    const BackwardColumns<T>& columns = sources[interval.source];
    const Matrix<const T> keys{columns.k, dim}, values{columns.v, dim};
    const Matrix<T> grad_k{columns.grad_k, dim}, grad_v{columns.grad_v, dim};
    each_tile(interval, [&](Span all) {
      const Tile<T> weights{space.weights, all.begin}, slopes{space.slopes, all.begin};
      const auto runs = runs_of(interval, all);
      for (const Run& run : runs) {  // S^T = K Q^T, dP^T = V dO^T
        const int64_t column = run.columns.begin, row = run.rows().begin;
        multiply<T>(run.columns.size(), run.rows().size(), dim, keys.at(column, 0), queries.at(0, row),
                    weights.at(column, row), false);
        multiply<T>(run.columns.size(), run.rows().size(), dim, values.at(column, 0), grads.at(0, row),
                    slopes.at(column, row), false);
      }
      each_group(interval, all, [&](Span group, Span seen) {
        hide(weights, interval, group, seen);
        weigh(weights.at(seen.begin, group.begin), slopes.at(seen.begin, group.begin), seen.size(),
              &space.lse[group.begin], &space.delta[group.begin]);
      });
      for (const Run& run : runs) {  // dQ += dS K, dK += dS^T Q, dV += P^T dO
        const int64_t column = run.columns.begin, row = run.rows().begin, width = run.columns.size();
        const int64_t height = std::min(run.rows().end, count) - row;
        multiply<T>(height, dim, width, slopes.at(column, row).transposed(), keys.at(column, 0), grad_q.at(row, 0),
                    true);
        multiply<T>(width, dim, height, slopes.at(column, row), scaled.at(row, 0), grad_k.at(column, 0), true);
        multiply<T>(width, dim, height, weights.at(column, row), grad_out.at(row, 0), grad_v.at(column, 0), true);
      }
    });
  }
  std::transform(rows.grad_q, rows.grad_q + count * dim, rows.grad_q, [=](T x) { return x * scale; });
}

}  // namespace cca_lab
