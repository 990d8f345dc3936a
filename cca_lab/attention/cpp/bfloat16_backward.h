// A unit of 32 query rows in bfloat16, backward: five products a chunk, given lse of the whole rows.
#pragma once

#include "bfloat16_forward.h"

#ifdef CCA_LAB_BFLOAT16
namespace cca_lab {

// What the columns of one source and KV head bring, packed, and the sums of their gradients, blocks of 16 columns,
// (D, 16) each.
struct PackedBackward {
  const Twin *keys, *values, *keys_by_row;
  float *grad_k, *grad_v;
};

// Memory of a unit: queries and gradients of outputs as they are and turned; p and ds as the products need them.
struct UnitBackwardSpace {
  Tiles tiles;
  Aligned<Half> queries, grads, turned_queries, turned_grads, slopes;
  Aligned<float> scores, products, grad_q;
  Aligned<Twin> weight_twins, slope_twins, space;

  explicit UnitBackwardSpace(int64_t dim)
      : queries(kUnit * dim), grads(kUnit * dim), turned_queries(kUnit * dim), turned_grads(kUnit * dim),
        slopes(kUnit * kRow), scores(kUnit * kRow), products(kUnit * kRow), grad_q(kUnit * dim),
        weight_twins(kSide * kRow), slope_twins(kSide * kRow), space(kUnit * dim / 2) {}
};

struct RowFacts {
  int64_t begin, end;  // columns of the chunk that it sees
  float lse, delta;
};

// Two rows of a chunk: p = exp(scale * score - lse) and ds = p (product - delta), rounded, ds also as it is.
inline void weigh(const float* scores, const float* products, int64_t width, float scale, const RowFacts* rows,
                  Half* slopes, Twin* weight_twins, Twin* slope_twins) {
  for (int64_t j = 0; j < width; j += kSide) {
    __m256i weight[2], slope[2];
    for (int r = 0; r < 2; ++r) {
      const __mmask16 seen = lanes(rows[r].begin - j, rows[r].end - j);
      weight[r] = slope[r] = _mm256_setzero_si256();
      if (seen) {
        const __m512 logit = _mm512_fmsub_ps(_mm512_load_ps(scores + r * kRow + j), _mm512_set1_ps(kLog2E * scale),
                                             _mm512_set1_ps(kLog2E * rows[r].lse));
        const Vec<float> p = _mm512_maskz_mov_ps(seen, power_of_two(logit));
        const Vec<float> ds = p * (Vec<float>::loadu(products + r * kRow + j) - Vec<float>(rows[r].delta));
        weight[r] = rounded(p), slope[r] = rounded(_mm512_maskz_mov_ps(seen, ds));
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(slopes + r * kRow + j), slope[r]);
    }
    _mm512_storeu_si512(weight_twins + j, twins(weight[0], weight[1]));
    _mm512_storeu_si512(slope_twins + j, twins(slope[0], slope[1]));
  }
}

// Write dq of `count` rows, without the scale of dk's sum: that one is left to the caller.
inline void differentiate(const std::vector<Interval>& intervals, int64_t count, int64_t dim, float scale,
                          const Half* q, const Half* grad_out, const float* lse, const float* delta, Half* grad_q,
                          const std::vector<PackedBackward>& sources, UnitBackwardSpace& space) {
  fill_unit(q, count, dim, space.queries);
  fill_unit(grad_out, count, dim, space.grads);
  turn(space.queries, dim, space.turned_queries, space.space);
  turn(space.grads, dim, space.turned_grads, space.space);
  std::fill_n(static_cast<float*>(space.grad_q), kUnit * dim, 0.0f);

  for (const Interval& interval : intervals) {
    const PackedBackward& columns = sources[interval.source];
    each_chunk(interval, [&](int64_t column, int64_t width) {
      score(space.queries, dim, columns.keys, column, width, space.scores);
      score(space.grads, dim, columns.values, column, width, space.products);
      for (int64_t i = 0; i < kUnit; i += 2) {
        RowFacts rows[2];
        for (int64_t r = i; r < i + 2; ++r) {
          rows[r - i] = r >= count ? RowFacts{0, 0, 0, 0}
                                   : RowFacts{std::max<int64_t>(0, interval.start[r] - column),
                                              std::min(width, interval.end[r] - column), lse[r], delta[r]};
        }
        weigh(space.scores + i * kRow, space.products + i * kRow, width, scale, rows, space.slopes + i * kRow,
              space.weight_twins + i / 2 * kRow, space.slope_twins + i / 2 * kRow);
      }
      for (int64_t d = 0; d < dim; d += kUnit) {
        multiply(Left{space.slopes, kRow}, Right{columns.keys_by_row + column / 2 * dim + d, dim, kSide},
                 Result{space.grad_q + d, dim, kSide}, width, true);
        for (int64_t j = 0; j < width; j += kUnit) {
          const int64_t place = ((column + j) / kSide * dim + d) * kSide, next = dim * kSide;
          multiply(Left{space.turned_queries + d * kUnit, kUnit}, Right{space.slope_twins + j, kRow, kSide},
                   Result{columns.grad_k + place, kSide, next}, kUnit, true);
          multiply(Left{space.turned_grads + d * kUnit, kUnit}, Right{space.weight_twins + j, kRow, kSide},
                   Result{columns.grad_v + place, kSide, next}, kUnit, true);
        }
      }
    });
  }
  const Vec<float> factor(scale);
  for (int64_t x = 0; x < count * dim; x += kSide) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(grad_q + x), rounded(Vec<float>::loadu(space.grad_q + x) * factor));
  }
}

}  // namespace cca_lab
#endif
