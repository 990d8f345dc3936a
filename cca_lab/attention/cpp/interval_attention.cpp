// Interval attention on the CPU: hands blocks of rows to the threads, and defines the ops that Python calls.
#include <torch/library.h>

#include <tuple>

#include "bfloat16_attention.h"
#include "backward.h"
#include "forward.h"
#include "pool.h"
#include "problem.h"
#include "python.h"
#include "received.h"
#include "row.h"
#include "step.h"

namespace cca_lab {

template <class T>
void forward_blocks(const Problem& p, const at::Tensor& q, const Tensors& keys, const Tensors& values, T scale,
                    const at::Tensor& out, const at::Tensor& lse) {
  const T* queries = q.const_data_ptr<T>();
  T *outputs = out.data_ptr<T>(), *sums = lse.data_ptr<T>();
  const int64_t blocks = at::divup(p.rows, kBlockRows);  // of a head: they read the same cores, which stay in cache
  share_out<ForwardSpace<T>>(p.batch * p.heads * blocks, p.dim, [&](int64_t task, auto& space) {
    const int64_t row = task % blocks * kBlockRows, b = task / blocks / p.heads, head = task / blocks % p.heads;
    const int64_t first = (b * p.heads + head) * p.rows + row;
    const int64_t key_head = b * p.key_heads + head / p.share(), count = std::min(kBlockRows, p.rows - row);
    const auto columns = each_source(p, [&](size_t source) {
      return ForwardColumns<T>{columns_of<T>(keys[source], key_head), columns_of<T>(values[source], key_head)};
    });
    attend<T>(p.intervals(b, head, row, count), count, p.dim, scale, queries + first * p.dim, columns,
              outputs + first * p.dim, sums + first, space);
  });
}

std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& q, at::TensorList k, at::TensorList v,
                                           at::TensorList bounds, double scale) {
  if (q.scalar_type() == at::kBFloat16) return forward_bfloat16(q, k, v, bounds, scale);
  const auto queries = padded(q, kGroup);
  const auto keys = padded_sources(k, kGroup), values = padded_sources(v, kGroup);
  const Problem p(queries, keys, bounds);
  const auto out = at::empty_like(queries), lse = at::empty({p.batch, p.heads, p.rows}, q.options());
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "interval_attention", [&] {
    forward_blocks<scalar_t>(p, queries, keys, values, static_cast<scalar_t>(scale), out, lse);
  });
  return {narrow(out, q.size(3)), lse};
}

// grad_k and grad_v are (parts B, Hk, N, D) of each source: block number i of each head adds to part i % parts.
template <class T>
void backward_blocks(const Problem& p, int64_t parts, const at::Tensor& grad_out, const at::Tensor& q, const Tensors& keys,
                     const Tensors& values, const at::Tensor& lse, const at::Tensor& delta, T scale,
                     const at::Tensor& grad_q, const Tensors& grad_k, const Tensors& grad_v) {
  const int64_t key_heads = p.batch * p.key_heads;
  share_out<BackwardSpace<T>>(key_heads * parts, p.dim, [&](int64_t task, auto& space) {
    const int64_t part = task / key_heads, key_head = task % key_heads, b = key_head / p.key_heads;
    const auto columns = each_source(p, [&](size_t source) {
      const int64_t size = p.columns[source] * p.dim;
      return BackwardColumns<T>{columns_of<T>(keys[source], key_head), columns_of<T>(values[source], key_head),
                                grad_k[source].data_ptr<T>() + task * size, grad_v[source].data_ptr<T>() + task * size};
    });
    for (int64_t row = part * kBlockRows; row < p.rows; row += parts * kBlockRows) {
      const int64_t count = std::min(kBlockRows, p.rows - row);
      for (int64_t i = 0; i < p.share(); ++i) {
        const int64_t head = key_head % p.key_heads * p.share() + i;
        const int64_t first = (b * p.heads + head) * p.rows + row;
        const BackwardRows<T> rows{q.const_data_ptr<T>() + first * p.dim, grad_out.const_data_ptr<T>() + first * p.dim,
                                   lse.const_data_ptr<T>() + first, delta.const_data_ptr<T>() + first,
                                   grad_q.data_ptr<T>() + first * p.dim};
        differentiate<T>(p.intervals(b, head, row, count), count, p.dim, scale, rows, columns, space);
      }
    }
  });
}

std::tuple<at::Tensor, Tensors, Tensors> backward(
    const at::Tensor& grad_out, const std::optional<at::Tensor>& grad_lse, const at::Tensor& q, at::TensorList k,
    at::TensorList v, const at::Tensor& out, const at::Tensor& lse, at::TensorList bounds, double scale) {
  if (q.scalar_type() == at::kBFloat16) return backward_bfloat16(grad_out, grad_lse, q, k, v, out, lse, bounds, scale);
  auto delta = at::linalg_vecdot(grad_out, out);
  if (grad_lse) delta = delta - *grad_lse;
  const auto queries = padded(q, kGroup), grads = padded(grad_out, kGroup);
  const auto keys = padded_sources(k, kGroup), values = padded_sources(v, kGroup);
  const Problem p(queries, keys, bounds);
  const auto grad_q = at::zeros_like(queries);
  const int64_t parts = parts_of(p, kBlockRows);
  const auto zeros = [&](size_t source) {
    return at::zeros({parts * p.batch, p.key_heads, p.columns[source], p.dim}, q.options());
  };
  const auto grad_k = each_source(p, zeros), grad_v = each_source(p, zeros);
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "interval_attention_backward", [&] {
    backward_blocks<scalar_t>(p, parts, grads, queries, keys, values, lse.contiguous(), delta.contiguous(),
                              static_cast<scalar_t>(scale), grad_q, grad_k, grad_v);
  });
  const auto whole = [&](const Tensors& sums) {
    return each_source(p, [&](size_t source) {
      return narrow(parts == 1 ? sums[source] : sums[source].unflatten(0, {parts, p.batch}).sum(0), q.size(3));
    });
  };
  return {narrow(grad_q, q.size(3)), whole(grad_k), whole(grad_v)};
}

// The attention (B, H, N) that each column receives; sums are (parts B, H, N), as in the backward.
at::Tensor received(const at::Tensor& q, const at::Tensor& k, const std::optional<at::Tensor>& lse,
                    at::TensorList bounds, double scale) {
  const auto queries = padded(q, kGroup);
  const auto keys = padded_sources({k}, kGroup);
  const auto norms = lse ? lse->contiguous() : at::Tensor();
  const Problem p(queries, keys, bounds);
  const int64_t parts = parts_of(p, kBlockRows), all = p.batch * p.heads;
  const auto sums = at::zeros({parts, p.batch, p.heads, p.columns[0]}, q.options());
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "received", [&] {
    share_out<ForwardSpace<scalar_t>>(all * parts, p.dim, [&](int64_t task, auto& space) {
      const int64_t part = task / all, b = task % all / p.heads, head = task % p.heads;
      const int64_t rows = task % all * p.rows;
      for (int64_t row = part * kBlockRows; row < p.rows; row += parts * kBlockRows) {
        const int64_t count = std::min(kBlockRows, p.rows - row);
        receive<scalar_t>(p.intervals(b, head, row, count), count, p.dim, static_cast<scalar_t>(scale),
                          queries.const_data_ptr<scalar_t>() + (rows + row) * p.dim,
                          columns_of<scalar_t>(keys[0], b * p.key_heads + head / p.share()),
                          lse ? norms.const_data_ptr<scalar_t>() + rows + row : nullptr,
                          sums.data_ptr<scalar_t>() + task * p.columns[0], space);
      }
    });
  });
  return sums.sum(0);
}

TORCH_LIBRARY(cca_lab, library) {
  library.def("bfloat16_units() -> bool", &bfloat16_units);
  library.def("python_functions() -> int", &python_functions);
  library.def("forward(Tensor q, Tensor[] k, Tensor[] v, Tensor[] bounds, float scale) -> (Tensor, Tensor)", &forward);
  library.def("received(Tensor q, Tensor k, Tensor? lse, Tensor[] bounds, float scale) -> Tensor", &received);
  library.def("row(Tensor q, Tensor[] k, Tensor[] v, Tensor[] bias, float scale) -> Tensor", &row);
  library.def("step(Tensor q, Tensor k, Tensor v, Tensor[] keys, Tensor[] values, Tensor[] bias, int[] part, int[] owner, "
              "int[] drop, float scale, Tensor? received) -> (Tensor, Tensor[])", &step);
  library.def("pool(Tensor q, Tensor k, Tensor v, int group, int count, float scale, Tensor? cos, Tensor? sin) -> "
              "(Tensor, Tensor)", &pool);
  library.def("slide(Tensor[] past, Tensor[] next, int begin, int end) -> Tensor[]", &slide);
  library.def("backward(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor[] k, Tensor[] v, Tensor out, Tensor lse, "
              "Tensor[] bounds, float scale) -> (Tensor, Tensor[], Tensor[])", &backward);
}

}  // namespace cca_lab
