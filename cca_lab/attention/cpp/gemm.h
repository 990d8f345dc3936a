// A matrix product for operands that stay in cache: C (+)= A B, one tile of C in registers at a time.
#pragma once

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

namespace cca_lab {

template <class T>
using Vec = at::vec::Vectorized<T>;

template <class T>
constexpr int64_t kWidth = Vec<T>::size();  // numbers in a register

// 24 sums (6 x 4, 8 x 3, ...), a row of B and a number of A fill most of AVX-512's or NEON's 32 registers; AVX2
// has 16.
constexpr bool kFewRegisters = sizeof(Vec<float>) == 32;
constexpr int kMostVectors = kFewRegisters ? 2 : 4;
constexpr int tile_rows(int vectors) { return std::min(12, (kFewRegisters ? 12 : 24) / vectors); }

// Zeroed memory at the beginning of a cache line: a register of 64 bytes is then read from one line.
template <class T>
struct Aligned {
  static constexpr std::align_val_t kLine{64};
  struct Delete {
    void operator()(T* memory) const { ::operator delete(memory, kLine); }
  };
  std::unique_ptr<T, Delete> memory;

  explicit Aligned(int64_t count) : memory(static_cast<T*>(::operator new(count * sizeof(T), kLine))) {
    std::fill_n(memory.get(), count, T(0));
  }
  operator T*() const { return memory.get(); }
};

// Element (i, j) is data[i * row + j * column].
template <class T>
struct Matrix {
  T* data;
  int64_t row;
  int64_t column = 1;

  Matrix at(int64_t i, int64_t j) const { return {data + i * row + j * column, row, column}; }
  Matrix transposed() const { return {data, column, row}; }
  operator Matrix<const T>() const { return {data, row, column}; }
};

// C (+)= A B for ROWS rows and VECTORS registers of columns; rows of B and C are contiguous.
template <class T, int ROWS, int VECTORS>
void multiply_tile(int64_t depth, Matrix<const T> a, Matrix<const T> b, Matrix<T> c, bool add) {
  Vec<T> sum[ROWS][VECTORS];
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; ++j)
      sum[i][j] = add ? Vec<T>::loadu(c.data + i * c.row + j * kWidth<T>) : Vec<T>(0);
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec<T> right[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; ++j) right[j] = Vec<T>::loadu(b.data + k * b.row + j * kWidth<T>);
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; ++i) {
      const Vec<T> left(a.data[i * a.row + k * a.column]);
#pragma GCC unroll 4
      for (int j = 0; j < VECTORS; ++j) sum[i][j] = at::vec::fmadd(left, right[j], sum[i][j]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; ++j) sum[i][j].store(c.data + i * c.row + j * kWidth<T>);
  }
}

// The same for a number of rows, at most ROWS, that is known only when it runs.
template <class T, int VECTORS, int ROWS = tile_rows(VECTORS)>
void multiply_high(int64_t rows, int64_t depth, Matrix<const T> a, Matrix<const T> b, Matrix<T> c, bool add) {
  if (rows == ROWS) multiply_tile<T, ROWS, VECTORS>(depth, a, b, c, add);
  else if constexpr (ROWS > 1) multiply_high<T, VECTORS, ROWS - 1>(rows, depth, a, b, c, add);
}

// The same for any number of rows, in tiles of nearly the same height: the few sums of a low one wait for each other.
template <class T, int VECTORS>
void multiply_rows(int64_t rows, int64_t depth, Matrix<const T> a, Matrix<const T> b, Matrix<T> c, bool add) {
  constexpr int64_t most = tile_rows(VECTORS);
  for (int64_t tiles = (rows + most - 1) / most; tiles > 0; --tiles) {
    const int64_t high = (rows + tiles - 1) / tiles;
    multiply_high<T, VECTORS>(high, depth, a, b, c, add);
    rows -= high, a = a.at(high, 0), c = c.at(high, 0);
  }
}

// C = A B or C += A B: A (rows, depth), B (depth, columns), C (rows, columns); columns fill whole registers.
template <class T, int VECTORS = kMostVectors>
void multiply(int64_t rows, int64_t columns, int64_t depth, Matrix<const T> a, Matrix<const T> b, Matrix<T> c,
              bool add) {
  constexpr int64_t span = VECTORS * kWidth<T>;
  for (; columns >= span; columns -= span, b = b.at(0, span), c = c.at(0, span))
    multiply_rows<T, VECTORS>(rows, depth, a, b, c, add);
  if constexpr (VECTORS > 1) {
    if (columns > 0) multiply<T, VECTORS - 1>(rows, columns, depth, a, b, c, add);
  }
}

}  // namespace cca_lab
