// y[n, c, p, q] = sum over r, s of rows.weight[r] columns.weight[s] x[n, c, rows.source[r], columns.source[s]]. An output row
// is made in two steps: the input rows of p are added up, weighed, into one, then that row's columns. Lanes are the
// columns of a plane, or, where the channels lie closer (channels-last), the channels of a pixel.
#include <gradus/backends/openmp/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/scratch.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp;

// The entries of a stencil for one output position, with weights in the type that is computed in.
template <class C>
class Taps {
 public:
  explicit Taps(const Stencil& stencil) : stencil_(stencil), weights_(static_cast<int64_t>(stencil.weight.size())) {
    for (size_t k = 0; k < stencil.weight.size(); ++k)
      weights_[static_cast<int64_t>(k)] = static_cast<C>(stencil.weight[k]);
  }
  int64_t begin(int64_t p) const { return stencil_.begin[static_cast<size_t>(p)]; }
  int64_t end(int64_t p) const { return stencil_.begin[static_cast<size_t>(p) + 1]; }
  int64_t source(int64_t k) const { return stencil_.source[static_cast<size_t>(k)]; }
  C weight(int64_t k) const { return weights_[k]; }
  int64_t count() const { return static_cast<int64_t>(stencil_.weight.size()); }

  /// If every position takes one element as it is.
  bool is_selection() const {
    for (int64_t p = 0; p < stencil_.size_out; ++p)
      if (end(p) - begin(p) != 1 || weight(begin(p)) != C(1)) return false;
    return true;
  }

  /// If every position reads `taps` neighbours with the same weights, `step` further than the one before: pooling.
  bool is_regular(int64_t* taps, int64_t* step) const {
    const int64_t n = stencil_.size_out;
    if (n < 2) return false;
    *taps = end(0) - begin(0), *step = *taps > 0 && end(1) > begin(1) ? source(begin(1)) - source(begin(0)) : 0;
    if (*taps == 0 || *step <= 0) return false;
    for (int64_t p = 0; p < n; ++p) {
      if (end(p) - begin(p) != *taps) return false;
      for (int64_t k = 0; k < *taps; ++k)
        if (source(begin(p) + k) != source(0) + p * *step + k || weight(begin(p) + k) != weight(k)) return false;
    }
    return true;
  }

 private:
  const Stencil& stencil_;
  Scratch<C> weights_;
};

template <class C>
class Resample2d {
 public:
  Resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y)
      : x_(x), y_(y), rows_(rows), columns_(columns), regular_(columns_.is_regular(&taps_, &step_)),
        selection_(columns_.is_selection()) {}

  void run() const {
    const int64_t N = y_.shape[0], K = y_.shape[1], P = y_.shape[2], Q = y_.shape[3], W = x_.shape[3];
    const bool channels = K > 1 && x_.strides[1] < x_.strides[3] && (W > 1 || x_.shape[2] > 1);
    const int64_t row_taps = divide_up(rows_.count(), P);
    if (channels) {
      const int64_t work = K * (row_taps * columns_.count() + Q);
      parallel_for(N * P, divide_up(kGrain, work), [&](int64_t begin, int64_t end) {
        const Scratch<C> buffer(3 * K);
        for (int64_t i = begin; i < end; ++i) pixels(i / P, i % P, buffer.get());
      });
    } else {
      const int64_t work = row_taps * W + columns_.count() + Q;
      parallel_for(N * K * P, divide_up(kGrain, work), [&](int64_t begin, int64_t end) {
        const Scratch<C> buffer(2 * W + Q);
        for (int64_t i = begin; i < end; ++i) row(i / P / K, i / P % K, i % P, buffer.get());
      });
    }
  }

 private:
  // buffer: one row of x converted, the sum of rows, the result.
  void row(int64_t n, int64_t c, int64_t p, C* buffer) const {
    const int64_t W = x_.shape[3], Q = y_.shape[3];
    C *sum = buffer + W, *out = buffer + 2 * W;
    const int64_t plane = n * x_.strides[0] + c * x_.strides[1];
    const C* line = sum;
    std::fill_n(sum, W, C(0));
    for (int64_t r = rows_.begin(p); r < rows_.end(p); ++r) {
      const int64_t at = plane + rows_.source(r) * x_.strides[2];
      const C* from = load_block(x_.data, x_.dtype, at, x_.strides[3], W, buffer);
      const C w = rows_.weight(r);
      if (w == C(1) && rows_.end(p) - rows_.begin(p) == 1) line = from;
      else
        for (int64_t i = 0; i < W; ++i) sum[i] += w * from[i];
    }
    const int64_t to = n * y_.strides[0] + c * y_.strides[1] + p * y_.strides[2], step = y_.strides[3];
    if (y_.dtype == dtype_of<C> && step == 1) out = y_.as<C>() + to;
    if (regular_) {
      const C* from = line + columns_.source(0);
      for (int64_t q = 0; q < Q; ++q) out[q] = columns_.weight(0) * from[q * step_];
      for (int64_t k = 1; k < taps_; ++k)
        for (int64_t q = 0; q < Q; ++q) out[q] += columns_.weight(k) * from[q * step_ + k];
    } else if (selection_) {
      for (int64_t q = 0; q < Q; ++q) out[q] = line[columns_.source(q)];
    } else {
      for (int64_t q = 0; q < Q; ++q) {
        C total = 0;
        for (int64_t s = columns_.begin(q); s < columns_.end(q); ++s)
          total += columns_.weight(s) * line[columns_.source(s)];
        out[q] = total;
      }
    }
    if (out == buffer + 2 * W) store_block(out, y_.data, y_.dtype, to, step, Q);
  }

  // buffer: a pixel of x converted, the sum along a row, the result; all channels at once.
  void pixels(int64_t n, int64_t p, C* buffer) const {
    const int64_t K = y_.shape[1];
    C *along_row = buffer + K, *out = buffer + 2 * K;
    for (int64_t q = 0; q < y_.shape[3]; ++q) {
      std::fill_n(out, K, C(0));
      for (int64_t r = rows_.begin(p); r < rows_.end(p); ++r) {
        std::fill_n(along_row, K, C(0));
        for (int64_t s = columns_.begin(q); s < columns_.end(q); ++s) {
          const int64_t at = n * x_.strides[0] + rows_.source(r) * x_.strides[2] + columns_.source(s) * x_.strides[3];
          const C* from = load_block(x_.data, x_.dtype, at, x_.strides[1], K, buffer);
          const C w = columns_.weight(s);
          for (int64_t c = 0; c < K; ++c) along_row[c] += w * from[c];
        }
        const C w = rows_.weight(r);
        for (int64_t c = 0; c < K; ++c) out[c] += w * along_row[c];
      }
      const int64_t to = n * y_.strides[0] + p * y_.strides[2] + q * y_.strides[3];
      store_block(out, y_.data, y_.dtype, to, y_.strides[1], K);
    }
  }

  const View& x_;
  const MutableView& y_;
  const Taps<C> rows_, columns_;
  int64_t taps_ = 0, step_ = 0;
  const bool regular_, selection_;
};

}  // namespace

void OpenmpBackend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  EventScope event("resample2d", "openmp", "loops", {&x, &y}, 2 * y.numel());
  if (y.numel() == 0) return;
  visit_compute(y.dtype, [&]<class C> {
    if constexpr (std::is_floating_point_v<C>) Resample2d<C>(x, rows, columns, y).run();
  });
}

}  // namespace gradus
