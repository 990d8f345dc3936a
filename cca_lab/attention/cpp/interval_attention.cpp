// Interval attention on the CPU: hands blocks of rows to the threads, and defines the two ops that Python calls.
#include <torch/library.h>

#include <tuple>

#include "amx_attention.h"
#include "backward.h"
#include "forward.h"
#include "problem.h"

namespace cca_lab {

template <class T>
void forward_blocks(const Problem& p, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, T scale,
                    const at::Tensor& out, const at::Tensor& lse) {
  const T *queries = q.const_data_ptr<T>(), *keys = k.const_data_ptr<T>(), *values = v.const_data_ptr<T>();
  T *outputs = out.data_ptr<T>(), *sums = lse.data_ptr<T>();
  const int64_t blocks = at::divup(p.rows, kBlockRows);  // of a head: they read the same cores, which stay in cache
  share_out<ForwardSpace<T>>(p.batch * p.heads * blocks, p.dim, [&](int64_t task, auto& space) {
    const int64_t row = task % blocks * kBlockRows, b = task / blocks / p.heads, head = task / blocks % p.heads;
    const int64_t first = (b * p.heads + head) * p.rows + row;
    const int64_t column = (b * p.key_heads + head / p.share()) * p.columns;
    const int64_t count = std::min(kBlockRows, p.rows - row);
    attend<T>(p.intervals(b, head, row, count), count, p.dim, scale, queries + first * p.dim, keys + column * p.dim,
              values + column * p.dim, outputs + first * p.dim, sums + first, space);
  });
}

std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const at::Tensor& bounds, double scale) {
  if (q.scalar_type() == at::kBFloat16) return forward_amx(q, k, v, bounds, scale);
  const auto queries = padded(q, kGroup), keys = padded(k, kGroup), values = padded(v, kGroup);
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

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& grad_out, const std::optional<at::Tensor>& grad_lse, const at::Tensor& q, const at::Tensor& k,
    const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse, const at::Tensor& bounds, double scale) {
  if (q.scalar_type() == at::kBFloat16) return backward_amx(grad_out, grad_lse, q, k, v, out, lse, bounds, scale);
  auto delta = (grad_out * out).sum(-1);
  if (grad_lse) delta = delta - *grad_lse;
  const auto queries = padded(q, kGroup), keys = padded(k, kGroup), values = padded(v, kGroup);
  const auto grads = padded(grad_out, kGroup);
  const Problem p(queries, keys, bounds);
  const auto grad_q = at::zeros_like(queries);
  const auto grad_k = at::zeros({parts_of(p, kBlockRows), p.batch, p.key_heads, p.columns, p.dim}, q.options());
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
  library.def("matrix_units() -> bool", &matrix_units);
  library.def("forward(Tensor q, Tensor k, Tensor v, Tensor bounds, float scale) -> (Tensor, Tensor)", &forward);
  library.def("backward(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
              "Tensor bounds, float scale) -> (Tensor, Tensor, Tensor)", &backward);
}

}  // namespace cca_lab
