// What both ops need of their arguments: sizes, checked intervals, and work shared out to threads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "runs.h"

namespace cca_lab {

// Sizes of q (B, H, L, D), of k and v (B, Hk, N, D), and the bounds (2, b, h, n, L) of the intervals.
struct Problem {
  int64_t batch, heads, key_heads, rows, columns, dim;
  at::Tensor bounds;

  Problem(const at::Tensor& q, const at::Tensor& k, const at::Tensor& table)
      : batch(q.size(0)), heads(q.size(1)), key_heads(k.size(1)), rows(q.size(2)), columns(k.size(2)),
        dim(q.size(3)), bounds(table) {
    check_bounds();
  }

  // Refuse what the loops cannot follow. Python remembers a table as right, and may not see what is written into it
  // later.
  void check_bounds() const {
    const int64_t *start = bounds.const_data_ptr<int64_t>(), *end = start + bounds.stride(0);
    bool right = true;
    for (int64_t line = 0; line < bounds.stride(0); line += rows, start += rows, end += rows) {
      right &= start[0] >= 0 && end[rows - 1] <= columns;  // what lies between only grows
      for (int64_t i = 0; i < rows; ++i) right &= start[i] <= end[i];
      for (int64_t i = 1; i < rows; ++i) right &= (start[i - 1] <= start[i]) & (end[i - 1] <= end[i]);
    }
    TORCH_CHECK_VALUE(right, "intervals: a row's columns are out of range or move back; was the table written into "
                             "after it was checked?");
  }

  int64_t share() const { return heads / key_heads; }

  // The intervals of the `count` rows that begin at `row`.
  std::vector<Interval> intervals(int64_t b, int64_t head, int64_t row, int64_t count) const {
    b = std::min(b, bounds.size(1) - 1), head = std::min(head, bounds.size(2) - 1);
    const int64_t* start = bounds.const_data_ptr<int64_t>() + b * bounds.stride(1) + head * bounds.stride(2) + row;
    std::vector<Interval> found;
    for (int64_t n = 0; n < bounds.size(3); ++n, start += rows)
      found.push_back({start, start + bounds.stride(0), count});
    return found;
  }
};

// Contiguous, with features of 0 appended to a multiple: they change no product.
inline at::Tensor padded(const at::Tensor& x, int64_t multiple) {
  const int64_t missing = at::divup(x.size(-1), multiple) * multiple - x.size(-1);
  return (missing ? at::constant_pad_nd(x, {0, missing}) : x).contiguous();  // padding keeps the order of strides
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
