// Matrix products of bfloat16, on AMX tiles of 16 x 64 bytes or else on AVX-512 registers, and the layouts they read.
#pragma once

#if defined(__AVX512BF16__)
#define CCA_LAB_BFLOAT16 1
#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
#define CCA_LAB_AMX 1
#endif

#include <ATen/cpu/Utils.h>
#include <immintrin.h>

#include <cstring>

#include "gemm.h"

namespace cca_lab {

using Half = at::BFloat16;
using Twin = uint32_t;  // two bfloat16 that follow each other in the direction of the sum, the earlier one low

constexpr int64_t kUnit = 32;    // query rows of a task: two tiles
constexpr int64_t kChunk = 256;  // columns whose scores are kept
constexpr int64_t kRow = kChunk + 32;  // numbers from one of their rows to the next: no power of two, see kTileRow
constexpr int64_t kSide = 16;    // rows of a tile, and its columns of 32 bits

inline int64_t down(int64_t x) { return x / kUnit * kUnit; }
inline int64_t up(int64_t x, int64_t multiple = kUnit) { return (std::max<int64_t>(x, 0) + multiple - 1) / multiple * multiple; }

// Left operand: 32 rows of bfloat16. Right operand and result: two blocks of 16 columns, `next` elements apart; `row`
// is the distance of rows.
struct Left {
  const Half* data;
  int64_t row;
};
struct Right {
  const Twin* data;
  int64_t row, next;
};
struct Result {
  float* data;
  int64_t row, next;
};

#ifdef CCA_LAB_AMX

// While it lives, its thread has eight tiles of 16 rows and 64 bytes.
struct Tiles {
  Tiles() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
};

// C = A B or C += A B for 32 x 32 numbers of C; depth is a multiple of 32.
inline void multiply(Left a, Right b, Result c, int64_t depth, bool add) {
  float *lower = c.data + kSide * c.row;
  const int64_t stride = c.row * sizeof(float);
  if (add) {
    _tile_loadd(0, c.data, stride);
    _tile_loadd(1, c.data + c.next, stride);
    _tile_loadd(2, lower, stride);
    _tile_loadd(3, lower + c.next, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < depth; k += kUnit) {
    const Twin* right = b.data + k / 2 * b.row;
    _tile_loadd(4, a.data + k, a.row * sizeof(Half));
    _tile_loadd(6, right, b.row * sizeof(Twin));
    _tile_loadd(7, right + b.next, b.row * sizeof(Twin));
    _tile_loadd(5, a.data + kSide * a.row + k, a.row * sizeof(Half));
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c.data, stride);
  _tile_stored(1, c.data + c.next, stride);
  _tile_stored(2, lower, stride);
  _tile_stored(3, lower + c.next, stride);
}

#else

struct Tiles {};  // registers need no configuration

// ROWS rows of the product below, whose 2 ROWS sums stay in registers.
template <int ROWS>
void multiply_rows(Left a, Right b, Result c, int64_t depth, bool add) {
  __m512 sum[ROWS][2];
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) sum[i][j] = add ? _mm512_loadu_ps(c.data + i * c.row + j * c.next) : _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < depth; k += 2) {
    const Twin* right = b.data + k / 2 * b.row;
    const __m512bh rights[2] = {(__m512bh)_mm512_loadu_si512(right), (__m512bh)_mm512_loadu_si512(right + b.next)};
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; ++i) {
      Twin left;
      std::memcpy(&left, a.data + i * a.row + k, sizeof(left));
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j)
        sum[i][j] = _mm512_dpbf16_ps(sum[i][j], (__m512bh)_mm512_set1_epi32(static_cast<int>(left)), rights[j]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) _mm512_storeu_ps(c.data + i * c.row + j * c.next, sum[i][j]);
  }
}

// C = A B or C += A B for 32 x 32 numbers of C; depth is a multiple of 32.
inline void multiply(Left a, Right b, Result c, int64_t depth, bool add) {
  const auto below = [](auto x, int64_t rows) { return x.data += rows * x.row, x; };
  multiply_rows<11>(a, b, c, depth, add);
  multiply_rows<11>(below(a, 11), b, below(c, 11), depth, add);
  multiply_rows<10>(below(a, 22), b, below(c, 22), depth, add);
}

#endif

// Transpose `rows` x `columns` numbers of 32 bits, both multiples of 16.
inline void transpose32(const void* x, int64_t x_row, void* y, int64_t y_row, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i += kSide) {
    for (int64_t j = 0; j < columns; j += kSide) {
      at::vec::transpose_mxn<float, kSide, kSide>(static_cast<const float*>(x) + i * x_row + j, x_row,
                                                  static_cast<float*>(y) + j * y_row + i, y_row);
    }
  }
}

inline __m512i widened(__m256i halves) { return _mm512_cvtepu16_epi32(halves); }

// Twins of two rows of 16 numbers: the first row low, the second high.
inline __m512i twins(__m256i low, __m256i high) {
  return _mm512_or_si512(widened(low), _mm512_slli_epi32(widened(high), 16));
}

inline __m256i rounded(__m512 x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }

// x (rows, dim) as the right operand of products that sum over features: blocks of 16 rows, (dim / 2, 16) each.
inline void pack_features(const Half* x, int64_t rows, int64_t dim, Twin* y, Half* space) {
  if (rows < kSide) {  // the last block: rows that lack are 0
    std::copy(x, x + rows * dim, space);
    std::fill(space + rows * dim, space + kSide * dim, Half(0));
    x = space;
  }
  transpose32(x, dim / 2, y, kSide, kSide, dim / 2);
}

// x (rows, dim) as the right operand of products that sum over rows: (rows / 2, dim), 16 rows at a time.
inline void pack_rows(const Half* x, int64_t rows, int64_t dim, Twin* y) {
  const auto load = [=](int64_t i, int64_t d) {
    return i < rows ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i * dim + d)) : _mm256_setzero_si256();
  };
  for (int64_t i = 0; i < kSide; i += 2) {
    for (int64_t d = 0; d < dim; d += kSide) _mm512_storeu_si512(y + i / 2 * dim + d, twins(load(i, d), load(i + 1, d)));
  }
}

// x (32, dim) as (dim, 32): the left operand of products that sum over the 32 rows.
inline void turn(const Half* x, int64_t dim, Half* y, Twin* space) {
  transpose32(x, dim / 2, space, kUnit, kUnit, dim / 2);
  for (int64_t pair = 0; pair < dim / 2; ++pair) {
    for (int64_t i = 0; i < kUnit; i += kSide) {
      const __m512i both = _mm512_loadu_si512(space + pair * kUnit + i);
      Half* row = y + 2 * pair * kUnit + i;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_cvtepi32_epi16(both));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + kUnit), _mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
    }
  }
}

constexpr float kLog2E = 1.44269504f, kLog2 = 0.693147181f;

// 2^x, right within 2^-22 of itself: the polynomial interpolates 2^f at Chebyshev nodes of [-1/2, 1/2].
inline __m512 power_of_two(__m512 x) {
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, whole);
  __m512 y = _mm512_set1_ps(0.00133908633f);
  for (const float c : {0.00967603177f, 0.0555035696f, 0.240221068f, 0.693147182f, 1.00000012f})
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(c));
  return _mm512_scalef_ps(y, whole);
}

// Columns from..to of 16, as bits of a mask.
inline __mmask16 lanes(int64_t from, int64_t to) {
  if (from <= 0 && to >= kSide) return 0xffff;  // as nearly everywhere
  const auto below = [](int64_t n) { return (1u << std::clamp<int64_t>(n, 0, kSide)) - 1; };
  return static_cast<__mmask16>(below(to) & ~below(from));
}

}  // namespace cca_lab
#endif
