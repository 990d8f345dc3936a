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
constexpr int64_t kRowTile = 256;   // columns whose logits are kept at a time
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

// Up to a register of numbers in the type of the sums; those that lack are 0.
template <class S, class T>
Vec<S> widened(const T* x, int64_t count = kWidth<S>) {
  if constexpr (std::is_same_v<T, S>) {
    return Vec<S>::loadu(x, count);
  } else if (count < kWidth<S>) {
    S wide[kWidth<S>] = {};
    at::vec::convert(x, wide, count);
    return Vec<S>::loadu(wide);
  } else {
    Vec<S> wide;
    if constexpr (std::is_same_v<T, at::BFloat16>) at::vec::load_fp32_from_bf16(x, wide);
    else at::vec::load_fp32_from_fp16(x, wide);
    return wide;
  }
}

// The logits of HEADS queries (HEADS, dim) with a key, `step` apart.
template <int HEADS, class S, class T>
void dots(const S* q, const T* key, int64_t dim, S* logits, int64_t step) {
  Vec<S> sum[HEADS];
#pragma GCC unroll 4
  for (int h = 0; h < HEADS; ++h) sum[h] = Vec<S>(0);
  const auto add = [&](int64_t d, int64_t count) {
    const Vec<S> right = widened<S>(key + d, count);
#pragma GCC unroll 4
    for (int h = 0; h < HEADS; ++h) sum[h] = at::vec::fmadd(Vec<S>::loadu(q + h * dim + d, count), right, sum[h]);
  };
  int64_t d = 0;
  for (; d + kWidth<S> <= dim; d += kWidth<S>) add(d, kWidth<S>);
  if (d < dim) add(d, dim - d);
#pragma GCC unroll 4
  for (int h = 0; h < HEADS; ++h)
    logits[h * step] = at::vec::vec_reduce_all<S>([](const Vec<S>& a, const Vec<S>& b) { return a + b; }, sum[h]);
}

// The sums of each head, `next` apart, += its n weights, `step` apart, times VECTORS registers of the columns of y
// (n, row). The last register has `width` numbers.
template <int HEADS, int VECTORS, class S, class T>
void add_weighted(const S* weights, int64_t step, int64_t n, const T* y, int64_t row, S* sums, int64_t next, int64_t width) {
  Vec<S> total[HEADS][VECTORS], right[VECTORS];
  const auto count = [=](int i) { return i + 1 < VECTORS ? kWidth<S> : width; };
#pragma GCC unroll 4
  for (int h = 0; h < HEADS; ++h) {
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; ++i) total[h][i] = Vec<S>::loadu(sums + h * next + i * kWidth<S>, count(i));
  }
  for (int64_t j = 0; j < n; ++j) {
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; ++i) right[i] = widened<S>(y + j * row + i * kWidth<S>, count(i));
#pragma GCC unroll 4
    for (int h = 0; h < HEADS; ++h) {
      const Vec<S> weight(weights[h * step + j]);
#pragma GCC unroll 4
      for (int i = 0; i < VECTORS; ++i) total[h][i] = at::vec::fmadd(weight, right[i], total[h][i]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < HEADS; ++h) {
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; ++i) total[h][i].store(sums + h * next + i * kWidth<S>, count(i));
  }
}

// The same for all columns of y (n, dim).
template <int HEADS, class S, class T>
void add_values(const S* weights, int64_t step, int64_t n, const T* y, int64_t row, int64_t dim, S* sums, int64_t next) {
  constexpr int64_t span = kMostVectors * kWidth<S>;
  int64_t d = 0;
  for (; d + span <= dim; d += span)
    add_weighted<HEADS, kMostVectors>(weights, step, n, y + d, row, sums + d, next, kWidth<S>);
  for (; d < dim; d += kWidth<S>)
    add_weighted<HEADS, 1>(weights, step, n, y + d, row, sums + d, next, std::min(kWidth<S>, dim - d));
}

// What `heads` queries (heads, dim), multiplied by the scale, read: n columns of one KV head. A bias, numbers `step`
// apart, is added to the logits, which are also written to kept (heads, `row`) if that is given.
template <class T, class S>
struct Piece {
  Columns<T> k, v;
  int64_t n, dim, step, row;
  const S* bias;
  S* kept;

  template <int HEADS = 4>
  void read(const S* q, int64_t heads, S* readings, int64_t head = 0) const {
    for (; head + HEADS <= heads; head += HEADS) read_heads<HEADS>(q, readings, head);
    if constexpr (HEADS > 1) read<HEADS / 2>(q, heads, readings, head);
  }

  template <int HEADS>
  void read_heads(const S* q, S* readings, int64_t head) const {
    S logits[HEADS * kRowTile];
    const int64_t size = Reading<S>::size(dim);
    for (int64_t first = 0; first < n; first += kRowTile) {
      const int64_t count = std::min(kRowTile, n - first);
      for (int64_t j = 0; j < count; ++j)
        dots<HEADS>(q + head * dim, k.data + (first + j) * k.column, dim, logits + j, kRowTile);
      for (int64_t h = 0; h < HEADS; ++h) {
        S* own = logits + h * kRowTile;
        if (bias) {
          for (int64_t j = 0; j < count; ++j) own[j] += bias[(first + j) * step];
        }
        if (kept) std::copy(own, own + count, kept + (head + h) * row + first);
        const Reading<S> reading(readings + (head + h) * size);
        reading.raise(*std::max_element(own, own + count), dim);
        // the bias may hide all
        const S top = *reading.top == -std::numeric_limits<S>::infinity() ? S(0) : *reading.top;
        at::vec::map<S>([=](Vec<S> x) { return (x - Vec<S>(top)).exp(); }, own, own, count);
        *reading.total += std::accumulate(own, own + count, S(0));
      }
      add_values<HEADS>(logits, kRowTile, count, v.data + first * v.column, v.column, dim,
                        Reading<S>(readings + head * size).values, size);
    }
  }
};

// Keys and values (B, Hp, n, D), with a bias (1 or B, n) or none, that the KV heads of one part read; all, if it is -1.
struct RowPiece {
  at::Tensor key, value, bias;
  int64_t part;
};

// The arguments, checked: q (B, H, 1, D), and pieces, at least one of them with a column for each KV head.
struct RowProblem {
  int64_t batch, heads, dim, groups, columns = 0;  // `groups`: KV heads; `columns`: the most that one of them reads
  std::vector<int64_t> owner, place, sizes;  // of each KV head its part and its number there, of each part its KV heads
  std::vector<RowPiece> pieces;
  at::ScalarType dtype;

  RowProblem(const at::Tensor& q, int64_t groups, at::IntArrayRef owner = {})
      : batch(q.size(0)), heads(q.size(1)), dim(q.size(3)), groups(groups), owner(owner.vec()), dtype(q.scalar_type()) {
    TORCH_CHECK_VALUE(q.dim() == 4 && q.size(2) == 1, "q: got ", q.sizes(), ", wanted (B, H, 1, D)");
    TORCH_CHECK_VALUE(q.is_cpu(), "q: got it on ", q.device(), ", wanted the CPU");
    if (owner.empty()) this->owner.assign(groups, 0);
    TORCH_CHECK_VALUE(groups > 0 && heads % groups == 0 && int64_t(this->owner.size()) == groups, "owner: got ", owner,
                      " for ", groups, " KV heads of ", heads);
    for (const int64_t part : this->owner) {
      TORCH_CHECK_VALUE(part >= 0 && part < groups, "owner: got ", owner);
      sizes.resize(std::max<size_t>(sizes.size(), part + 1));
      place.push_back(sizes[part]++);
    }
  }

  int64_t share() const { return heads / groups; }
  bool reads(int64_t group, const RowPiece& piece) const { return piece.part < 0 || piece.part == owner[group]; }
  int64_t columns_of(int64_t group) const {
    int64_t count = 0;
    for (const RowPiece& piece : pieces) count += reads(group, piece) ? piece.key.size(2) : 0;
    return count;
  }

  void add(const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias, int64_t part) {
    TORCH_CHECK_VALUE(-1 <= part && part < int64_t(sizes.size()), "part: got ", part, " of ", sizes.size());
    const int64_t all = part < 0 ? groups : sizes[part];
    TORCH_CHECK_VALUE(k.is_cpu() && v.is_cpu() && k.dim() == 4, "k, v: wanted (B, Hp, n, D) on the CPU");
    TORCH_CHECK_VALUE(k.sizes() == v.sizes() && k.size(0) == batch && k.size(3) == dim && k.size(1) > 0 &&
                          k.size(1) % all == 0 && all * share() % k.size(1) == 0,
                      "k, v: got ", k.sizes(), " and ", v.sizes(), " for ", all * share(), " query heads of q");
    TORCH_CHECK_VALUE(k.scalar_type() == dtype && v.scalar_type() == dtype, "k, v: got ", k.scalar_type(), " and ",
                      v.scalar_type(), " for q of ", dtype);
    if (k.size(2) == 0) return;
    TORCH_CHECK_VALUE(!bias.defined() || (bias.dim() == 2 && bias.size(1) == k.size(2) &&
                                          (bias.size(0) == 1 || bias.size(0) == batch)),
                      "bias: got ", bias.sizes(), ", wanted (1 or ", batch, ", ", k.size(2), ")");
    const auto readable = [](const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); };
    pieces.push_back({readable(k), readable(v), bias.defined() ? bias.to(at::toOpMathType(dtype)) : bias, part});
  }

  void add(at::TensorList k, at::TensorList v, at::TensorList bias, at::IntArrayRef part) {
    TORCH_CHECK_VALUE(k.size() == v.size() && (bias.empty() || bias.size() == k.size()), "k, v, bias: got ", k.size(),
                      ", ", v.size(), " and ", bias.size(), " pieces, wanted as many of each, or no bias");
    for (size_t i = 0; i < k.size(); ++i) add(k[i], v[i], bias.empty() ? at::Tensor() : bias[i], part[i]);
  }

  void count() {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t own = columns_of(group);
      TORCH_CHECK_VALUE(own > 0, "k: got no column, wanted at least one");
      columns = std::max(columns, own);
    }
  }
};

// One task: a KV head's queries read columns [first, end) of its pieces.
template <class T, class S>
void read_pieces(const RowProblem& p, const S* q, int64_t b, int64_t group, int64_t first, int64_t end, S* readings,
                 S* kept) {
  const int64_t share = p.share();
  for (int64_t h = 0; h < share; ++h) Reading<S>(readings + h * Reading<S>::size(p.dim)).clear(p.dim);
  int64_t before = 0;  // columns of earlier pieces
  for (const RowPiece& x : p.pieces) {
    if (!p.reads(group, x)) continue;
    const int64_t n = x.key.size(2), from = std::max(first - before, int64_t(0)), to = std::min(end - before, n);
    before += n;
    if (from >= to) continue;
    const int64_t place = x.part < 0 ? group : p.place[group];
    const int64_t rows = (x.part < 0 ? p.groups : p.sizes[x.part]) * share / x.key.size(1);
    const S* bias = nullptr;
    int64_t step = 0;
    if (x.bias.defined()) {
      step = x.bias.stride(1);
      bias = x.bias.const_data_ptr<S>() + (x.bias.size(0) == 1 ? 0 : b * x.bias.stride(0)) + from * step;
    }
    for (int64_t h = 0; h < share; h += rows) {
      const int64_t key_head = (place * share + h) / rows;
      const Piece<T, S> piece{Columns<T>(x.key).of(b, key_head, from), Columns<T>(x.value).of(b, key_head, from),
                              to - from, p.dim, step, p.columns, bias,
                              kept ? kept + h * p.columns + before - n + from : nullptr};
      piece.read(q + h * p.dim, rows, readings + h * Reading<S>::size(p.dim));
    }
  }
}

// received (B, Hk, N) += the weights of each column, averaged over the query heads of its KV head.
template <class S>
void add_received(const RowProblem& p, const S* readings, int64_t stride, const S* kept, S* received) {
  const int64_t share = p.share();
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
  const int64_t tasks = at::divup(p.columns, kRowTask), share = p.share(), all = p.batch * p.groups;
  const int64_t size = share * Reading<S>::size(p.dim), each = at::divup(p.columns, tasks);
  std::vector<S> queries(p.batch * p.heads * p.dim), readings(all * tasks * size);
  std::vector<S> kept(received ? p.batch * p.heads * p.columns : 0);
  const at::Tensor contiguous = q.contiguous();
  std::transform(contiguous.const_data_ptr<T>(), contiguous.const_data_ptr<T>() + queries.size(), queries.begin(),
                 [=](T x) { return static_cast<S>(x) * static_cast<S>(scale); });
  const int64_t grain = std::max<int64_t>(1, kRowGrain / (each * share * p.dim));
  at::parallel_for(0, all * tasks, grain, [&](int64_t begin, int64_t stop) {
    for (int64_t task = begin; task < stop; ++task) {
      const int64_t head = task / tasks, first = task % tasks * each;
      read_pieces<T, S>(p, &queries[head * share * p.dim], head / p.groups, head % p.groups, first,
                        std::min(first + each, p.columns), &readings[task * size],
                        received ? &kept[head * share * p.columns] : nullptr);
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
inline at::Tensor attend(RowProblem& p, const at::Tensor& q, double scale, const std::optional<at::Tensor>& received) {
  p.count();
  if (received) {
    for (const RowPiece& x : p.pieces)
      TORCH_CHECK_VALUE(x.key.size(1) == p.groups, "received: KV heads of pieces differ");
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

// The attention of a row to all pieces.
inline at::Tensor row(const at::Tensor& q, at::TensorList k, at::TensorList v, at::TensorList bias, double scale) {
  int64_t groups = q.size(1);
  for (const at::Tensor& x : k) groups = x.numel() ? std::min(groups, x.size(1)) : groups;
  RowProblem p(q, groups);
  p.add(k, v, bias, std::vector<int64_t>(k.size(), -1));
  return attend(p, q, scale, std::nullopt);
}

}  // namespace cca_lab
