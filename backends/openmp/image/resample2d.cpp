// y[n, c, p, q] = sum over r, s of rows.weight[r] columns.weight[s] x[n, c,
// rows.source[r], columns.source[s]]. Lanes are the columns of a plane: the
// input rows of p are added up, weighed, into one, then that row's columns.
// Where the channels are closer (channels-last), lanes are the channels of a
// pixel. A row that takes what the one before took is copied from it.
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/windows.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// The entries of a stencil for each output position, with weights in the type
// that is computed in.
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
  /// If every position reads `most()` neighbours with the same weights, `step`
  /// further than the one before: pooling.
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
  /// If every element of the input is taken twice, with one weight: enlarging
  /// by two.
  bool doubles() const {
    for (int64_t p = 0; p < positions(); ++p)
      if (size(p) != 1 || source(begin(p)) != p / 2 || weight(begin(p)) != weight(0)) return false;
    return true;
  }
  /// If every position is the sum of all elements times one number: a mean, or
  /// the gradient of one.
  bool is_uniform() const {
    if (count() != size_in() * positions()) return false;
    for (int64_t k = 0; k < count(); ++k)
      if (source(k) != k % size_in() || weight(k) != weight(0)) return false;
    return count() > 0;
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
    const bool dense = x_.dtype == dtype_of<C> && has_dense_planes(x_) && has_dense_planes(y_);
    const int64_t row_taps = ceil_div(rows_.count(), P);
    // `numbers` of C and `offsets` for each thread.
    const auto share_rows = [&](int64_t count, int64_t grain, int64_t numbers, int64_t offsets, const auto& rows) {
      const int64_t first = slot_size(offsets), size = first + numbers * static_cast<int64_t>(sizeof(C)) / 8;
      parallel_chunks<int64_t>(count, grain, size, [&](int64_t begin, int64_t end, int64_t* places) {
        rows(begin, end, reinterpret_cast<C*>(places + first), places);
      });
    };
    if (channels) {
      const int64_t most = rows_.most() * columns_.most();
      share_rows(N * P, ceil_div(kGrain, K * (row_taps * columns_.count() + Q)),
                 slot_size(most) + slot_size(K) + slot_size(most * K), most,
                 [&](auto... of) { rows_of_pixels(of...); });
    } else if (dense && rows_.is_uniform() && columns_.is_uniform())
      parallel_for(N * K, ceil_div(kGrain, H * W + P * Q), [&](int64_t begin, int64_t end) { uniform(begin, end); });
    else
      share_rows(N * K * P, ceil_div(kGrain, row_taps * W + columns_.count() + Q),
                 slot_size(W) + slot_size(Q) + slot_size(rows_.most() * W), rows_.most(),
                 [&](auto... of) { rows_of_planes(of...); });
  }

 private:
  void uniform(int64_t begin, int64_t end) const {
    const int64_t K = y_.shape[1], from = x_.shape[2] * x_.shape[3], to = y_.shape[2] * y_.shape[3];
    const C weight = rows_.weight(0) * columns_.weight(0);
    for (int64_t i = begin; i < end; ++i) {
      const C* plane = x_.as<C>() + i / K * x_.strides[0] + i % K * x_.strides[1];
      const C value = (from == 1 ? *plane : kernels_.sum(plane, from)) * weight;
      C* out = y_.as<C>() + i / K * y_.strides[0] + i % K * y_.strides[1];
      if (to == 1) *out = value;
      else std::fill_n(out, to, value);
    }
  }

  // Rows of planes from `begin` on. One that takes what the row before it took
  // is copied from that.
  void rows_of_planes(int64_t begin, int64_t end, C* sum, int64_t* offsets) const {
    const int64_t K = y_.shape[1], P = y_.shape[2], Q = y_.shape[3], W = x_.shape[3];
    const bool in_place = y_.dtype == dtype_of<C> && y_.strides[3] == 1;
    const bool as_is = x_.dtype == dtype_of<C> && x_.strides[3] == 1;
    C *const buffer = sum + slot_size(W), *const converted = buffer + slot_size(Q);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / P / K, c = i / P % K, p = i % P, taps = rows_.size(p);
      const int64_t to = n * y_.strides[0] + c * y_.strides[1] + p * y_.strides[2];
      C* out = in_place ? y_.as<C>() + to : buffer;
      if (in_place && i > begin && rows_.repeats(p)) {
        std::copy_n(out - y_.strides[2], Q, out);
        continue;
      }
      const int64_t plane = n * x_.strides[0] + c * x_.strides[1];
      const int64_t* from = row_offsets_.get() + rows_.begin(p);
      if (taps == 1 && rows_.selects(p)) {
        across_.run(load_block(x_, plane + *from, x_.strides[3], W, converted), out);
      } else {
        for (int64_t k = 0; !as_is && k < taps; ++k)
          load_line(plane + from[k], x_.strides[3], W, converted + (offsets[k] = k * W));
        kernels_.weighted_sum(as_is ? x_.as<C>() + plane : converted, taps, as_is ? from : offsets, rows_.weights(p),
                              sum, W);
        across_.run(sum, out);
      }
      if (!in_place) store_block(out, y_, to, y_.strides[3], Q);
    }
  }

  void rows_of_pixels(int64_t begin, int64_t end, C* weights, int64_t* offsets) const {
    const int64_t K = y_.shape[1], P = y_.shape[2], Q = y_.shape[3], most = rows_.most() * columns_.most();
    const bool in_place = y_.dtype == dtype_of<C> && y_.strides[1] == 1;
    const bool as_is = x_.dtype == dtype_of<C> && x_.strides[1] == 1;
    C *const buffer = weights + slot_size(most), *const converted = buffer + slot_size(K);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / P, p = i % P, row = n * y_.strides[0] + p * y_.strides[2], image = n * x_.strides[0];
      if (in_place && y_.strides[3] == K && i > begin && rows_.repeats(p)) {
        C* out = y_.as<C>() + row;
        std::copy_n(out - y_.strides[2], Q * K, out);
        continue;
      }
      for (int64_t q = 0; q < Q; ++q) {
        int64_t taps = 0;
        for (int64_t r = rows_.begin(p); r < rows_.end(p); ++r)
          for (int64_t s = columns_.begin(q); s < columns_.end(q); ++s, ++taps) {
            const int64_t at = row_offsets_[r] + columns_.source(s) * x_.strides[3];
            weights[taps] = rows_.weight(r) * columns_.weight(s);
            offsets[taps] = as_is ? at : taps * K;
            if (!as_is) load_line(image + at, x_.strides[1], K, converted + taps * K);
          }
        const int64_t to = row + q * y_.strides[3];
        C* out = in_place ? y_.as<C>() + to : buffer;
        kernels_.weighted_sum(as_is ? x_.as<C>() + image : converted, taps, offsets, weights, out, K);
        if (!in_place) store_block(out, y_, to, y_.strides[1], K);
      }
    }
  }

  // A row or a pixel of x into `to`.
  void load_line(int64_t offset, int64_t step, int64_t count, C* to) const {
    const C* from = load_block(x_, offset, step, count, to);
    if (from != to) std::copy_n(from, count, to);
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
