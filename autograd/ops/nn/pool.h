// Pooling: maxima and averages over windows. Images are (N, C, H, W) or (C, H, W), sequences (N, C, L) or (C, L).
#pragma once

#include <tuple>

#include <gradus/autograd/ops/nn/conv.h>

namespace gradus {

/// The stride of an image pooling. If absent ({} or nullopt), it is the kernel's size.
struct PoolStride : std::optional<Pair> {
  PoolStride() = default;
  PoolStride(int64_t h, int64_t w) : optional(Pair(h, w)) {}
  template <std::convertible_to<std::optional<Pair>> T>
  PoolStride(const T& stride) : optional(stride) {}  // NOLINT(google-explicit-constructor)
};

/// Maximum over windows of x (N, C, H, W) or (C, H, W); stride defaults to the kernel's size.
Tensor max_pool2d(const Tensor& x, Pair kernel_size, PoolStride stride = {}, Pair padding = 0, Pair dilation = 1,
                  bool ceil_mode = false, Loc where = Loc::current());
/// max_pool2d that also returns the int64 index h * W + w of each maximum in its plane.
TensorPair max_pool2d_with_indices(const Tensor& x, Pair kernel_size, PoolStride stride = {}, Pair padding = 0,
                                   Pair dilation = 1, bool ceil_mode = false, Loc where = Loc::current());
TensorPair max_pool1d_with_indices(const Tensor& x, int64_t kernel_size, std::optional<int64_t> stride = {},
                                   int64_t padding = 0, int64_t dilation = 1, bool ceil_mode = false,
                                   Loc where = Loc::current());
inline Tensor max_pool1d(const Tensor& x, int64_t kernel_size, std::optional<int64_t> stride = {}, int64_t padding = 0,
                         int64_t dilation = 1, bool ceil_mode = false, Loc where = Loc::current()) {
  return std::get<0>(max_pool1d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode, where));
}

/// Mean over windows; stride defaults to the kernel's size. The sum is divided by `divisor_override` if given, else by
/// the number of elements in the window, where padding counts only with `count_include_pad`.
Tensor avg_pool2d(const Tensor& x, Pair kernel_size, PoolStride stride = {}, Pair padding = 0, bool ceil_mode = false,
                  bool count_include_pad = true, std::optional<int64_t> divisor_override = {},
                  Loc where = Loc::current());
Tensor avg_pool1d(const Tensor& x, int64_t kernel_size, std::optional<int64_t> stride = {}, int64_t padding = 0,
                  bool ceil_mode = false, bool count_include_pad = true, Loc where = Loc::current());

/// Output size of an adaptive pooling: one number for both directions, or a pair. An absent size keeps x's size.
struct OutputSize {
  OutputSize(int64_t both) : h(both), w(both) {}  // NOLINT
  OutputSize(std::optional<int64_t> h_, std::optional<int64_t> w_) : h(h_), w(w_) {}
  template <class List>
  requires std::same_as<List, IntArrayRef> || std::same_as<List, std::vector<int64_t>> OutputSize(const List& sizes)
      : OutputSize(Pair(sizes).h, Pair(sizes).w) {}  // NOLINT(google-explicit-constructor)
  std::optional<int64_t> h, w;
};
/// Mean over windows that divide H into P = output_size.h parts, where part p is [floor(p H / P), ceil((p + 1) H / P)),
/// and W likewise. An image without pixels is accepted for output size 1, where its mean is NaN, and for an empty
/// output; otherwise it is a ShapeError.
Tensor adaptive_avg_pool2d(const Tensor& x, OutputSize output_size, Loc where = Loc::current());
Tensor adaptive_avg_pool1d(const Tensor& x, int64_t output_size, Loc where = Loc::current());
/// Maximum over windows that divide H and W as in adaptive_avg_pool2d.
Tensor adaptive_max_pool2d(const Tensor& x, OutputSize output_size, Loc where = Loc::current());
Tensor adaptive_max_pool1d(const Tensor& x, int64_t output_size, Loc where = Loc::current());

}  // namespace gradus
