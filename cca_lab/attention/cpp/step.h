// A decoded token in one call: it attends as row.h does, and becomes the last of the entries that are stored.
#pragma once

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "row.h"

namespace cca_lab {

// Which entries, of those stored and the new one behind them, leave each head.
using Leaving = std::vector<std::pair<int64_t, int64_t>>;

// Entries of `size` bytes without those that leave.
inline char* copy_without(const std::pair<int64_t, int64_t>& range, const char* entries, int64_t count, int64_t size,
                          char* out) {
  out = std::copy(entries, entries + std::min(range.first, count) * size, out);
  return std::copy(entries + std::min(range.second, count) * size, entries + count * size, out);
}

// x (B, Hp, n, D) and the new entry of each of some KV heads, from next (B, Hk, 1, D), without those that leave, which
// are equally many in each of the heads.
inline at::Tensor grown(const at::Tensor& entries, const at::Tensor& next, const std::vector<int64_t>& heads,
                        const Leaving& leaving) {
  const at::Tensor x = entries.contiguous(), y = next.contiguous();
  TORCH_CHECK_VALUE(x.is_cpu() && y.is_cpu() && x.dim() == 4 && y.dim() == 4 && x.size(0) == y.size(0) &&
                        x.size(1) == int64_t(heads.size()) && y.size(2) == 1 && x.size(3) == y.size(3) &&
                        x.scalar_type() == y.scalar_type(), "new entries: got ", y.sizes(), " for ", x.sizes());
  const int64_t n = x.size(2), size = x.size(3) * x.element_size(), batch = x.size(0), all_heads = y.size(1);
  const auto [begin, end] = leaving[heads[0]];
  TORCH_CHECK_VALUE(0 <= begin && begin <= end, "entries that leave: got ", begin, " to ", end);
  const int64_t left = n + 1 - (std::min(end, n + 1) - std::min(begin, n + 1));
  const at::Tensor all = at::empty({batch, x.size(1), left, x.size(3)}, x.options());
  const auto *old = static_cast<const char*>(x.const_data_ptr()), *added = static_cast<const char*>(y.const_data_ptr());
  auto* out = static_cast<char*>(all.data_ptr());
  for (int64_t b = 0; b < batch; ++b) {
    for (const int64_t head : heads) {
      const auto& range = leaving[b * all_heads + head];
      out = copy_without(range, old, n, size, out);
      const char* own = added + (b * all_heads + head) * size;
      if (range.second <= n || n < range.first) out = std::copy(own, own + size, out);
      old += n * size;
    }
  }
  return all;
}

// Each of `past` (B, H, n, D) without the entries from `begin` to before `end`, then that of `next` (B, H, 1, D).
inline Tensors slide(at::TensorList past, at::TensorList next, int64_t begin, int64_t end) {
  Tensors all;
  for (size_t i = 0; i < past.size(); ++i) {
    std::vector<int64_t> heads(next[i].size(1));
    std::iota(heads.begin(), heads.end(), 0);
    all.push_back(grown(past[i], next[i], heads, Leaving(next[i].size(0) * heads.size(), {begin, end})));
  }
  return all;
}

// What each head has received, without the entry in its range that has received least: that alone leaves.
inline at::Tensor without_least(const at::Tensor& received, Leaving& leaving) {
  const int64_t n = received.size(2), less = leaving[0].first < leaving[0].second;
  TORCH_CHECK_VALUE(0 <= leaving[0].first && leaving[0].second <= n, "drop: got an end after ", n, " entries");
  const at::Tensor all = at::empty({received.size(0), received.size(1), n - less}, received.options());
  AT_DISPATCH_FLOATING_TYPES(received.scalar_type(), "step", [&] {
    const auto* sums = received.const_data_ptr<scalar_t>();
    auto* out = static_cast<char*>(all.data_ptr());
    for (auto& range : leaving) {
      if (less) range.first = std::min_element(sums + range.first, sums + range.second) - sums;
      if (less) range.second = range.first + 1;
      out = copy_without(range, reinterpret_cast<const char*>(sums), n, sizeof(scalar_t), out);
      sums += n;
    }
  });
  return all;
}

// The attention of a new token, whose key and value are (B, Hk, 1, D), to the pieces and itself; then the last keys and
// values of each part with the new ones, without the entries from drop[2 part] to before drop[2 part + 1]. `owner` is the
// part of each KV head, and `part` that of each piece. If `received` (B, Hk, n) is given, one of these entries leaves,
// that which has now received least, and the sums of the others follow the keys and values.
inline std::tuple<at::Tensor, Tensors> step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            at::TensorList keys, at::TensorList values, at::TensorList bias,
                                            at::IntArrayRef part, at::IntArrayRef owner, at::IntArrayRef drop,
                                            double scale, const std::optional<at::Tensor>& received) {
  TORCH_CHECK_VALUE(part.size() == keys.size() && (!received || part.size() == 1), "part: got ", part, " for ",
                    keys.size(), " pieces");
  RowProblem p(q, k.size(1), owner);
  p.add(keys, values, bias, part);
  p.add(k, v, at::Tensor(), -1);
  std::optional<at::Tensor> sums;
  if (received) sums = at::constant_pad_nd(*received, {0, 1});
  const at::Tensor out = attend(p, q, scale, sums);
  TORCH_CHECK_VALUE(drop.size() == 2 * p.sizes.size(), "drop: got ", drop, " for ", p.sizes.size(), " parts");
  Leaving leaving;
  for (int64_t head = 0; head < p.batch * p.groups; ++head) {
    const int64_t* range = &drop[2 * p.owner[head % p.groups]];
    leaving.emplace_back(range[0], range[1]);
  }
  if (sums) sums = without_least(*sums, leaving);
  Tensors all;
  for (int64_t i = 0; i < int64_t(p.sizes.size()); ++i) {
    std::vector<int64_t> heads;
    for (int64_t group = 0; group < p.groups; ++group)
      if (p.owner[group] == i) heads.push_back(group);
    const auto last = std::find(part.rbegin(), part.rend(), i);
    TORCH_CHECK_VALUE(last != part.rend() && !heads.empty(), "part, owner: got ", part, " and ", owner);
    const size_t piece = part.rend() - last - 1;
    all.push_back(grown(keys[piece], k, heads, leaving));
    all.push_back(grown(values[piece], v, heads, leaving));
  }
  if (sums) all.push_back(*sums);
  return {out, all};
}

}  // namespace cca_lab
