// Pooling of groups of tokens with softmax weights into one core token per KV head, in one pass and without a gradient.
#pragma once

#include <optional>
#include <tuple>

#include "row.h"

namespace cca_lab {

// Rotary tables (1 or B, L, D) in the type of the sums.
template <class S>
struct Table {
  at::Tensor x;

  Table(const at::Tensor& table) : x(table.to(c10::CppTypeToScalarType<S>::value).contiguous()) {}
  const S* of(int64_t b, int64_t token) const {
    return x.const_data_ptr<S>() + (x.size(0) == 1 ? 0 : b * x.stride(0)) + token * x.stride(1);
  }
};

// Re-rotate a key from its own position to another: multiply it by e_middle / e_here, e = cos + i sin.
template <class T, class S>
void turn_key(const S* key, int64_t dim, const S* cos, const S* sin, const S* middle_cos, const S* middle_sin, S* turned) {
  for (int64_t d = 0; d < dim; ++d) {
    const S norm = cos[d] * cos[d] + sin[d] * sin[d];
    const S real = (middle_cos[d] * cos[d] + middle_sin[d] * sin[d]) / norm;
    const S imaginary = (middle_sin[d] * cos[d] - middle_cos[d] * sin[d]) / norm;
    const S other = d < dim / 2 ? -key[d + dim / 2] : key[d - dim / 2];
    turned[d] = static_cast<S>(static_cast<T>(key[d] * real + other * imaginary));  // keys are stored in T
  }
}

template <class T>
void pool_groups(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t group, double scale,
                 const std::optional<at::Tensor>& cos_table, const std::optional<at::Tensor>& sin_table,
                 const at::Tensor& core_k, const at::Tensor& core_v) {
  using S = at::opmath_type<T>;
  const int64_t key_heads = k.size(1), share = q.size(1) / key_heads, dim = k.size(3), count = core_k.size(2);
  const Columns<T> queries(q), keys(k), values(v);
  std::optional<Table<S>> cos, sin;
  if (cos_table) cos.emplace(*cos_table), sin.emplace(*sin_table);
  at::parallel_for(0, k.size(0) * key_heads * count, at::divup(kRowGrain, group * dim * 8), [&](int64_t begin, int64_t end) {
    std::vector<S> query(dim), rows(group * dim), space(dim), weights(group);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t p = task % count, head = task / count % key_heads, b = task / count / key_heads, first = p * group;
      std::fill(query.begin(), query.end(), S(0));  // the mean of the logits is the logit of the mean query
      for (int64_t h = head * share; h < (head + 1) * share; ++h) {
        const T* last = queries.of(b, h, first + group - 1).data;
        for (int64_t d = 0; d < dim; ++d) query[d] += static_cast<S>(last[d]) * static_cast<S>(scale / share);
      }
      const auto sum = [&](const auto* x, int64_t row, const at::Tensor& core) {
        std::fill(space.begin(), space.end(), S(0));
        add_values<1>(weights.data(), 0, group, x, row, dim, space.data(), 0);
        std::transform(space.begin(), space.end(), core.data_ptr<T>() + task * dim, [](S x) { return static_cast<T>(x); });
      };
      const auto members = keys.of(b, head, first);
      for (int64_t t = 0; t < group; ++t) {
        at::vec::convert(members.data + t * members.column, &rows[t * dim], dim);
        dots<1>(query.data(), &rows[t * dim], dim, &weights[t], 0);
      }
      const S top = *std::max_element(weights.begin(), weights.end());
      std::transform(weights.begin(), weights.end(), weights.begin(), [=](S x) { return std::exp(x - top); });
      const S total = std::accumulate(weights.begin(), weights.end(), S(0));
      std::transform(weights.begin(), weights.end(), weights.begin(), [=](S x) { return x / total; });
      if (cos) {
        const int64_t middle = first + group / 2;
        for (int64_t t = 0; t < group; ++t) {
          turn_key<T, S>(&rows[t * dim], dim, cos->of(b, first + t), sin->of(b, first + t), cos->of(b, middle),
                         sin->of(b, middle), space.data());
          std::copy(space.begin(), space.end(), &rows[t * dim]);
        }
      }
      sum(rows.data(), dim, core_k);
      sum(values.of(b, head, first).data, values.column, core_v);
    }
  });
}

// Core keys and values (B, Hk, M, D) of the first M groups of q (B, H, L, D), k and v (B, Hk, L, D); keys turn to their
// group's middle where tables (1 or B, L, D) are given.
inline std::tuple<at::Tensor, at::Tensor> pool(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                               int64_t group, int64_t count, double scale,
                                               const std::optional<at::Tensor>& cos,
                                               const std::optional<at::Tensor>& sin) {
  const int64_t tokens = group * count;
  const auto fits = [&](const at::Tensor& x) {
    return x.dim() == 4 && x.is_cpu() && x.scalar_type() == k.scalar_type() && x.size(0) == k.size(0) &&
           x.size(2) >= tokens && x.size(3) == k.size(3);
  };
  TORCH_CHECK_VALUE(group > 0 && fits(q) && fits(k) && fits(v) && k.size(1) == v.size(1) && q.size(1) % k.size(1) == 0,
                    "q, k, v: got ", q.sizes(), ", ", k.sizes(), " and ", v.sizes(), " for ", count, " groups of ", group);
  for (const auto* table : {&cos, &sin})
    TORCH_CHECK_VALUE(cos.has_value() == table->has_value() &&
                          (!*table || ((*table)->dim() == 3 && (*table)->size(1) >= tokens &&
                                       (*table)->size(2) == k.size(3) && k.size(3) % 2 == 0 &&
                                       ((*table)->size(0) == 1 || (*table)->size(0) == k.size(0)))),
                      "rotation: got tables that do not fit ", k.sizes());
  const auto readable = [](const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); };
  const auto core_k = at::empty({k.size(0), k.size(1), count, k.size(3)}, k.options()), core_v = at::empty_like(core_k);
  const auto of = [&](auto zero) {
    pool_groups<decltype(zero)>(readable(q), readable(k), readable(v), group, scale, cos, sin, core_k, core_v);
  };
  if (k.scalar_type() == at::kBFloat16) of(at::BFloat16());
  else if (k.scalar_type() == at::kHalf) of(at::Half());
  else AT_DISPATCH_FLOATING_TYPES(k.scalar_type(), "pool", [&] { of(scalar_t()); });
  return {core_k, core_v};
}

}  // namespace cca_lab
