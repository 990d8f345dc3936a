// A unit of 32 query rows in bfloat16, forward: an online softmax over chunks of columns.
#pragma once

#include "bfloat16.h"
#include "runs.h"

#ifdef CCA_LAB_BFLOAT16
namespace cca_lab {

// Memory of a unit: queries, scores, weights, sums of weighted values, and by row the highest logit and the total.
struct UnitForwardSpace {
  Tiles tiles;
  Aligned<Half> queries, weights;
  Aligned<float> scores, sums;
  float tops[kUnit], totals[kUnit];

  explicit UnitForwardSpace(int64_t dim)
      : queries(kUnit * dim), weights(kUnit * kRow), scores(kUnit * kRow), sums(kUnit * dim) {}
};

// Copy `count` rows into a unit, and zeros into the rows that lack.
inline void fill_unit(const Half* x, int64_t count, int64_t dim, Half* unit) {
  std::copy(x, x + count * dim, unit);
  std::fill(unit + count * dim, unit + kUnit * dim, Half(0));
}

// Call visit(column, width) for chunks of whole units over all columns that some row sees.
template <class Visit>
void each_chunk(const Interval& interval, const Visit& visit) {
  const int64_t last = up(interval.end[interval.rows - 1]);
  if (interval.start[0] == interval.end[interval.rows - 1]) return;
  for (int64_t column = down(interval.start[0]); column < last; column += kChunk)
    visit(column, std::min(kChunk, last - column));
}

// Rows x columns: scores = Q K^T, of a unit and a chunk; packed keys have blocks of 16 columns.
inline void score(const Half* rows, int64_t dim, const Twin* packed, int64_t column, int64_t width, float* scores) {
  const int64_t block = dim / 2 * kSide;
  for (int64_t j = 0; j < width; j += kUnit) {
    multiply(Left{rows, dim}, Right{packed + (column + j) / kSide * block, kSide, block},
             Result{scores + j, kRow, kSide}, dim, false);
  }
}

// One row of scores of which columns [begin, end) are seen: weights 2^(factor * score - top) in bfloat16, zeros
// elsewhere. Updates top (in powers of two) and total, and returns the factor by which earlier sums shrink.
inline float exponentiate(const float* scores, int64_t width, int64_t begin, int64_t end, float factor, float& top,
                          float& total, Half* weights) {
  const int64_t first = std::min(begin, width) / kSide * kSide, last = std::max(first, up(end, kSide));
  std::fill(weights, weights + first, Half(0));
  std::fill(weights + last, weights + width, Half(0));
  if (begin >= end) {
    std::fill(weights + first, weights + last, Half(0));
    return 1;
  }
  const auto seen = [=](int64_t j) { return lanes(begin - j, end - j); };
  const __m512 scale = _mm512_set1_ps(factor), nothing = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 even = nothing, odd = nothing;  // in turns: one would wait for the last
  const auto raise = [=](__m512& highest, int64_t j) {
    highest = _mm512_mask_max_ps(highest, seen(j), highest, _mm512_mul_ps(_mm512_load_ps(scores + j), scale));
  };
  int64_t next = first;
  for (; next + kSide < last; next += 2 * kSide) raise(even, next), raise(odd, next + kSide);
  if (next < last) raise(even, next);
  const float before = top;
  top = std::max(top, _mm512_reduce_max_ps(_mm512_max_ps(even, odd)));
  const __m512 shift = _mm512_set1_ps(top);
  __m512 sum = _mm512_setzero_ps();
  for (int64_t j = first; j < last; j += kSide) {
    const __m512 weight = _mm512_maskz_mov_ps(
        seen(j), power_of_two(_mm512_fmsub_ps(_mm512_load_ps(scores + j), scale, shift)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(weights + j), rounded(weight));
    sum = _mm512_add_ps(sum, weight);
  }
  const float shrink = before == top ? 1.0f : std::exp2(before - top);
  total = total * shrink + _mm512_reduce_add_ps(sum);
  return shrink;
}

// What the columns of one source and KV head bring: keys packed by features, values by rows.
struct PackedForward {
  const Twin *keys, *values;
};

// out (bfloat16) and lse of `count` rows of q, given the columns of each source.
inline void attend(const std::vector<Interval>& intervals, int64_t count, int64_t dim, float scale, const Half* q,
                   const std::vector<PackedForward>& sources, Half* out, float* lse, UnitForwardSpace& space) {
  fill_unit(q, count, dim, space.queries);
  std::fill_n(static_cast<float*>(space.sums), kUnit * dim, 0.0f);
  std::fill_n(space.tops, kUnit, -std::numeric_limits<float>::infinity());
  std::fill_n(space.totals, kUnit, 0.0f);
  std::fill(space.weights + count * kRow, space.weights + kUnit * kRow, Half(0));

  for (const Interval& interval : intervals) {
    const PackedForward& columns = sources[interval.source];
    each_chunk(interval, [&](int64_t column, int64_t width) {
      score(space.queries, dim, columns.keys, column, width, space.scores);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t begin = std::max<int64_t>(0, interval.start[i] - column);
        const float shrink = exponentiate(space.scores + i * kRow, width, begin,
                                          std::min(width, interval.end[i] - column), scale * kLog2E, space.tops[i],
                                          space.totals[i], space.weights + i * kRow);
        float* sums = space.sums + i * dim;
        if (shrink != 1) std::transform(sums, sums + dim, sums, [=](float x) { return x * shrink; });
      }
      for (int64_t d = 0; d < dim; d += kUnit) {
        multiply(Left{space.weights, kRow}, Right{columns.values + column / 2 * dim + d, dim, kSide},
                 Result{space.sums + d, dim, kSide}, width, true);
      }
    });
  }

  for (int64_t i = 0; i < count; ++i) {
    const bool seen = std::isfinite(space.tops[i]);
    const Vec<float> inverse(seen ? 1 / space.totals[i] : std::numeric_limits<float>::quiet_NaN());
    for (int64_t d = 0; d < dim; d += kSide) {
      const Vec<float> x = Vec<float>::loadu(space.sums + i * dim + d) * inverse;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * dim + d), rounded(x));
    }
    lse[i] = kLog2 * space.tops[i] + std::log(space.totals[i]);
  }
}

}  // namespace cca_lab
#endif
