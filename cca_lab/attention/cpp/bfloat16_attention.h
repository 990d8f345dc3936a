// Forward and backward of whole tensors in bfloat16, on processors with AVX512-BF16; others refuse.
#pragma once

#include <tuple>

#include "bfloat16_backward.h"
#include "problem.h"

namespace cca_lab {

#ifdef CCA_LAB_BFLOAT16

// Whether this process may use what the op was compiled for: the system has to grant AMX tiles.
inline bool bfloat16_units() {
#ifdef CCA_LAB_AMX
  static const bool granted = at::cpu::init_amx();
  return granted;
#else
  return true;
#endif
}

// x (B, Hk, N, D) packed: by features (blocks of 16 rows, D / 2 twins), or by rows (twins of rows, D).
inline at::Tensor packed(const at::Tensor& x, bool by_features) {
  const int64_t heads = x.size(0) * x.size(1), rows = x.size(2), dim = x.size(3), blocks = up(rows) / kSide;
  auto twins = at::empty({heads, blocks, kSide / 2 * dim}, x.options().dtype(at::kInt));
  auto* target = reinterpret_cast<Twin*>(twins.data_ptr<int32_t>());
  at::parallel_for(0, heads * blocks, 16, [&](int64_t begin, int64_t end) {
    Aligned<Half> space(kSide * dim);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t row = n % blocks * kSide, count = std::clamp<int64_t>(rows - row, 0, kSide);
      const Half* block = columns_of<at::BFloat16>(x, n / blocks) + std::min(row, rows) * dim;
      if (by_features) pack_features(block, count, dim, target + n * kSide / 2 * dim, space);
      else pack_rows(block, count, dim, target + n * kSide / 2 * dim);
    }
  });
  return twins;
}

inline Tensors packed(const Tensors& sources, bool by_features) {
  Tensors all;
  for (const at::Tensor& x : sources) all.push_back(packed(x, by_features));
  return all;
}

inline const Twin* of_head(const at::Tensor& twins, int64_t key_head) {
  return reinterpret_cast<const Twin*>(twins.const_data_ptr<int32_t>()) + key_head * twins.stride(0);
}

// Sums of gradients (parts, heads, N / 16, D, 16) of N = `columns`, added, scaled and rounded: (B, Hk, N, D).
inline at::Tensor unpacked(const at::Tensor& sums, const Problem& p, int64_t columns, double scale) {
  const int64_t parts = sums.size(0), blocks = up(columns) / kSide, size = p.dim * kSide;
  auto whole = at::empty({p.batch, p.key_heads, columns, p.dim}, sums.options().dtype(at::kBFloat16));
  const float* source = sums.const_data_ptr<float>();
  const Vec<float> factor(static_cast<float>(scale));
  at::parallel_for(0, p.batch * p.key_heads * blocks, 16, [&](int64_t begin, int64_t end) {
    Aligned<float> sum(size), turned(size);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t row = n % blocks * kSide, count = std::clamp<int64_t>(columns - row, 0, kSide);
      Half* target = whole.data_ptr<Half>() + (n / blocks * columns + row) * p.dim;
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

inline std::tuple<at::Tensor, at::Tensor> forward_bfloat16(const at::Tensor& q, at::TensorList k, at::TensorList v,
                                                           at::TensorList bounds, double scale) {
  TORCH_CHECK_VALUE(bfloat16_units(), "backend: the system does not let this process use AMX");
  const auto queries = padded(q, kUnit);
  const auto wide = padded_sources(k, kUnit), keys = packed(wide, true), values = packed(padded_sources(v, kUnit), false);
  const Problem p(queries, wide, bounds);
  const auto out = at::empty_like(queries);
  const auto lse = at::empty({p.batch, p.heads, p.rows}, q.options().dtype(at::kFloat));
  const int64_t units = at::divup(p.rows, kUnit);
  share_out<UnitForwardSpace>(p.batch * p.heads * units, p.dim, [&](int64_t task, auto& space) {
    const int64_t row = task % units * kUnit, b = task / units / p.heads, head = task / units % p.heads;
    const int64_t first = (b * p.heads + head) * p.rows + row, count = std::min(kUnit, p.rows - row);
    const int64_t key_head = b * p.key_heads + head / p.share();
    const auto columns = each_source(p, [&](size_t source) {
      return PackedForward{of_head(keys[source], key_head), of_head(values[source], key_head)};
    });
    attend(p.intervals(b, head, row, count), count, p.dim, static_cast<float>(scale),
           queries.const_data_ptr<Half>() + first * p.dim, columns,
           out.data_ptr<Half>() + first * p.dim, lse.data_ptr<float>() + first, space);
  });
  return {narrow(out, q.size(3)), lse};
}

inline std::tuple<at::Tensor, Tensors, Tensors> backward_bfloat16(
    const at::Tensor& grad_out, const std::optional<at::Tensor>& grad_lse, const at::Tensor& q, at::TensorList k,
    at::TensorList v, const at::Tensor& out, const at::Tensor& lse, at::TensorList bounds, double scale) {
  auto delta = (grad_out.to(at::kFloat) * out).sum(-1);
  if (grad_lse) delta = delta - *grad_lse;
  delta = delta.contiguous();
  const auto queries = padded(q, kUnit), grads = padded(grad_out, kUnit);
  const auto wide = padded_sources(k, kUnit), keys = packed(wide, true), by_row = packed(wide, false);
  const auto values = packed(padded_sources(v, kUnit), true);
  const auto sums = lse.contiguous();
  const Problem p(queries, wide, bounds);
  const int64_t key_heads = p.batch * p.key_heads, parts = parts_of(p, kUnit);
  const auto grad_q = at::empty_like(queries);
  const auto zeros = [&](size_t source) {
    return at::zeros({parts, p.batch, p.key_heads, up(p.columns[source]) / kSide, p.dim, kSide},
                     q.options().dtype(at::kFloat));
  };
  const auto grad_k = each_source(p, zeros), grad_v = each_source(p, zeros);
  share_out<UnitBackwardSpace>(key_heads * parts, p.dim, [&](int64_t task, auto& space) {
    const int64_t part = task / key_heads, key_head = task % key_heads, b = key_head / p.key_heads;
    const auto columns = each_source(p, [&](size_t source) {
      const int64_t size = up(p.columns[source]) * p.dim;
      return PackedBackward{of_head(keys[source], key_head), of_head(values[source], key_head),
                            of_head(by_row[source], key_head), grad_k[source].data_ptr<float>() + task * size,
                            grad_v[source].data_ptr<float>() + task * size};
    });
    for (int64_t row = part * kUnit; row < p.rows; row += parts * kUnit) {
      const int64_t count = std::min(kUnit, p.rows - row);
      for (int64_t i = 0; i < p.share(); ++i) {
        const int64_t head = key_head % p.key_heads * p.share() + i;
        const int64_t first = (b * p.heads + head) * p.rows + row;
        differentiate(p.intervals(b, head, row, count), count, p.dim, static_cast<float>(scale),
                      queries.const_data_ptr<Half>() + first * p.dim, grads.const_data_ptr<Half>() + first * p.dim,
                      sums.const_data_ptr<float>() + first, delta.const_data_ptr<float>() + first,
                      grad_q.template data_ptr<Half>() + first * p.dim, columns, space);
      }
    }
  });
  const auto whole = [&](const Tensors& sums, double factor) {
    return each_source(p, [&](size_t source) {
      return narrow(unpacked(sums[source], p, p.columns[source], factor), q.size(3));
    });
  };
  return {narrow(grad_q, q.size(3)), whole(grad_k, scale), whole(grad_v, 1)};
}

#else

inline bool bfloat16_units() { return false; }

inline std::tuple<at::Tensor, at::Tensor> forward_bfloat16(const at::Tensor&, at::TensorList, at::TensorList,
                                                           at::TensorList, double) {
  TORCH_CHECK_VALUE(false, "backend: bfloat16 needs a processor with AVX512-BF16");
}

inline std::tuple<at::Tensor, Tensors, Tensors> backward_bfloat16(
    const at::Tensor&, const std::optional<at::Tensor>&, const at::Tensor&, at::TensorList, at::TensorList,
    const at::Tensor&, const at::Tensor&, at::TensorList, double) {
  TORCH_CHECK_VALUE(false, "backend: bfloat16 needs a processor with AVX512-BF16");
}

#endif

}  // namespace cca_lab
