// Images as pixels, that is with the channels of a pixel contiguous, as in channels-last memory. A convolution with
// many channels reads and writes pixels in vectors of channels. Channels-last images are used in place; for other
// layouts, the part that a thread works on is transposed to scratch memory and back.
#pragma once

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <algorithm>

namespace gradus::openmp_detail {

/// Images [image, image_end), rows [row, row_end) and channels [channel, channel_end) of a batch, in full width.
struct ImagePart {
  int64_t image, image_end, row, row_end, channel, channel_end;
  int64_t images() const { return image_end - image; }
  int64_t rows() const { return row_end - row; }
  int64_t channels() const { return channel_end - channel; }
};

/// Rows [row, row_end) of images, limited to the rows that exist, with all channels.
inline ImagePart rows_of(const ImageLayout& x, int64_t image, int64_t image_end, int64_t row, int64_t row_end) {
  const int64_t begin = std::clamp<int64_t>(row, 0, x.H);
  return {image, image_end, begin, std::clamp<int64_t>(row_end, begin, x.H), 0, x.C};
}

/// Locates pixels by their indices in the whole batch: the part's first channel of pixel (h, w) of image n is
/// data[origin + n * step[0] + h * step[1] + w * step[2]].
template <class T>
struct Pixels {
  T* data;
  int64_t origin, step[3];
  /// The first constructor is for pixels in the images themselves, the second for `memory` that holds only the part.
  Pixels(const Images<T>& x, const ImagePart& part)
      : data(x.data), origin(part.channel * x.c_stride), step{x.n_stride, x.h_stride, x.w_stride} {}
  Pixels(const ImageLayout& x, const ImagePart& part, T* memory)
      : data(memory), step{part.rows() * x.W * part.channels(), x.W * part.channels(), part.channels()} {
    origin = -part.image * step[0] - part.row * step[1];
  }
  T* at(int64_t n, int64_t h, int64_t w) const { return data + origin + n * step[0] + h * step[1] + w * step[2]; }
};

/// Divides the bytes of every place by `tiles`, so that each tile prefetches its share.
inline void share_out(FetchAhead& ahead, int64_t tiles) {
  for (FetchAhead::Place& place : ahead.places) place.bytes = ceil_div(place.bytes, std::max<int64_t>(tiles, 1));
}

inline bool has_pixels(const ImageLayout& x) { return x.c_stride == 1 || x.C == 1; }
/// True if pixels can be read in place. A mask requires a copy.
inline bool in_place(const ImageLayout& x, bool mask) { return !mask && has_pixels(x); }

/// Calls move(plane, pixels, columns) for matrices of `part`: channel c of position i is at offset
/// plane + c * x.c_stride + i * x.w_stride in x and pixels + i * part.channels() + c in pixels, i < columns.
template <class T, class F>
void for_each_matrix(const Images<T>& x, const ImagePart& part, F&& move) {
  if (part.channels() == 0) return;
  const bool joined = x.h_stride == x.W * x.w_stride;
  const int64_t rows = part.rows(), columns = joined ? rows * x.W : x.W;
  for (int64_t n = 0; n < part.images(); ++n)
    for (int64_t h = 0; h < rows; h += joined ? std::max<int64_t>(rows, 1) : 1)
      move((part.image + n) * x.n_stride + part.channel * x.c_stride + (part.row + h) * x.h_stride,
           (n * rows + h) * x.W * part.channels(), columns);
}

/// The memory range of a part, for prefetching: its rows of pixels, or the planes of its channels. `data` has the
/// layout of `images`. Empty if the part is not dense.
template <class T>
FetchAhead::Place memory_of(const Images<T>& images, T* data, const ImagePart& part) {
  const bool pixels = has_pixels(images);
  const int64_t parts = pixels ? images.H : images.C, size = images.W * (pixels ? images.C : images.H);
  const int64_t begin = pixels ? part.row : part.channel, end = pixels ? part.row_end : part.channel_end;
  const bool dense = images.n_stride == parts * size && (pixels ? images.h_stride : images.c_stride) == size;
  if (!data || !dense || (end - begin < parts && part.images() > 1)) return {};
  return {reinterpret_cast<const char*>(data + part.image * images.n_stride + begin * size),
          part.images() * (end - begin) * size * int64_t{sizeof(T)}};
}

/// A batch that is read as pixels. With a mask (same layout as x), elements with mask <= 0 are replaced by 0.
template <class T>
class NhwcSource {
 public:
  NhwcSource(const Kernels<T>& kernels, const Images<const T>& x, const T* mask)
      : kernels_(kernels), x_(x), mask_(mask) {}

  bool in_place() const { return openmp_detail::in_place(x_, mask_); }
  /// Elements between neighbouring pixels of a row and between rows, for parts with that many channels.
  int64_t pixel_step(int64_t channels) const { return in_place() ? x_.w_stride : channels; }
  int64_t row_step(int64_t channels) const { return in_place() ? x_.h_stride : x_.W * channels; }

  /// The memory ranges of a part and of its mask, for prefetching.
  FetchAhead::Place memory(const ImagePart& part) const { return memory_of<const T>(x_, x_.data, part); }
  FetchAhead::Place mask_memory(const ImagePart& part) const { return memory_of<const T>(x_, mask_, part); }

  /// Returns the pixels of a part: in place if possible, else copied to `memory`.
  Pixels<const T> load(const ImagePart& part, T* memory) const {
    if (in_place()) return Pixels<const T>(x_, part);
    const int64_t channels = part.channels();
    for_each_matrix(x_, part, [&](int64_t from, int64_t to, int64_t columns) {
      const T* mask = mask_ ? mask_ + from : nullptr;
      if (has_pixels(x_)) {
        const bool dense = x_.w_stride == channels;
        kernels_.copy_rows({.rows = dense ? 1 : columns,
                            .count = dense ? columns * channels : channels,
                            .from = x_.data + from,
                            .from_stride = x_.w_stride,
                            .to = memory + to,
                            .to_stride = channels,
                            .mask = mask});
      } else {
        kernels_.transpose({x_.data + from, x_.c_stride, channels, columns, memory + to, channels, mask});
      }
    });
    return Pixels<const T>(x_, part, memory);
  }

 private:
  const Kernels<T>& kernels_;
  const Images<const T>& x_;
  const T* mask_;
};

/// A batch that is written as pixels.
template <class T>
class NhwcTarget {
 public:
  NhwcTarget(const Kernels<T>& kernels, const Images<T>& y) : kernels_(kernels), y_(y) {}

  /// The memory that store() writes, for prefetching.
  FetchAhead::Place memory(const ImagePart& part) const {
    return has_pixels(y_) || part.rows() < y_.H ? FetchAhead::Place{} : memory_of<T>(y_, y_.data, part);
  }
  /// Returns the pixels that a part is written to. If they are in `memory`, store() then copies them to y.
  Pixels<T> pixels(const ImagePart& part, T* memory) const {
    return has_pixels(y_) ? Pixels<T>(y_, part) : Pixels<T>(y_, part, memory);
  }
  void store(const ImagePart& part, const T* memory) const {
    if (has_pixels(y_)) return;
    const int64_t channels = part.channels();
    for_each_matrix(y_, part, [&](int64_t to, int64_t from, int64_t columns) {
      kernels_.transpose({memory + from, channels, columns, channels, y_.data + to, y_.c_stride});
    });
  }

 private:
  const Kernels<T>& kernels_;
  const Images<T>& y_;
};

/// An algorithm that computes some passes on pixels, either of depthwise convolutions or of all others. An object of
/// the class `Convolution` runs a plan.
template <template <class> class Convolution, bool kDepthwise, ConvPass... kPasses>
constexpr ConvAlgorithm nhwc_algorithm(const WorkParts& parts, auto* work, auto* plan) {
  constexpr auto run = []<class T>(const ConvPlan& plan, const ConvOperands<T>& operands) {
    Convolution<T>(plan, operands).run();
  };
  constexpr auto can_run = [](const ConvProblem& p) {
    const bool depthwise = is_depthwise(p.g, p.in, p.out);
    return depthwise == kDepthwise && ((p.pass == kPasses) || ...);
  };
  return {.name = kDepthwise ? "depthwise" : "implicit_gemm_nhwc",
          .reason = kDepthwise ? "one channel in a group, in vectors of channels" : "channels fill vectors",
          .parts = parts,
          .can_run = can_run,
          .work = work,
          .plan = plan,
          .launch = {run, run}};
}

}  // namespace gradus::openmp_detail
