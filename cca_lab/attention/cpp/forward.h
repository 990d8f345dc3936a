// One block of query rows, forward: an online softmax over tiles of columns.
#pragma once

#include <cmath>
#include <vector>

#include "block.h"

namespace cca_lab {

// Memory of one block: scaled queries, as (rows, D) and as (D, rows), the tile of scores, sums of weighted values
// (rows, D), and by row the highest logit, the sum of weights, and the factor by which a new highest logit shrinks
// both sums.
template <class T>
struct ForwardSpace {
  Aligned<T> scaled, queries, scores, sums, tops, totals, factors;

  explicit ForwardSpace(int64_t dim)
      : scaled(kBlockRows * dim), queries(dim * kBlockRows), scores(kTileColumns * kTileRow), sums(kBlockRows * dim),
        tops(kBlockRows), totals(kBlockRows), factors(kBlockRows) {}
};

// The highest logit of each lane, and no less than `least`. Four maxima at a time: one would wait for the last.
template <class T>
Vec<T> highest(Matrix<const T> logits, int64_t columns, Vec<T> least) {
  Vec<T> top[4] = {least, least, least, least};
  int64_t j = 0;
  for (; j + 4 <= columns; j += 4)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) top[i] = at::vec::maximum(top[i], Vec<T>::loadu(logits.data + (j + i) * logits.row));
  for (; j < columns; ++j) top[0] = at::vec::maximum(top[0], Vec<T>::loadu(logits.data + j * logits.row));
  return at::vec::maximum(at::vec::maximum(top[0], top[1]), at::vec::maximum(top[2], top[3]));
}

// Turn the logits (columns, 16 rows) of a group into exp(logit - top) in place.
template <class T>
void exponentiate(Matrix<T> logits, int64_t columns, T* tops, T* totals, T* factors) {
  const Vec<T> nothing(-std::numeric_limits<T>::infinity());
  for (int64_t lane = 0; lane < kGroup; lane += kWidth<T>) {
    T* column = logits.data + lane;
    const Vec<T> before = Vec<T>::loadu(tops + lane);
    Vec<T> top = highest<T>(logits.at(0, lane), columns, before);
    top.store(tops + lane);
    top = Vec<T>::blendv(top, Vec<T>(0), top == nothing);  // a row that saw nothing yet: -inf - -inf would be NaN
    Vec<T> total(0);
    for (int64_t j = 0; j < columns; ++j) {
      const Vec<T> weight = (Vec<T>::loadu(column + j * logits.row) - top).exp_u20();
      weight.store(column + j * logits.row);
      total = total + weight;
    }
    const Vec<T> factor = (before - top).exp();
    factor.store(factors + lane);
    at::vec::fmadd(Vec<T>::loadu(totals + lane), factor, total).store(totals + lane);
  }
}

// Keys and values (N, D) of one source and KV head.
template <class T>
struct ForwardColumns {
  const T *k, *v;
};

// out, lse of a block of `count` rows of q (count, D), given the columns of each source.
template <class T>
void attend(const std::vector<Interval>& intervals, int64_t count, int64_t dim, T scale, const T* q,
            const std::vector<ForwardColumns<T>>& sources, T* out, T* lse, ForwardSpace<T>& space) {
  const Matrix<const T> queries{space.queries, kBlockRows};
  const Matrix<T> sums{space.sums, dim};
  std::transform(q, q + count * dim, +space.scaled, [=](T x) { return x * scale; });
  transpose<T>(space.scaled, count, dim, space.queries);
  std::fill_n(+space.sums, kBlockRows * dim, T(0));
  std::fill_n(+space.tops, kBlockRows, -std::numeric_limits<T>::infinity());
  std::fill_n(+space.totals, kBlockRows, T(0));

  for (const Interval& interval : intervals) {
    const Matrix<const T> keys{sources[interval.source].k, dim}, values{sources[interval.source].v, dim};
    each_tile(interval, [&](Span columns) {
      const Tile<T> tile{space.scores, columns.begin};
      const auto runs = runs_of(interval, columns);
      for (const Run& run : runs) {  // S^T = K Q^T
        multiply<T>(run.columns.size(), run.rows().size(), dim, keys.at(run.columns.begin, 0),
                    queries.at(0, run.rows().begin), tile.at(run.columns.begin, run.rows().begin), false);
      }
      each_group(interval, columns, [&](Span rows, Span seen) {
        hide(tile, interval, rows, seen);
        exponentiate(tile.at(seen.begin, rows.begin), seen.size(), &space.tops[rows.begin],
                     &space.totals[rows.begin], &space.factors[rows.begin]);
        for (int64_t i = rows.begin; i < rows.end; ++i) {
          if (space.factors[i] == T(1)) continue;
          for (int64_t d = 0; d < dim; ++d) space.sums[i * dim + d] *= space.factors[i];
        }
      });
      for (const Run& run : runs) {  // O += P V
        multiply<T>(run.rows().size(), dim, run.columns.size(),
                    tile.at(run.columns.begin, run.rows().begin).transposed(), values.at(run.columns.begin, 0),
                    sums.at(run.rows().begin, 0), true);
      }
    });
  }

  for (int64_t i = 0; i < count; ++i) {
    const T top = space.tops[i], total = space.totals[i];
    const T inverse = std::isfinite(top) ? 1 / total : std::numeric_limits<T>::quiet_NaN();
    for (int64_t d = 0; d < dim; ++d) out[i * dim + d] = space.sums[i * dim + d] * inverse;
    lse[i] = top + std::log(total);
  }
}

}  // namespace cca_lab
