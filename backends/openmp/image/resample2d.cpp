// y[n, c, p, q] = sum over r, s of rows.weight[r] columns.weight[s] x[n, c, rows.source[r], columns.source[s]]. Lanes
// are the columns of a plane: the input rows of p are added up, weighed, into one, then that row's columns. Where the
// channels are closer (channels-last), lanes are the channels of a pixel. A row that takes what the one before took is
// copied from it.
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/windows.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// The entries of a stencil for each output position, with weights in the type that is computed in.
template <class C>
class Taps {
 public:
  explicit Taps(const Stencil& stencil) : stencil_(stencil), weights_(static_cast<int64_t>(stencil.weight.size())) {
    for (size_t k = 0; k < stencil.weight.size(); ++k)
      weights_[static_cast<int64_t>(k)] = static_cast<C>(stencil.weight[k]);
    for (int64_t p = 0; p < stencil.size_out; ++p) most_ = std::max(most_, size(p));
  }
  int64_t begin(int64_t p) const { return stencil_.begin[static_cast<size_t>(p)]; }
  int64_t end(int64_t p) const { return stencil_.begin[static_cast<size_t>(p) + 1]; }
  int64_t size(int64_t p) const { return end(p) - begin(p); }
  int64_t source(int64_t k) const { return stencil_.source[static_cast<size_t>(k)]; }
  C weight(int64_t k) const { return weights_[k]; }
  const C* weights(int64_t p) const { return weights_.get() + begin(p); }
  int64_t count() const { return static_cast<int64_t>(stencil_.weight.size()); }
  int64_t positions() const { return stencil_.size_out; }
  int64_t size_in() const { return stencil_.size_in; }
  /// Entries of a position, at most.
  int64_t most() const { return most_; }

  /// If position p takes one element as it is.
  bool selects(int64_t p) const { return size(p) == 1 && weight(begin(p)) == C(1); }
  /// If it takes what the one before it takes.
  bool repeats(int64_t p) const {
    if (p == 0 || size(p) != size(p - 1)) return false;
    for (int64_t i = 0; i < size(p); ++i) {
      const int64_t here = begin(p) + i, before = begin(p - 1) + i;
      if (source(here) != source(before) || weight(here) != weight(before)) return false;
    }
    return true;
  }
  /// If every position reads `most()` neighbours with the same weights, `step` further than the one before: pooling.
  bool is_regular(int64_t* step) const {
    *step = positions() > 1 && size(0) > 0 && size(1) > 0 ? source(begin(1)) - source(begin(0)) : 1;
    if (most_ == 0 || *step <= 0) return false;
    for (int64_t p = 0; p < positions(); ++p) {
      if (size(p) != most_) return false;
      for (int64_t k = 0; k < most_; ++k)
        if (source(begin(p) + k) != source(0) + p * *step + k || weight(begin(p) + k) != weight(k)) return false;
    }
    return true;
  }
  /// If every element of the input is taken twice, with one weight: enlarging by two.
  bool doubles() const {
    for (int64_t p = 0; p < positions(); ++p)
      if (size(p) != 1 || source(begin(p)) != p / 2 || weight(begin(p)) != weight(0)) return false;
    return true;
  }
  /// If the one position is the sum of all elements times a number.
  bool is_mean() const {
    if (positions() != 1 || size(0) != size_in() || size_in() == 0) return false;
    for (int64_t k = 0; k < size(0); ++k)
      if (source(k) != k || weight(k) != weight(0)) return false;
    return true;
  }
  /// If every position is the one element times a number: the gradient of a mean.
  bool is_spread() const {
    for (int64_t p = 0; p < positions(); ++p)
      if (size(p) != 1 || weight(p) != weight(0)) return false;
    return size_in() == 1;
  }

 private:
  const Stencil& stencil_;
  Scratch<C> weights_;
  int64_t most_ = 0;
};

// How a row's columns are computed, by the pattern of their taps.
template <class C>
class Columns {
 public:
  Columns(const Kernels<C>& kernels, const Taps<C>& taps) : kernels_(kernels), taps_(taps) {
    const int64_t count = taps.positions(), lanes = kernels.vector_size;
    if (taps.is_regular(&step_) && step_ <= 2 && count > 1) {
      how_ = step_ == 1 && taps.most() == 1 && taps.selects(0) && taps.source(0) == 0 ? How::as_is : How::pool;
    } else if (taps.doubles()) {
      how_ = How::repeat;
    } else if (2 * count >= lanes || taps.most() <= 2) {
      how_ = How::gather;
      bool selection = true;
      for (int64_t q = 0; q < count; ++q) selection = selection && taps.selects(q);
      pitch_ = round_up(count, lanes);
      sources_.assign(static_cast<size_t>(pitch_ * taps.most()), -1);
      if (!selection) weights_.assign(sources_.size(), C(0));
      for (int64_t q = 0; q < count; ++q)
        for (int64_t k = 0; k < taps.size(q); ++k) {
          const auto at = static_cast<size_t>(k * pitch_ + q);
          sources_[at] = static_cast<Source>(taps.source(taps.begin(q) + k));
          if (!selection) weights_[at] = taps.weight(taps.begin(q) + k);
        }
    }
  }

  /// If a row's columns are the row.
  bool as_is() const { return how_ == How::as_is; }

  void run(const C* line, C* out) const {
    const int64_t count = taps_.positions();
    switch (how_) {
      case How::as_is: std::copy_n(line, count, out); break;
      case How::pool:
        kernels_.pool_columns(line + taps_.source(0), step_, taps_.most(), taps_.weights(0), out, count);
        break;
      case How::repeat: kernels_.repeat_columns(line, taps_.weight(0), out, count); break;
      case How::gather:
        kernels_.gather_columns({.columns = count,
                                 .taps = taps_.most(),
                                 .pitch = pitch_,
                                 .sources = sources_.data(),
                                 .weights = weights_.empty() ? nullptr : weights_.data(),
                                 .x = line,
                                 .y = out});
        break;
      case How::one_by_one:
        for (int64_t q = 0; q < count; ++q) {
          C total = 0;
          for (int64_t k = taps_.begin(q); k < taps_.end(q); ++k) total += taps_.weight(k) * line[taps_.source(k)];
          out[q] = total;
        }
    }
  }

 private:
  using Source = typename GatherArgs<C>::Source;
  enum class How { as_is, pool, repeat, gather, one_by_one };

  const Kernels<C>& kernels_;
  const Taps<C>& taps_;
  How how_ = How::one_by_one;
  int64_t step_ = 1, pitch_ = 0;
  std::vector<Source> sources_;
  std::vector<C> weights_;
};

template <class C>
class Resample2d {
 public:
  Resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y)
      : kernels_(kernels_of<C>(kernel_table())), x_(x), y_(y), rows_(rows), columns_(columns),
        across_(kernels_, columns_), row_offsets_(rows_.count()) {
    for (int64_t k = 0; k < rows_.count(); ++k) row_offsets_[k] = rows_.source(k) * x.strides[2];
  }

  void run() const {
    const int64_t N = y_.shape[0], K = y_.shape[1], P = y_.shape[2], Q = y_.shape[3], H = x_.shape[2], W = x_.shape[3];
    const StridedLayout& image = W > 1 || H > 1 ? static_cast<const StridedLayout&>(x_) : y_;
    const bool channels = K > 1 && image.strides[1] < image.strides[3] && (image.shape[2] > 1 || image.shape[3] > 1);
    const bool typed = x_.dtype == dtype_of<C> && y_.dtype == dtype_of<C>;
    const int64_t row_taps = ceil_div(rows_.count(), P);
    if (channels) {
      const int64_t work = K * (row_taps * columns_.count() + Q);
      parallel_for(N * P, ceil_div(kGrain, work), [&](int64_t begin, int64_t end) {
        PixelBuffers buffers(*this);
        for (int64_t i = begin; i < end; ++i) row_of_pixels(i / P, i % P, i > begin, buffers);
      });
    } else if (typed && rows_.is_mean() && columns_.is_mean() && has_dense_planes(x_)) {
      parallel_for(N * K, ceil_div(kGrain, H * W), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) mean(i / K, i % K);
      });
    } else if (typed && rows_.is_spread() && columns_.is_spread() && has_dense_planes(y_)) {
      parallel_for(N * K, ceil_div(kGrain, P * Q), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) spread(i / K, i % K);
      });
    } else {
      const int64_t work = row_taps * W + columns_.count() + Q;
      parallel_for(N * K * P, ceil_div(kGrain, work), [&](int64_t begin, int64_t end) {
        const Scratch<C> converted(x_.dtype == dtype_of<C> && x_.strides[3] == 1 ? 0 : rows_.most() * W);
        const Scratch<C> sum(W), out(Q);
        for (int64_t i = begin; i < end; ++i)
          row(i / P / K, i / P % K, i % P, i > begin, converted.get(), sum.get(), out.get());
      });
    }
  }

 private:
  void mean(int64_t n, int64_t c) const {
    const C* plane = x_.as<C>() + n * x_.strides[0] + c * x_.strides[1];
    const C weight = rows_.weight(0) * columns_.weight(0);
    y_.as<C>()[n * y_.strides[0] + c * y_.strides[1]] = kernels_.sum(plane, x_.shape[2] * x_.shape[3]) * weight;
  }

  void spread(int64_t n, int64_t c) const {
    const C value = x_.as<C>()[n * x_.strides[0] + c * x_.strides[1]] * (rows_.weight(0) * columns_.weight(0));
    std::fill_n(y_.as<C>() + n * y_.strides[0] + c * y_.strides[1], y_.shape[2] * y_.shape[3], value);
  }

  // `follows`: row p - 1 of the plane has just been written, if there is one.
  void row(int64_t n, int64_t c, int64_t p, bool follows, C* converted, C* sum, C* buffer) const {
    const int64_t W = x_.shape[3], Q = y_.shape[3];
    const int64_t to = n * y_.strides[0] + c * y_.strides[1] + p * y_.strides[2], step = y_.strides[3];
    const bool in_place = y_.dtype == dtype_of<C> && step == 1;
    C* out = in_place ? y_.as<C>() + to : buffer;
    if (in_place && follows && rows_.repeats(p)) return static_cast<void>(std::copy_n(out - y_.strides[2], Q, out));

    const int64_t plane = n * x_.strides[0] + c * x_.strides[1], first = rows_.begin(p), taps = rows_.size(p);
    const C* line;
    if (taps == 1 && rows_.selects(p)) {
      line = load_block(x_.data, x_.dtype, plane + row_offsets_[first], x_.strides[3], W, converted);
    } else {
      C* total = across_.as_is() ? out : sum;
      if (x_.dtype == dtype_of<C> && x_.strides[3] == 1) {
        kernels_.weighted_sum(x_.as<C>() + plane, taps, row_offsets_.get() + first, rows_.weights(p), total, W);
      } else {
        std::vector<int64_t> offsets;
        for (int64_t k = 0; k < taps; ++k) {
          offsets.push_back(k * W);
          C* to_row = converted + k * W;
          const C* from = load_block(x_.data, x_.dtype, plane + row_offsets_[first + k], x_.strides[3], W, to_row);
          if (from != to_row) std::copy_n(from, W, to_row);
        }
        kernels_.weighted_sum(converted, taps, offsets.data(), rows_.weights(p), total, W);
      }
      line = total;
    }
    if (line != out) across_.run(line, out);
    if (!in_place) store_block(out, y_.data, y_.dtype, to, step, Q);
  }

  // The taps of a pixel, and room for its conversion.
  struct PixelBuffers {
    Scratch<int64_t> offsets;
    Scratch<C> weights, converted, out;
    explicit PixelBuffers(const Resample2d& job)
        : offsets(job.rows_.most() * job.columns_.most()), weights(job.rows_.most() * job.columns_.most()),
          converted(job.x_.dtype == dtype_of<C> && job.x_.strides[1] == 1
                        ? 0
                        : job.rows_.most() * job.columns_.most() * job.y_.shape[1]),
          out(job.y_.shape[1]) {}
  };

  void row_of_pixels(int64_t n, int64_t p, bool follows, const PixelBuffers& buffers) const {
    const int64_t K = y_.shape[1], Q = y_.shape[3], row = n * y_.strides[0] + p * y_.strides[2];
    const bool in_place = y_.dtype == dtype_of<C> && y_.strides[1] == 1;
    if (in_place && y_.strides[3] == K && p > 0 && follows && rows_.repeats(p)) {
      C* out = y_.as<C>() + row;
      return static_cast<void>(std::copy_n(out - y_.strides[2], Q * K, out));
    }
    const bool as_is = x_.dtype == dtype_of<C> && x_.strides[1] == 1;
    for (int64_t q = 0; q < Q; ++q) {
      int64_t taps = 0;
      for (int64_t r = rows_.begin(p); r < rows_.end(p); ++r)
        for (int64_t s = columns_.begin(q); s < columns_.end(q); ++s, ++taps) {
          const int64_t at = row_offsets_[r] + columns_.source(s) * x_.strides[3];
          buffers.weights[taps] = rows_.weight(r) * columns_.weight(s);
          buffers.offsets[taps] = as_is ? at : taps * K;
          if (as_is) continue;
          C* to = buffers.converted.get() + taps * K;
          const C* from = load_block(x_.data, x_.dtype, n * x_.strides[0] + at, x_.strides[1], K, to);
          if (from != to) std::copy_n(from, K, to);
        }
      const int64_t to = row + q * y_.strides[3];
      C* out = in_place ? y_.as<C>() + to : buffers.out.get();
      kernels_.weighted_sum(as_is ? x_.as<C>() + n * x_.strides[0] : buffers.converted.get(), taps,
                            buffers.offsets.get(), buffers.weights.get(), out, K);
      if (!in_place) store_block(out, y_.data, y_.dtype, to, y_.strides[1], K);
    }
  }

  const Kernels<C>& kernels_;
  const View& x_;
  const MutableView& y_;
  const Taps<C> rows_, columns_;
  const Columns<C> across_;
  const Scratch<int64_t> row_offsets_;  // of the rows' sources
};

}  // namespace

void OpenmpBackend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  EventScope event("resample2d", "openmp", kernel_table().vectors, {&x, &y}, 2 * y.numel());
  if (y.numel() == 0) return;
  visit_wide(y.dtype, [&]<class C> { Resample2d<C>(x, rows, columns, y).run(); });
}

}  // namespace gradus
