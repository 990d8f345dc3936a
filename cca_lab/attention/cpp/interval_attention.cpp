// Interval attention on the CPU: hands blocks of rows to the threads, and defines the two ops that Python calls.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <atomic>
#include <numeric>
#include <tuple>

#include "backward.h"
#include "forward.h"

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
  int64_t count(int64_t row) const { return std::min(kBlockRows, rows - row); }

  // The intervals of the block of rows that begins at `row`.
  std::vector<Interval> intervals(int64_t b, int64_t head, int64_t row) const {
    b = std::min(b, bounds.size(1) - 1), head = std::min(head, bounds.size(2) - 1);
    const int64_t* start = bounds.const_data_ptr<int64_t>() + b * bounds.stride(1) + head * bounds.stride(2) + row;
    std::vector<Interval> found;
    for (int64_t n = 0; n < bounds.size(3); ++n, start += rows)
      found.push_back({start, start + bounds.stride(0), count(row)});
    return found;
  }
};

// Contiguous, with features of 0 appended until they fill registers: they change no product.
at::Tensor padded(const at::Tensor& x) {
  const int64_t missing = at::divup(x.size(-1), kGroup) * kGroup - x.size(-1);
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

template <class T>
void forward_blocks(const Problem& p, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, T scale,
                    const at::Tensor& out, const at::Tensor& lse) {
  const T *queries = q.const_data_ptr<T>(), *keys = k.const_data_ptr<T>(), *values = v.const_data_ptr<T>();
  T *outputs = out.data_ptr<T>(), *sums = lse.data_ptr<T>();
  const int64_t heads = p.batch * p.heads;
  share_out<ForwardSpace<T>>(heads * at::divup(p.rows, kBlockRows), p.dim, [&](int64_t task, auto& space) {
    const int64_t row = task / heads * kBlockRows, b = task % heads / p.heads, head = task % p.heads;
    const int64_t first = (b * p.heads + head) * p.rows + row;
    const int64_t column = (b * p.key_heads + head / p.share()) * p.columns;
    attend<T>(p.intervals(b, head, row), p.count(row), p.dim, scale, queries + first * p.dim, keys + column * p.dim,
              values + column * p.dim, outputs + first * p.dim, sums + first, space);
  });
}

std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const at::Tensor& bounds, double scale) {
  const auto queries = padded(q), keys = padded(k), values = padded(v);
  const Problem p(queries, keys, bounds);
  const auto out = at::empty_like(queries), lse = at::empty({p.batch, p.heads, p.rows}, q.options());
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "interval_attention", [&] {
    forward_blocks<scalar_t>(p, queries, keys, values, static_cast<scalar_t>(scale), out, lse);
  });
  return {out.narrow(3, 0, q.size(3)), lse};
}

// grad_k and grad_v are (parts, B, Hk, N, D): block number i of each head adds to part i % parts.
template <class T>
void backward_blocks(const Problem& p, const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const at::Tensor& lse, const at::Tensor& delta, T scale,
                     const at::Tensor& grad_q, const at::Tensor& grad_k, const at::Tensor& grad_v) {
  const int64_t parts = grad_k.size(0), key_heads = p.batch * p.key_heads, size = p.columns * p.dim;
  share_out<BackwardSpace<T>>(key_heads * parts, p.dim, [&](int64_t task, auto& space) {
    const int64_t part = task / key_heads, key_head = task % key_heads, b = key_head / p.key_heads;
    const BackwardColumns<T> columns{k.const_data_ptr<T>() + key_head * size, v.const_data_ptr<T>() + key_head * size,
                                     grad_k.data_ptr<T>() + task * size, grad_v.data_ptr<T>() + task * size};
    for (int64_t row = part * kBlockRows; row < p.rows; row += parts * kBlockRows) {
      for (int64_t i = 0; i < p.share(); ++i) {
        const int64_t head = key_head % p.key_heads * p.share() + i;
        const int64_t first = (b * p.heads + head) * p.rows + row;
        const BackwardRows<T> rows{q.const_data_ptr<T>() + first * p.dim, grad_out.const_data_ptr<T>() + first * p.dim,
                                   lse.const_data_ptr<T>() + first, delta.const_data_ptr<T>() + first,
                                   grad_q.data_ptr<T>() + first * p.dim};
        differentiate<T>(p.intervals(b, head, row), p.count(row), p.dim, scale, rows, columns, space);
      }
    }
  });
}

// So many sums of dk and dv, added in a fixed order at the end, that threads have as many tasks each, or about four.
int64_t parts_of(const Problem& p) {
  const int64_t tasks = p.batch * p.key_heads, threads = at::get_num_threads();
  const int64_t even = std::min(threads / std::gcd(threads, tasks), at::divup(4 * threads, tasks));
  return std::min(even, at::divup(p.rows, kBlockRows));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& grad_out, const std::optional<at::Tensor>& grad_lse, const at::Tensor& q, const at::Tensor& k,
    const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse, const at::Tensor& bounds, double scale) {
  auto delta = (grad_out * out).sum(-1);
  if (grad_lse) delta = delta - *grad_lse;
  const auto queries = padded(q), keys = padded(k), values = padded(v), grads = padded(grad_out);
  const Problem p(queries, keys, bounds);
  const auto grad_q = at::zeros_like(queries);
  const auto grad_k = at::zeros({parts_of(p), p.batch, p.key_heads, p.columns, p.dim}, q.options());
  const auto grad_v = at::zeros_like(grad_k);
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "interval_attention_backward", [&] {
    backward_blocks<scalar_t>(p, grads, queries, keys, values, lse.contiguous(), delta.contiguous(),
                              static_cast<scalar_t>(scale), grad_q, grad_k, grad_v);
  });
  const auto whole = [&](const at::Tensor& x) {
    return (x.size(0) == 1 ? x[0] : x.sum(0)).narrow(3, 0, q.size(3));
  };
  return {grad_q.narrow(3, 0, q.size(3)), whole(grad_k), whole(grad_v)};
}

TORCH_LIBRARY(cca_lab, library) {
  library.def("forward(Tensor q, Tensor k, Tensor v, Tensor bounds, float scale) -> (Tensor, Tensor)", &forward);
  library.def("backward(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
              "Tensor bounds, float scale) -> (Tensor, Tensor, Tensor)", &backward);
}

}  // namespace cca_lab
