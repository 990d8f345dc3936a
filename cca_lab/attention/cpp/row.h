// Attention of a single row, a decoded token, to columns that lie in several pieces: one softmax over all of them.
#pragma once

#include <ATen/OpMathType.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "gemm.h"
#include "problem.h"

namespace cca_lab {

constexpr int64_t kRowTask = 1024;  // columns of a task
constexpr int64_t kRowTile = 64;    // columns whose logits are kept at a time: their keys and values stay in cache
constexpr int64_t kRowGrain = 1 << 16;  // products that are done in less time than another thread needs to begin

// Keys or values (B, Hp, n, D) as they lie; the features of a vector follow each other.
template <class T>
struct Columns {
  const T* data;
  int64_t batch, head, column;

  explicit Columns(const at::Tensor& x)
      : data(x.const_data_ptr<T>()), batch(x.stride(0)), head(x.stride(1)), column(x.stride(2)) {}
  Columns of(int64_t b, int64_t h, int64_t first) const {
    Columns one = *this;
    one.data += b * batch + h * head + first * column;
    return one;
  }
};

// What one query head has read: its largest logit, and relative to it the sum of weights and of weighted values.
template <class S>
struct Reading {
  S *top, *total, *values;

  Reading(S* memory) : top(memory), total(memory + 1), values(memory + 2) {}
  static int64_t size(int64_t dim) { return dim + 2; }
  void clear(int64_t dim) const { *top = -std::numeric_limits<S>::infinity(), std::fill_n(total, dim + 1, S(0)); }

  // Take the new largest logit; the sums become relative to it.
  void raise(S largest, int64_t dim) const {
    if (!(largest > *top)) return;
    const S factor = std::exp(*top - largest);
    *top = largest;
    if (*total == S(0)) return;
    std::transform(total, total + dim + 1, total, [=](S x) { return x * factor; });
  }
  void add(const Reading& other, int64_t dim) const {
    if (*other.total == S(0)) return;
    raise(*other.top, dim);
    const S factor = std::exp(*other.top - *top);
    std::transform(total, total + dim + 1, other.total, total, [=](S x, S y) { return x + factor * y; });
  }
};

template <class S>
S dot(const S* x, const S* y, int64_t dim) {
  Vec<S> sum(0);
  int64_t d = 0;
  for (; d + kWidth<S> <= dim; d += kWidth<S>) sum = at::vec::fmadd(Vec<S>::loadu(x + d), Vec<S>::loadu(y + d), sum);
  if (d < dim) sum = at::vec::fmadd(Vec<S>::loadu(x + d, dim - d), Vec<S>::loadu(y + d, dim - d), sum);
  return at::vec::vec_reduce_all<S>([](const Vec<S>& a, const Vec<S>& b) { return a + b; }, sum);
}

// sum += weights (n) times VECTORS registers of the columns of y (n, row); the last register has `width` numbers.
template <class S, int VECTORS>
void add_weighted(const S* weights, int64_t n, const S* y, int64_t row, S* sum, int64_t width) {
  Vec<S> total[VECTORS];
  const auto load = [=](const S* x, int i) {
    return i + 1 < VECTORS ? Vec<S>::loadu(x + i * kWidth<S>) : Vec<S>::loadu(x + i * kWidth<S>, width);
  };
#pragma GCC unroll 4
  for (int i = 0; i < VECTORS; ++i) total[i] = load(sum, i);
  for (int64_t j = 0; j < n; ++j) {
    const Vec<S> weight(weights[j]);
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; ++i) total[i] = at::vec::fmadd(weight, load(y + j * row, i), total[i]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < VECTORS; ++i) total[i].store(sum + i * kWidth<S>, i + 1 < VECTORS ? kWidth<S> : width);
}

template <class S>
void add_weighted(const S* weights, int64_t n, const S* y, int64_t row, S* sum, int64_t dim, int64_t d = 0) {
  for (; d + 4 * kWidth<S> <= dim; d += 4 * kWidth<S>)
    add_weighted<S, 4>(weights, n, y + d, row, sum + d, kWidth<S>);
  for (; d < dim; d += kWidth<S>)
    add_weighted<S, 1>(weights, n, y + d, row, sum + d, std::min(kWidth<S>, dim - d));
}

// A tile of columns in the type of the sums: where it lies, or a copy in `space` of a narrower type.
template <class T, class S>
std::pair<const S*, int64_t> widened(const Columns<T>& x, int64_t n, int64_t dim, S* space) {
  if constexpr (std::is_same_v<T, S>) {
    return {x.data, x.column};
  } else {
    for (int64_t j = 0; j < n; ++j) at::vec::convert(x.data + j * x.column, space + j * dim, dim);
    return {space, dim};
  }
}

// Let `heads` queries (heads, D), multiplied by the scale, read n columns. A bias, n numbers `step` apart, is added to
// the logits, which are also written to kept (heads, `row`) if that is given.
template <class T, class S>
void read_columns(const S* q, int64_t heads, int64_t dim, Columns<T> k, Columns<T> v, const S* bias, int64_t step,
                  int64_t n, S* readings, S* kept, int64_t row, S* space) {
  S logits[kRowTile];
  for (int64_t first = 0; first < n; first += kRowTile) {
    const int64_t count = std::min(kRowTile, n - first);
    const auto [keys, key_row] = widened<T, S>(k.of(0, 0, first), count, dim, space);
    const auto [values, value_row] = widened<T, S>(v.of(0, 0, first), count, dim, space + kRowTile * dim);
    for (int64_t h = 0; h < heads; ++h) {
      const Reading<S> reading(readings + h * Reading<S>::size(dim));
      for (int64_t j = 0; j < count; ++j) logits[j] = dot(q + h * dim, keys + j * key_row, dim);
      if (bias) {
        for (int64_t j = 0; j < count; ++j) logits[j] += bias[(first + j) * step];
      }
      if (kept) std::copy(logits, logits + count, kept + h * row + first);
      reading.raise(*std::max_element(logits, logits + count), dim);
      const S top = *reading.top;
      if (top == -std::numeric_limits<S>::infinity()) continue;  // the bias hides all
      at::vec::map<S>([=](Vec<S> x) { return (x - Vec<S>(top)).exp(); }, logits, logits, count);
      *reading.total += std::accumulate(logits, logits + count, S(0));
      add_weighted(logits, count, values, value_row, reading.values, dim);
    }
  }
}

// The arguments, checked: q (B, H, 1, D), and pieces of keys and values (B, Hp, n, D), each with a bias (1 or B, n).
struct RowProblem {
  int64_t batch, heads, dim, groups, columns = 0;  // `groups`: the fewest KV heads of a piece
  Tensors keys, values, biases;

  RowProblem(const at::Tensor& q, at::TensorList k, at::TensorList v, at::TensorList bias)
      : batch(q.size(0)), heads(q.size(1)), dim(q.size(3)), groups(heads) {
    TORCH_CHECK_VALUE(q.dim() == 4 && q.size(2) == 1, "q: got ", q.sizes(), ", wanted (B, H, 1, D)");
    TORCH_CHECK_VALUE(k.size() == v.size() && (bias.empty() || bias.size() == k.size()), "k, v, bias: got ", k.size(),
                      ", ", v.size(), " and ", bias.size(), " pieces, wanted as many of each, or no bias");
    TORCH_CHECK_VALUE(q.is_cpu(), "q: got it on ", q.device(), ", wanted the CPU");
    for (size_t i = 0; i < k.size(); ++i) {
      TORCH_CHECK_VALUE(k[i].is_cpu() && v[i].is_cpu() && k[i].dim() == 4, "k, v: wanted (B, Hp, n, D) on the CPU");
      const int64_t n = k[i].size(2), piece_heads = k[i].size(1);
      TORCH_CHECK_VALUE(k[i].sizes() == v[i].sizes() && k[i].size(0) == batch && k[i].size(3) == dim &&
                            piece_heads > 0 && heads % piece_heads == 0,
                        "k, v: got ", k[i].sizes(), " and ", v[i].sizes(), " for q of ", q.sizes());
      TORCH_CHECK_VALUE(k[i].scalar_type() == q.scalar_type() && v[i].scalar_type() == q.scalar_type(), "k, v: got ",
                        k[i].scalar_type(), " and ", v[i].scalar_type(), " for q of ", q.scalar_type());
      if (n == 0) continue;
      const auto readable = [](const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); };
      keys.push_back(readable(k[i])), values.push_back(readable(v[i]));
      groups = std::min(groups, piece_heads), columns += n;
      if (bias.empty()) continue;
      TORCH_CHECK_VALUE(bias[i].dim() == 2 && bias[i].size(1) == n && (bias[i].size(0) == 1 || bias[i].size(0) == batch),
                        "bias: got ", bias[i].sizes(), ", wanted (1 or ", batch, ", ", n, ")");
      biases.push_back(bias[i].to(at::toOpMathType(q.scalar_type())));
    }
    TORCH_CHECK_VALUE(columns > 0, "k: got no column, wanted at least one");
    for (const at::Tensor& x : keys) TORCH_CHECK_VALUE(x.size(1) % groups == 0, "k: KV heads of pieces do not divide");
  }
};

// One task: a KV head of the piece with the fewest of them reads columns [first, end) of all pieces.
template <class T, class S>
void read_pieces(const RowProblem& p, const S* q, int64_t b, int64_t group, int64_t first, int64_t end, S* readings,
                 S* kept, S* space) {
  const int64_t share = p.heads / p.groups;
  for (int64_t h = 0; h < share; ++h) Reading<S>(readings + h * Reading<S>::size(p.dim)).clear(p.dim);
  int64_t before = 0;  // columns of earlier pieces
  for (size_t i = 0; i < p.keys.size(); before += p.keys[i++].size(2)) {
    const int64_t from = std::max(first - before, int64_t(0)), to = std::min(end - before, p.keys[i].size(2));
    if (from >= to) continue;
    const int64_t rows = p.heads / p.keys[i].size(1);
    const S* bias = nullptr;
    int64_t step = 0;
    if (!p.biases.empty()) {
      step = p.biases[i].stride(1);
      bias = p.biases[i].const_data_ptr<S>() + (p.biases[i].size(0) == 1 ? 0 : b * p.biases[i].stride(0)) + from * step;
    }
    for (int64_t h = 0; h < share; h += rows) {
      const int64_t key_head = (group * share + h) / rows;
      read_columns<T, S>(q + h * p.dim, rows, p.dim, Columns<T>(p.keys[i]).of(b, key_head, from),
                         Columns<T>(p.values[i]).of(b, key_head, from), bias, step, to - from,
                         readings + h * Reading<S>::size(p.dim), kept ? kept + h * p.columns + before + from : nullptr,
                         p.columns, space);
    }
  }
}

// received (B, Hk, N) += the weights of each column, averaged over the query heads of its KV head.
template <class S>
void add_received(const RowProblem& p, const S* readings, int64_t stride, const S* kept, S* received) {
  const int64_t share = p.heads / p.groups;
  for (int64_t head = 0; head < p.batch * p.heads; ++head) {
    const Reading<S> reading(const_cast<S*>(readings) + head / share * stride +
                             head % share * Reading<S>::size(p.dim));
    const S top = *reading.top, part = S(1) / (*reading.total * S(share));
    S* sums = received + head / share * p.columns;
    at::vec::map2<S>([=](Vec<S> sum, Vec<S> x) { return sum + (x - Vec<S>(top)).exp() * Vec<S>(part); }, sums, sums,
                     kept + head * p.columns, p.columns);
  }
}

template <class T>
at::Tensor row_of(const RowProblem& p, const at::Tensor& q, double scale, const std::optional<at::Tensor>& received) {
  using S = at::opmath_type<T>;
  const int64_t tasks = at::divup(p.columns, kRowTask), share = p.heads / p.groups, all = p.batch * p.groups;
  const int64_t size = share * Reading<S>::size(p.dim), each = at::divup(p.columns, tasks);
  std::vector<S> queries(p.batch * p.heads * p.dim), readings(all * tasks * size);
  std::vector<S> kept(received ? p.batch * p.heads * p.columns : 0);
  const at::Tensor contiguous = q.contiguous();
  std::transform(contiguous.const_data_ptr<T>(), contiguous.const_data_ptr<T>() + queries.size(), queries.begin(),
                 [=](T x) { return static_cast<S>(x) * static_cast<S>(scale); });
  const int64_t grain = std::max<int64_t>(1, kRowGrain / (each * share * p.dim));
  at::parallel_for(0, all * tasks, grain, [&](int64_t begin, int64_t stop) {
    std::vector<S> space(std::is_same_v<T, S> ? 0 : 2 * kRowTile * p.dim);
    for (int64_t task = begin; task < stop; ++task) {
      const int64_t head = task / tasks, first = task % tasks * each;
      read_pieces<T, S>(p, &queries[head * share * p.dim], head / p.groups, head % p.groups, first,
                        std::min(first + each, p.columns), &readings[task * size],
                        received ? &kept[head * share * p.columns] : nullptr, space.data());
    }
  });
  const at::Tensor out = at::empty({p.batch, p.heads, 1, p.dim}, q.options());
  T* output = out.data_ptr<T>();
  for (int64_t head = 0; head < all; ++head) {
    for (int64_t h = 0; h < share; ++h, output += p.dim) {
      const auto of = [&](int64_t task) {
        return Reading<S>(&readings[(head * tasks + task) * size + h * Reading<S>::size(p.dim)]);
      };
      const Reading<S> whole = of(0);
      for (int64_t task = 1; task < tasks; ++task) whole.add(of(task), p.dim);
      const S total = *whole.total;
      std::transform(whole.values, whole.values + p.dim, output, [=](S x) { return static_cast<T>(x / total); });
    }
  }
  if (received) add_received<S>(p, readings.data(), tasks * size, kept.data(), received->data_ptr<S>());
  return out;
}

// The output (B, H, 1, D); `received` (B, Hk, N) grows by the attention that each column has from a KV head's queries.
inline at::Tensor row(const at::Tensor& q, at::TensorList k, at::TensorList v, at::TensorList bias, double scale,
                      const std::optional<at::Tensor>& received) {
  const RowProblem p(q, k, v, bias);
  if (received) {
    for (const at::Tensor& x : p.keys) TORCH_CHECK_VALUE(x.size(1) == p.groups, "received: KV heads of pieces differ");
    TORCH_CHECK_VALUE(received->is_contiguous() && received->sizes() == at::IntArrayRef({p.batch, p.groups, p.columns}) &&
                          received->scalar_type() == at::toOpMathType(q.scalar_type()),
                      "received: got ", received->sizes(), ", wanted (B, Hk, N), in at least float32");
  }
  if (q.scalar_type() == at::kBFloat16) return row_of<at::BFloat16>(p, q, scale, received);
  if (q.scalar_type() == at::kHalf) return row_of<at::Half>(p, q, scale, received);
  at::Tensor out;
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "row", [&] { out = row_of<scalar_t>(p, q, scale, received); });
  return out;
}

}  // namespace cca_lab
