// What forward and backward of a block have in common: its transposed rows, its tile of scores, the mask.
#pragma once

#include <limits>

#include "gemm.h"
#include "runs.h"

namespace cca_lab {

// Numbers from a column of a tile to the next: with 64, a power of two, 16 rows of all columns would meet in few sets of
// the cache and push each other out.
constexpr int64_t kTileRow = kBlockRows + 16;

// Scores are kept transposed, (columns, rows): keys and values are then read as they lie in memory, and the softmax
// of 16 rows goes down 16 lanes, without sums across a register.
template <class T>
struct Tile {
  T* data;
  int64_t first;  // the first column

  Matrix<T> at(int64_t column, int64_t row) const {
    return {data + (column - first) * kTileRow + row, kTileRow};
  }
};

// Write the transpose of x (rows, dim) into (dim, kBlockRows), with zeros for the rows that lack.
template <class T>
void transpose(const T* x, int64_t rows, int64_t dim, T* transposed) {
  for (int64_t d = 0; d < dim; ++d) {
    T* row = transposed + d * kBlockRows;
    for (int64_t i = 0; i < rows; ++i) row[i] = x[i * dim + d];
    std::fill(row + rows, row + kBlockRows, T(0));
  }
}

// Write -inf where a row of the group does not see a column that the group computes.
template <class T>
void hide(const Tile<T>& tile, const Interval& interval, Span rows, Span columns) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    T* scores = tile.at(columns.begin, i).data - columns.begin * kTileRow;
    const auto write = [=](int64_t from, int64_t to) {
      for (int64_t j = from; j < to; ++j) scores[j * kTileRow] = -std::numeric_limits<T>::infinity();
    };
    write(columns.begin, std::min(interval.start[i], columns.end));
    write(std::max(interval.end[i], columns.begin), columns.end);
  }
}

}  // namespace cca_lab
