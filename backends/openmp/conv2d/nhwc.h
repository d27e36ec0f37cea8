// Images as pixels: the channels of a pixel side by side, as channels-last memory has them. A convolution with many
// channels reads and writes pixels in vectors of channels. Channels-last images are used in place; of others, the
// part that a thread works on is transposed to its own memory and back.
#pragma once

#include <gradus/backends/openmp/conv2d/images.h>
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

/// Rows [row, row_end) of images, but for those that the images do not have, with all channels.
inline ImagePart rows_of(const ImageLayout& x, int64_t image, int64_t image_end, int64_t row, int64_t row_end) {
  const int64_t begin = std::clamp<int64_t>(row, 0, x.H);
  return {image, image_end, begin, std::clamp<int64_t>(row_end, begin, x.H), 0, x.C};
}

/// Where pixels are, counted as in the whole batch: the first channel of pixel (h, w) of image n, out of those of a
/// part, is data[origin + n * step[0] + h * step[1] + w * step[2]].
template <class T>
struct Pixels {
  T* data;
  int64_t origin, step[3];
  /// In the images themselves; in memory that has the part alone.
  Pixels(const Images<T>& x, const ImagePart& part)
      : data(x.data), origin(part.channel * x.c_stride), step{x.n_stride, x.h_stride, x.w_stride} {}
  Pixels(const ImageLayout& x, const ImagePart& part, T* memory)
      : data(memory), step{part.rows() * x.W * part.channels(), x.W * part.channels(), part.channels()} {
    origin = -part.image * step[0] - part.row * step[1];
  }
  T* at(int64_t n, int64_t h, int64_t w) const { return data + origin + n * step[0] + h * step[1] + w * step[2]; }
};

/// Cuts every place, of which `bytes` are all that is wanted, for `tiles` tiles.
inline void share_out(FetchAhead& ahead, int64_t tiles) {
  for (FetchAhead::Place& place : ahead.places) place.bytes = ceil_div(place.bytes, std::max<int64_t>(tiles, 1));
}

inline bool has_pixels(const ImageLayout& x) { return x.c_stride == 1 || x.C == 1; }
/// True where pixels are read in place; a mask is applied to a copy.
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

/// The memory of a part of images that are laid out like `images` from `data` on, for fetching it ahead: its rows of
/// pixels, or the planes of its channels. None where it is not dense.
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

/// A batch that is read as pixels. With a mask (laid out in memory like x), only elements with mask > 0 count.
template <class T>
class NhwcSource {
 public:
  NhwcSource(const Kernels<T>& kernels, const Images<const T>& x, const T* mask)
      : kernels_(kernels), x_(x), mask_(mask) {}

  bool in_place() const { return openmp_detail::in_place(x_, mask_); }
  /// What is between neighbours of a row, for parts with that many channels.
  int64_t pixel_step(int64_t channels) const { return in_place() ? x_.w_stride : channels; }
  int64_t row_step(int64_t channels) const { return in_place() ? x_.h_stride : x_.W * channels; }

  /// The memory of a part, for fetching it ahead, and of its mask.
  FetchAhead::Place memory(const ImagePart& part) const { return memory_of<const T>(x_, x_.data, part); }
  FetchAhead::Place mask_memory(const ImagePart& part) const { return memory_of<const T>(x_, mask_, part); }

  /// `memory` is not used where pixels are read in place.
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

  /// The memory that store() writes.
  FetchAhead::Place memory(const ImagePart& part) const {
    return has_pixels(y_) || part.rows() < y_.H ? FetchAhead::Place{} : memory_of<T>(y_, y_.data, part);
  }
  /// Where to write a part; store() then brings it to its place.
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

}  // namespace gradus::openmp_detail
