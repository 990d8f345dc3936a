// What both ops need of their arguments: sizes, checked intervals, and work shared out to threads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "runs.h"

namespace cca_lab {

using Tensors = std::vector<at::Tensor>;

// Sizes of q (B, H, L, D), and of each source the columns of its k and v (B, Hk, N, D), and the bounds (2, b, h, n, L)
// of its intervals.
struct Problem {
  int64_t batch, heads, key_heads, rows, dim;
  std::vector<int64_t> columns;
  Tensors bounds;

  Problem(const at::Tensor& q, const Tensors& keys, at::TensorList tables)
      : batch(q.size(0)), heads(q.size(1)), key_heads(keys[0].size(1)), rows(q.size(2)), dim(q.size(3)),
        bounds(tables.vec()) {
    for (size_t source = 0; source < keys.size(); ++source) {
      columns.push_back(keys[source].size(2));
      check_bounds(bounds[source], columns[source]);
    }
  }

  // Refuse what the loops cannot follow. Python remembers a table as right, and may not see what is written into it
  // later.
  void check_bounds(const at::Tensor& table, int64_t most) const {
    const int64_t *start = table.const_data_ptr<int64_t>(), *end = start + table.stride(0);
    bool right = true;
    for (int64_t line = 0; line < table.stride(0); line += rows, start += rows, end += rows) {
      right &= start[0] >= 0 && end[rows - 1] <= most;  // what lies between only grows
      for (int64_t i = 0; i < rows; ++i) right &= start[i] <= end[i];
      for (int64_t i = 1; i < rows; ++i) right &= (start[i - 1] <= start[i]) & (end[i - 1] <= end[i]);
    }
    TORCH_CHECK_VALUE(right, "intervals: a row's columns are out of range or move back; was the table written into "
                             "after it was checked?");
  }

  int64_t share() const { return heads / key_heads; }

  // The intervals of the `count` rows that begin at `row`.
  std::vector<Interval> intervals(int64_t b, int64_t head, int64_t row, int64_t count) const {
    std::vector<Interval> all;
    for (size_t source = 0; source < bounds.size(); ++source) {
      const at::Tensor& table = bounds[source];
      const int64_t* start = table.const_data_ptr<int64_t>() + std::min(b, table.size(1) - 1) * table.stride(1) +
                             std::min(head, table.size(2) - 1) * table.stride(2) + row;
      for (int64_t n = 0; n < table.size(3); ++n, start += rows)
        all.push_back({start, start + table.stride(0), count, source});
    }
    return all;
  }
};

// What a function returns for each source.
template <class Function>
auto each_source(const Problem& p, const Function& function) {
  std::vector<decltype(function(size_t{0}))> results;
  for (size_t source = 0; source < p.columns.size(); ++source) results.push_back(function(source));
  return results;
}

// Contiguous, with features of 0 appended to a multiple: they change no product.
inline at::Tensor padded(const at::Tensor& x, int64_t multiple) {
  const int64_t missing = at::divup(x.size(-1), multiple) * multiple - x.size(-1);
  return (missing ? at::constant_pad_nd(x, {0, missing}) : x).contiguous();  // padding keeps the order of strides
}

// Without the features of 0. No view where there are none: autograd adds in place to a tensor that nothing else holds.
inline at::Tensor narrow(const at::Tensor& x, int64_t dim) { return x.size(-1) == dim ? x : x.narrow(-1, 0, dim); }

// Keys or values of each source: the columns of a head lie one after the other, heads may lie apart.
inline Tensors padded_sources(at::TensorList sources, int64_t multiple) {
  Tensors all;
  for (const at::Tensor& x : sources) {
    const bool follow = x.size(3) % multiple == 0 && x.stride(3) == 1 && x.stride(2) == x.size(3);
    all.push_back(follow ? x : padded(x, multiple));
  }
  return all;
}

// Where the columns of one KV head of one text begin.
template <class T>
const T* columns_of(const at::Tensor& x, int64_t key_head) {
  return x.const_data_ptr<T>() + key_head / x.size(1) * x.stride(0) + key_head % x.size(1) * x.stride(1);
}

// Threads, each with a Space of its own, take tasks count - 1 .. 0 as they get free: the last rows of causal
// attention have most to do.
template <class Space, class Task>
void share_out(int64_t count, int64_t dim, const Task& task) {
  std::atomic<int64_t> left{count};
  at::parallel_for(0, std::min<int64_t>(at::get_num_threads(), count), 1, [&](int64_t, int64_t) {
    Space space(dim);
    for (int64_t next = --left; next >= 0; next = --left) task(next, space);
  });
}

// So many sums of dk and dv, added in a fixed order at the end, that threads have as many tasks each, or about four;
// a task takes `rows` query rows at a time.
inline int64_t parts_of(const Problem& p, int64_t rows) {
  const int64_t tasks = p.batch * p.key_heads, threads = at::get_num_threads();
  const int64_t even = std::min(threads / std::gcd(threads, tasks), at::divup(4 * threads, tasks));
  return std::min(even, at::divup(p.rows, rows));
}

}  // namespace cca_lab
