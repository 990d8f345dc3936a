// The attention that a block of rows gives to each column: sums down the columns of the normalised weights.
#pragma once

#include <cmath>
#include <vector>

#include "forward.h"

namespace cca_lab {

// Add to sums (N) what `count` rows of q (count, D) give to the keys (N, D) that they see. With `lse`, the log-sum-exp
// of the rows, one pass over the tiles is enough.
template <class T>
void receive(const std::vector<Interval>& intervals, int64_t count, int64_t dim, T scale, const T* q, const T* k,
             const T* lse, T* sums, ForwardSpace<T>& space) {
  const Matrix<const T> queries{space.queries, kBlockRows}, keys{k, dim};
  std::transform(q, q + count * dim, +space.scaled, [=](T x) { return x * scale; });
  transpose<T>(space.scaled, count, dim, space.queries);
  const auto each_logits = [&](const auto& visit) {  // visit(tile, rows, columns) of each group of rows
    for (const Interval& interval : intervals) {
      each_tile(interval, [&](Span columns) {
        const Tile<T> tile{space.scores, columns.begin};
        for (const Run& run : runs_of(interval, columns))  // S^T = K Q^T
          multiply<T>(run.columns.size(), run.rows().size(), dim, keys.at(run.columns.begin, 0),
                      queries.at(0, run.rows().begin), tile.at(run.columns.begin, run.rows().begin), false);
        each_group(interval, columns, [&](Span rows, Span seen) {
          hide(tile, interval, rows, seen);
          visit(tile, rows, seen);
        });
      });
    }
  };
  T* norms = space.tops;
  std::fill_n(norms, kBlockRows, lse ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity());
  if (lse) {
    std::copy(lse, lse + count, norms);
  } else {
    std::fill_n(+space.totals, kBlockRows, T(0));
    each_logits([&](const Tile<T>& tile, Span rows, Span seen) {
      exponentiate(tile.at(seen.begin, rows.begin), seen.size(), norms + rows.begin, &space.totals[rows.begin],
                   &space.factors[rows.begin]);
    });
    for (int64_t i = 0; i < count; ++i) norms[i] += std::log(space.totals[i]);
    std::fill(norms + count, norms + kBlockRows, std::numeric_limits<T>::infinity());  // rows that lack give nothing
  }
  each_logits([&](const Tile<T>& tile, Span rows, Span seen) {
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      const T* logits = tile.at(j, rows.begin).data;
      Vec<T> total(0);
      for (int64_t lane = 0; lane < kGroup; lane += kWidth<T>)
        total = total + (Vec<T>::loadu(logits + lane) - Vec<T>::loadu(norms + rows.begin + lane)).exp_u20();
      sums[j] += at::vec::vec_reduce_all<T>([](const Vec<T>& a, const Vec<T>& b) { return a + b; }, total);
    }
  });
}

}  // namespace cca_lab
