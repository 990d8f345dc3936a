// Forward and backward of whole tensors in bfloat16, on processors with AMX; others refuse.
#pragma once

#include <tuple>

#include "amx_backward.h"
#include "problem.h"

namespace cca_lab {

#ifdef CCA_LAB_AMX

// Whether the system lets this process use AMX tiles.
inline bool matrix_units() {
  static const bool granted = at::cpu::init_amx();
  return granted;
}

// x (B, Hk, N, D) packed for AMX: by features (blocks of 16 rows, D / 2 twins), or by rows (twins of rows, D).
inline at::Tensor packed(const at::Tensor& x, bool by_features) {
  const int64_t heads = x.size(0) * x.size(1), rows = x.size(2), dim = x.size(3), blocks = up(rows) / kSide;
  auto twins = at::empty({heads, blocks, kSide / 2 * dim}, x.options().dtype(at::kInt));
  const auto* source = reinterpret_cast<const Half*>(x.const_data_ptr<at::BFloat16>());
  auto* target = reinterpret_cast<Twin*>(twins.data_ptr<int32_t>());
  at::parallel_for(0, heads * blocks, 16, [&](int64_t begin, int64_t end) {
    Aligned<Half> space(kSide * dim);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t row = n % blocks * kSide, count = std::clamp<int64_t>(rows - row, 0, kSide);
      const Half* block = source + (n / blocks * rows + std::min(row, rows)) * dim;
      if (by_features) pack_features(block, count, dim, target + n * kSide / 2 * dim, space);
      else pack_rows(block, count, dim, target + n * kSide / 2 * dim);
    }
  });
  return twins;
}

inline const Twin* of_head(const at::Tensor& twins, int64_t key_head) {
  return reinterpret_cast<const Twin*>(twins.const_data_ptr<int32_t>()) + key_head * twins.stride(0);
}

// Sums of gradients (parts, heads, N / 16, D, 16), added, scaled and rounded: (B, Hk, N, D).
inline at::Tensor unpacked(const at::Tensor& sums, const Problem& p, double scale) {
  const int64_t parts = sums.size(0), blocks = up(p.columns) / kSide, size = p.dim * kSide;
  auto whole = at::empty({p.batch, p.key_heads, p.columns, p.dim}, sums.options().dtype(at::kBFloat16));
  const float* source = sums.const_data_ptr<float>();
  const Vec<float> factor(static_cast<float>(scale));
  at::parallel_for(0, p.batch * p.key_heads * blocks, 16, [&](int64_t begin, int64_t end) {
    Aligned<float> sum(size), turned(size);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t row = n % blocks * kSide, count = std::clamp<int64_t>(p.columns - row, 0, kSide);
      Half* target = whole.data_ptr<Half>() + (n / blocks * p.columns + row) * p.dim;
      for (int64_t x = 0; x < size; x += kSide) {
        Vec<float> total = Vec<float>::loadu(source + n * size + x);
        for (int64_t part = 1; part < parts; ++part)
          total = total + Vec<float>::loadu(source + part * sums.stride(0) + n * size + x);
        (total * factor).store(sum + x);
      }
      transpose32(sum, kSide, turned, p.dim, p.dim, kSide);
      for (int64_t x = 0; x < count * p.dim; x += kSide)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + x), rounded(Vec<float>::loadu(turned + x)));
    }
  });
  return whole;
}

inline std::tuple<at::Tensor, at::Tensor> forward_amx(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                      const at::Tensor& bounds, double scale) {
  TORCH_CHECK_VALUE(matrix_units(), "backend: the system does not let this process use AMX");
  const auto queries = padded(q, kUnit), values = packed(padded(v, kUnit), false);
  const auto wide = padded(k, kUnit), keys = packed(wide, true);
  const Problem p(queries, wide, bounds);
  const auto out = at::empty_like(queries);
  const auto lse = at::empty({p.batch, p.heads, p.rows}, q.options().dtype(at::kFloat));
  const int64_t units = at::divup(p.rows, kUnit);
  share_out<AmxForwardSpace>(p.batch * p.heads * units, p.dim, [&](int64_t task, auto& space) {
    const int64_t row = task % units * kUnit, b = task / units / p.heads, head = task / units % p.heads;
    const int64_t first = (b * p.heads + head) * p.rows + row, count = std::min(kUnit, p.rows - row);
    const int64_t key_head = b * p.key_heads + head / p.share();
    attend(p.intervals(b, head, row, count), count, p.dim, static_cast<float>(scale),
           queries.const_data_ptr<Half>() + first * p.dim, of_head(keys, key_head), of_head(values, key_head),
           out.data_ptr<Half>() + first * p.dim, lse.data_ptr<float>() + first, space);
  });
  return {out.narrow(3, 0, q.size(3)), lse};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> backward_amx(
    const at::Tensor& grad_out, const std::optional<at::Tensor>& grad_lse, const at::Tensor& q, const at::Tensor& k,
    const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse, const at::Tensor& bounds, double scale) {
  auto delta = (grad_out.to(at::kFloat) * out).sum(-1);
  if (grad_lse) delta = delta - *grad_lse;
  delta = delta.contiguous();
  const auto queries = padded(q, kUnit), wide = padded(k, kUnit), grads = padded(grad_out, kUnit);
  const auto keys = packed(wide, true), by_row = packed(wide, false), values = packed(padded(v, kUnit), true);
  const auto sums = lse.contiguous();
  const Problem p(queries, wide, bounds);
  const int64_t key_heads = p.batch * p.key_heads, parts = parts_of(p, kUnit), columns = up(p.columns);
  const int64_t size = columns * p.dim;
  const auto grad_q = at::empty_like(queries);
  const auto grad_k = at::zeros({parts, p.batch, p.key_heads, columns / kSide, p.dim, kSide},
                                q.options().dtype(at::kFloat));
  const auto grad_v = at::zeros_like(grad_k);
  share_out<AmxBackwardSpace>(key_heads * parts, p.dim, [&](int64_t task, auto& space) {
    const int64_t part = task / key_heads, key_head = task % key_heads, b = key_head / p.key_heads;
    const AmxColumns own{of_head(keys, key_head), of_head(values, key_head), of_head(by_row, key_head),
                         grad_k.template data_ptr<float>() + task * size,
                         grad_v.template data_ptr<float>() + task * size};
    for (int64_t row = part * kUnit; row < p.rows; row += parts * kUnit) {
      const int64_t count = std::min(kUnit, p.rows - row);
      for (int64_t i = 0; i < p.share(); ++i) {
        const int64_t head = key_head % p.key_heads * p.share() + i;
        const int64_t first = (b * p.heads + head) * p.rows + row;
        differentiate(p.intervals(b, head, row, count), count, p.dim, static_cast<float>(scale),
                      queries.const_data_ptr<Half>() + first * p.dim, grads.const_data_ptr<Half>() + first * p.dim,
                      sums.const_data_ptr<float>() + first, delta.const_data_ptr<float>() + first,
                      grad_q.template data_ptr<Half>() + first * p.dim, own, space);
      }
    }
  });
  const auto narrow = [&](const at::Tensor& x) { return x.narrow(3, 0, q.size(3)); };
  return {narrow(grad_q), narrow(unpacked(grad_k, p, scale)), narrow(unpacked(grad_v, p, 1))};
}

#else

inline bool matrix_units() { return false; }

inline std::tuple<at::Tensor, at::Tensor> forward_amx(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                      const at::Tensor&, double) {
  TORCH_CHECK_VALUE(false, "backend: bfloat16 needs a processor with AMX");
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> backward_amx(
    const at::Tensor&, const std::optional<at::Tensor>&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
    const at::Tensor&, const at::Tensor&, const at::Tensor&, double) {
  TORCH_CHECK_VALUE(false, "backend: bfloat16 needs a processor with AMX");
}

#endif

}  // namespace cca_lab
