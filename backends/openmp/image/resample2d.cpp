// y[n, c, p, q] = sum over r, s of rows.weight[r] columns.weight[s] x[n, c, rows.source[r], columns.source[s]]. Vectors
// run along the columns of a plane: the input rows of output row p are first combined into one weighted row, and then
// the columns of this row are combined. If channels are closer in memory (channels-last), vectors run along the
// channels of a pixel. An output row with the same inputs as the row before is copied from that row. Half types, and
// images with gaps between neighbours, are first copied to dense float or double images.
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/operand.h>
#include <gradus/backends/openmp/simd/windows.h>
#include <gradus/core/kernel_args.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// The entries of a stencil by output position, with weights in the type of the computation.
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
  /// Maximum number of entries of a position.
  int64_t most() const { return most_; }

  /// Returns true if position p has the same entries as position p - 1.
  bool repeats(int64_t p) const {
    if (p == 0 || size(p) != size(p - 1)) return false;
    for (int64_t i = 0; i < size(p); ++i) {
      const int64_t here = begin(p) + i, before = begin(p - 1) + i;
      if (source(here) != source(before) || weight(here) != weight(before)) return false;
    }
    return true;
  }
  /// Returns true for the pattern of pooling: every position reads `most()` neighbours with the same weights, `step`
  /// elements after those of the position before.
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
  /// Returns true for the pattern of nearest-neighbour enlargement by two: every input element is used for two
  /// positions with the same weight.
  bool doubles() const {
    for (int64_t p = 0; p < positions(); ++p)
      if (size(p) != 1 || source(begin(p)) != p / 2 || weight(begin(p)) != weight(0)) return false;
    return true;
  }

 private:
  const Stencil& stencil_;
  Scratch<C> weights_;
  int64_t most_ = 0;
};

// Computes an output row from the weighted row, with the kernel that fits the pattern of the columns' taps.
template <class C>
class Columns {
 public:
  Columns(const Kernels<C>& kernels, const Taps<C>& taps)
      : kernels_(kernels), taps_(taps), pools_(taps.is_regular(&step_) && step_ <= 2), doubles_(taps.doubles()),
        pitch_(round_up(taps.positions(), kernels.vector_size)) {
    if (pools_ || doubles_) return;
    sources_.assign(static_cast<size_t>(pitch_ * taps.most()), -1), weights_.assign(sources_.size(), C(0));
    for (int64_t q = 0; q < taps.positions(); ++q)
      for (int64_t k = 0; k < taps.size(q); ++k) {
        const auto at = static_cast<size_t>(k * pitch_ + q);
        sources_[at] = static_cast<typename GatherArgs<C>::Source>(taps.source(taps.begin(q) + k));
        weights_[at] = taps.weight(taps.begin(q) + k);
      }
  }

  void run(const C* line, C* out) const {
    const int64_t count = taps_.positions();
    if (pools_) return kernels_.pool_columns(line + taps_.source(0), step_, taps_.most(), taps_.weights(0), out, count);
    if (doubles_) return kernels_.repeat_columns(line, taps_.weight(0), out, count);
    kernels_.gather_columns({count, taps_.most(), pitch_, sources_.data(), weights_.data(), line, out});
  }

 private:
  const Kernels<C>& kernels_;
  const Taps<C>& taps_;
  int64_t step_ = 1;
  bool pools_, doubles_;
  int64_t pitch_;
  std::vector<typename GatherArgs<C>::Source> sources_;
  std::vector<C> weights_;
};

// Resamples images: by_pixels() needs contiguous channels, by_planes() contiguous columns, uniform() dense planes.
template <class C>
class Resample2d {
 public:
  Resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y)
      : kernels_(kernels_of<C>(kernel_table())), x_(x), y_(y), rows_(rows), columns_(columns),
        across_(kernels_, columns_), row_offsets_(rows_.count()) {
    for (int64_t k = 0; k < rows_.count(); ++k) row_offsets_[k] = rows_.source(k) * x.strides[2];
  }

  void by_pixels() const {
    const int64_t N = y_.shape[0], K = y_.shape[1], P = y_.shape[2], Q = y_.shape[3];
    const int64_t work = K * (ceil_div(rows_.count(), P) * columns_.count() + Q);
    parallel_for(N * P, ceil_div(kGrain, work), [&](int64_t begin, int64_t end) {
      std::vector<C> weights(static_cast<size_t>(rows_.most() * columns_.most()));
      std::vector<int64_t> offsets(weights.size());
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / P, p = i % P;
        C* row = y_.as<C>() + n * y_.strides[0] + p * y_.strides[2];
        if (y_.strides[3] == K && i > begin && rows_.repeats(p)) {
          std::copy_n(row - y_.strides[2], Q * K, row);
          continue;
        }
        for (int64_t q = 0; q < Q; ++q) {
          size_t taps = 0;
          for (int64_t r = rows_.begin(p); r < rows_.end(p); ++r)
            for (int64_t s = columns_.begin(q); s < columns_.end(q); ++s, ++taps) {
              weights[taps] = rows_.weight(r) * columns_.weight(s);
              offsets[taps] = row_offsets_[r] + columns_.source(s) * x_.strides[3];
            }
          kernels_.weighted_sum(x_.as<C>() + n * x_.strides[0], static_cast<int64_t>(taps), offsets.data(),
                                weights.data(), row + q * y_.strides[3], K);
        }
      }
    });
  }
  // An output row with the same inputs as the row before is copied from that row.
  void by_planes() const {
    const int64_t N = y_.shape[0], K = y_.shape[1], P = y_.shape[2], Q = y_.shape[3], W = x_.shape[3];
    const int64_t work = ceil_div(rows_.count(), P) * W + columns_.count() + Q;
    parallel_chunks<C>(N * K * P, ceil_div(kGrain, work), slot_size(W), [&](int64_t begin, int64_t end, C* sum) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / P / K, c = i / P % K, p = i % P;
        C* out = y_.as<C>() + n * y_.strides[0] + c * y_.strides[1] + p * y_.strides[2];
        const C* plane = x_.as<C>() + n * x_.strides[0] + c * x_.strides[1];
        if (i > begin && rows_.repeats(p)) {
          std::copy_n(out - y_.strides[2], Q, out);
          continue;
        }
        kernels_.weighted_sum(plane, rows_.size(p), row_offsets_.get() + rows_.begin(p), rows_.weights(p), sum, W);
        across_.run(sum, out);
      }
    });
  }
  // For dense planes in which every result is the sum of the plane times one constant.
  void uniform() const {
    const int64_t K = y_.shape[1], from = x_.shape[2] * x_.shape[3], to = y_.shape[2] * y_.shape[3];
    const C weight = rows_.weight(0) * columns_.weight(0);
    parallel_each(y_.shape[0] * K, ceil_div(kGrain, from + to), [=, this](int64_t i) {
      const int64_t n = i / K, c = i % K;
      const C* plane = x_.as<C>() + n * x_.strides[0] + c * x_.strides[1];
      const C value = (from == 1 ? *plane : kernels_.sum(plane, from)) * weight;
      std::fill_n(y_.as<C>() + n * y_.strides[0] + c * y_.strides[1], to, value);
    });
  }

 private:
  const Kernels<C>& kernels_;
  const View& x_;
  const MutableView& y_;
  const Taps<C> rows_, columns_;
  const Columns<C> across_;
  const Scratch<int64_t> row_offsets_;  // offset in x of each entry's input row
};

}  // namespace

void OpenmpBackend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  EventScope event("resample2d", "openmp", kernel_table().vectors, {&x, &y}, 2 * y.numel());
  if (y.numel() == 0) return;
  const StridedLayout& image = x.shape[2] * x.shape[3] > 1 ? static_cast<const StridedLayout&>(x) : y;
  const bool channels =
      y.shape[1] > 1 && image.strides[1] < image.strides[3] && (image.shape[2] > 1 || image.shape[3] > 1);
  const bool wide = y.dtype == DType::f32 || y.dtype == DType::f64;
  const bool dense = wide && has_dense_planes(x) && has_dense_planes(y);
  visit_wide(y.dtype, [&]<class C> {
    const auto copies = [&](const StridedLayout& view) { return !wide || view.strides[channels ? 1 : 3] != 1; };
    const MemoryFormat format = channels ? MemoryFormat::channels_last : MemoryFormat::contiguous;
    const Input in(*this, x, copies(x), dtype_of<C>, format);
    const Output out(*this, y, copies(y), dtype_of<C>, format);
    const View from = in.view();
    const MutableView to = out.view();
    const Resample2d<C> task(from, rows, columns, to);
    if (channels) task.by_pixels();
    else if (dense && is_uniform(rows) && is_uniform(columns)) task.uniform();
    else task.by_planes();
    out.finish();
  });
}

}  // namespace gradus
