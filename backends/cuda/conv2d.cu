// Convolution as a product of matrices that are never built (implicit GEMM), forward and with respect to the input.
//   forward        y[k, (n,p,q)]  = sum over (c,r,s) of w[k,c,r,s] x[n, c, p stride - padding + r dilation, q …]
//   backward data  dx[c, (n,h,w)] = sum over (k,r,s) of w[k,c,r,s] dy[n, k, p, q]
//                  with p stride = h + padding - r dilation, …
// Both are out[row, position] = sum over (channel, r, s) of a weight and a gathered input element; `kBackward` tells
// how the input position follows from the output position. x (N,C,H,W), w (K,C/groups,R,S), y (N,K,P,Q), any strides.
// Bias, ReLU and the ReLU's mask of dy are part of the kernel.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/conv2d.cuh>

namespace gradus {
namespace {

using cuda_detail::Divisor;
using cuda_detail::Launch;
using cuda_detail::Strides4;

struct Gather {
  uint32_t rows, positions, depth;  // per group: output channels, N * height * width of the output, channels * R * S
  uint32_t in_channels;             // per group
  int in_height, in_width;
  int stride[2], padding[2], dilation[2];
  Divisor out_height, out_width;  // position -> (n, h, w)
  Divisor taps, tap_width;        // depth -> (channel, r, s)
  Divisor stride_h, stride_w;
  Strides4 in, out;
  int64_t weight_row, weight_channel, weight_r, weight_s, weight_group;
};

// Where an output position reads, before the tap is added.
struct Position {
  int64_t base;  // of its image in the input; -1 beyond the last position
  int h, w;
};

// The input element that meets a depth at a position, 0 outside the image. Without branches, so that a thread's loads
// are all under way at once: what is outside reads element 0 instead.
template <bool kBackward, bool kMasked, class T>
__device__ compute_t<T> gathered(const Gather& gather, const T* input, const T* mask, const Position& position,
                                 uint32_t depth) {
  using C = compute_t<T>;
  bool inside = position.base >= 0 && depth < gather.depth;
  uint32_t s = depth;
  const uint32_t channel = gather.taps.split(s), r = gather.tap_width.split(s);
  const int tap_h = static_cast<int>(r) * gather.dilation[0], tap_w = static_cast<int>(s) * gather.dilation[1];
  int h = kBackward ? position.h - tap_h : position.h + tap_h, w = kBackward ? position.w - tap_w : position.w + tap_w;
  inside = inside && h >= 0 && w >= 0;
  if constexpr (kBackward) {  // only multiples of the stride were read there
    const int p = static_cast<int>(gather.stride_h.quotient(max(h, 0))),
              q = static_cast<int>(gather.stride_w.quotient(max(w, 0)));
    inside = inside && p * gather.stride[0] == h && q * gather.stride[1] == w;
    h = p, w = q;
  }
  inside = inside && h < gather.in_height && w < gather.in_width;
  const int64_t at = inside ? position.base + channel * gather.in.c + h * gather.in.h + w * gather.in.w : 0;
  const C value = static_cast<C>(input[at]);
  if constexpr (kMasked) inside = inside && static_cast<C>(mask[at]) > C(0);
  return inside ? value : C(0);
}

template <class T>
__device__ compute_t<T> weight_at(const Gather& gather, const T* weight, uint32_t row, uint32_t depth) {
  const bool inside = row < gather.rows && depth < gather.depth;
  uint32_t s = depth;
  const uint32_t channel = gather.taps.split(s), r = gather.tap_width.split(s);
  const int64_t at =
      row * gather.weight_row + channel * gather.weight_channel + r * gather.weight_r + s * gather.weight_s;
  const auto value = static_cast<compute_t<T>>(weight[inside ? at : 0]);
  return inside ? value : compute_t<T>(0);
}

// Grid: tiles of positions, tiles of rows, groups. The next tile is fetched into registers while this one is
// multiplied.
template <bool kBackward, bool kMasked, class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    gather_kernel(Gather gather, const T* input, const T* mask, const T* weight, const T* bias, bool relu, T* output) {
  using C = compute_t<T>;
  using Product = cuda_detail::TileProduct<C, Tile>;
  constexpr int kThreads = Tile::kThreads;
  constexpr int kLeft = Tile::kRows * Tile::kDepth / kThreads, kRight = Tile::kColumns * Tile::kDepth / kThreads;
  __shared__ typename Product::Shared shared;

  const uint32_t group = blockIdx.z, first_row = blockIdx.y * Tile::kRows, first_position = blockIdx.x * Tile::kColumns;
  weight += group * gather.weight_group;
  input += group * gather.in_channels * gather.in.c;
  if constexpr (kMasked) mask += group * gather.in_channels * gather.in.c;

  // Neighbouring threads fetch neighbouring depths of a weight row, and neighbouring positions of the input.
  const int left_depth = threadIdx.x % Tile::kDepth, left_row = threadIdx.x / Tile::kDepth;
  const int right_column = threadIdx.x % Tile::kColumns, right_depth = threadIdx.x / Tile::kColumns;
  Position position{-1, 0, 0};
  if (first_position + right_column < gather.positions) {
    uint32_t w = first_position + right_column;
    uint32_t h = gather.out_width.split(w);
    const uint32_t n = gather.out_height.split(h);
    position.base = n * gather.in.n;
    if constexpr (kBackward) {
      position.h = static_cast<int>(h) + gather.padding[0], position.w = static_cast<int>(w) + gather.padding[1];
    } else {
      position.h = static_cast<int>(h) * gather.stride[0] - gather.padding[0];
      position.w = static_cast<int>(w) * gather.stride[1] - gather.padding[1];
    }
  }

  C left[kLeft], right[kRight];
  auto fetch = [&](uint32_t depth) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i)
      left[i] = weight_at(gather, weight, first_row + left_row + i * (kThreads / Tile::kDepth), depth + left_depth);
#pragma unroll
    for (int i = 0; i < kRight; ++i)
      right[i] = gathered<kBackward, kMasked>(gather, input, mask, position,
                                              depth + right_depth + i * (kThreads / Tile::kColumns));
  };
  Product product;
  if (gather.depth > 0) fetch(0);
  for (uint32_t depth = 0; depth < gather.depth; depth += Tile::kDepth) {
#pragma unroll
    for (int i = 0; i < kLeft; ++i) shared.left[left_depth][left_row + i * (kThreads / Tile::kDepth)] = left[i];
#pragma unroll
    for (int i = 0; i < kRight; ++i)
      shared.right[right_depth + i * (kThreads / Tile::kColumns)][right_column] = right[i];
    __syncthreads();
    if (depth + Tile::kDepth < gather.depth) fetch(depth + Tile::kDepth);
    product.accumulate(shared);
    __syncthreads();
  }

#pragma unroll
  for (int j = 0; j < Tile::kPerColumn; ++j) {
    uint32_t w = first_position + Product::column() + j;
    if (w >= gather.positions) break;
    uint32_t h = gather.out_width.split(w);
    const uint32_t n = gather.out_height.split(h);
    T* out = output + n * gather.out.n + h * gather.out.h + w * gather.out.w;
#pragma unroll
    for (int i = 0; i < Tile::kPerRow; ++i) {
      const uint32_t row = first_row + Product::row() + i;
      if (row >= gather.rows) break;
      const uint32_t channel = group * gather.rows + row;
      C result = product.sums[i][j];
      if (bias) result += static_cast<C>(bias[channel]);
      if (relu && result < C(0)) result = C(0);
      out[channel * gather.out.c] = static_cast<T>(result);
    }
  }
}

// `out` is the result (y, or dx), `in` what is gathered (x, or dy).
template <bool kBackward>
void gather(const View& in, const void* mask, const View& w, const void* bias, bool relu, const MutableView& out,
            const Conv2dGeometry& geometry) {
  if (out.numel() == 0) return;
  cuda_detail::check_countable(in.numel(), kBackward ? "dy" : "x");
  cuda_detail::check_countable(out.numel(), kBackward ? "dx" : "y");
  const int64_t groups = geometry.groups, rows = out.shape[1] / groups, channels = in.shape[1] / groups;
  const int64_t taps = w.shape[2] * w.shape[3];
  Gather gather{.rows = static_cast<uint32_t>(rows),
                .positions = static_cast<uint32_t>(out.shape[0] * out.shape[2] * out.shape[3]),
                .depth = in.numel() > 0 ? static_cast<uint32_t>(channels * taps) : 0,
                .in_channels = static_cast<uint32_t>(channels),
                .in_height = static_cast<int>(in.shape[2]),
                .in_width = static_cast<int>(in.shape[3]),
                .out_height = Divisor(out.shape[2]),
                .out_width = Divisor(out.shape[3]),
                .taps = Divisor(taps),
                .tap_width = Divisor(w.shape[3]),
                .stride_h = Divisor(geometry.stride[0]),
                .stride_w = Divisor(geometry.stride[1]),
                .in = Strides4(in.strides),
                .out = Strides4(out.strides),
                .weight_row = w.strides[kBackward ? 1 : 0],
                .weight_channel = w.strides[kBackward ? 0 : 1],
                .weight_r = w.strides[2],
                .weight_s = w.strides[3],
                .weight_group = w.shape[0] / groups * w.strides[0]};
  for (int i = 0; i < 2; ++i) {
    gather.stride[i] = static_cast<int>(geometry.stride[i]), gather.padding[i] = static_cast<int>(geometry.padding[i]);
    gather.dilation[i] = static_cast<int>(geometry.dilation[i]);
  }
  const Launch launch(out.device);
  visit_floating(out.dtype, [&]<class T>() {
    cuda_detail::visit_tile(rows, [&]<class Tile>() {
      const dim3 grid((gather.positions + Tile::kColumns - 1) / Tile::kColumns,
                      static_cast<uint32_t>((rows + Tile::kRows - 1) / Tile::kRows), static_cast<uint32_t>(groups));
      auto kernel = gather_kernel<kBackward, false, T, Tile>;
      if constexpr (kBackward) kernel = mask ? gather_kernel<true, true, T, Tile> : kernel;
      launch(kernel, grid, Tile::kThreads, gather, in.as<T>(), static_cast<const T*>(mask), w.as<T>(),
             static_cast<const T*>(bias), relu, out.as<T>());
    });
  });
}

int64_t flops(const View& w, const View& y) { return w.shape[0] ? 2 * y.numel() * w.numel() / w.shape[0] : 0; }

}  // namespace

void CudaBackend::conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) {
  conv2d_bias_relu(x, w, nullptr, false, y, geometry);
}

void CudaBackend::conv2d_bias_relu(const View& x, const View& w, const View* bias, bool relu, const MutableView& y,
                                   const Conv2dGeometry& geometry) {
  EventScope event(bias || relu ? "conv2d_bias_relu" : "conv2d", "cuda", "implicit_gemm", {&x, &w}, flops(w, y));
  Array packed_bias;
  if (bias && bias->strides[0] != 1) {
    packed_bias = Array::empty(bias->shape, bias->dtype, bias->device);
    copy(*bias, packed_bias);
  }
  gather<false>(x, nullptr, w,
                packed_bias.defined() ? packed_bias.data()
                : bias                ? bias->data
                                      : nullptr,
                relu, y, geometry);
}

void CudaBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                       const Conv2dGeometry& geometry) {
  EventScope event("conv2d_backward_data", "cuda", "implicit_gemm", {&dy, &w}, flops(w, dy));
  gather<true>(dy, nullptr, w, nullptr, false, dx, geometry);
}

void CudaBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                         const Conv2dGeometry& geometry) {
  EventScope event("conv2d_backward_weight", "cuda", "implicit_gemm", {&dy, &x}, flops(dw, dy));
  cuda_detail::conv2d_weight_gradient(dy, nullptr, x, dw, nullptr, geometry);
}

// The mask and the sum for dbias ride on the two products, unless dy and y lie differently in memory.
void CudaBackend::conv2d_bias_relu_backward(const View& dy, const View& x, const View& w, const View* y_if_relu,
                                            const MutableView* dx, const MutableView* dw, const MutableView* dbias,
                                            const Conv2dGeometry& geometry) {
  if ((y_if_relu && !(y_if_relu->strides == dy.strides)) || (dbias && !dw))
    return Backend::conv2d_bias_relu_backward(dy, x, w, y_if_relu, dx, dw, dbias, geometry);
  const void* mask = y_if_relu ? y_if_relu->data : nullptr;
  if (dx) {
    EventScope event("conv2d_backward_data", "cuda", "implicit_gemm", {&dy, &w}, flops(w, dy));
    gather<true>(dy, mask, w, nullptr, false, *dx, geometry);
  }
  if (dw) {
    EventScope event("conv2d_backward_weight", "cuda", "implicit_gemm", {&dy, &x}, flops(*dw, dy));
    cuda_detail::conv2d_weight_gradient(dy, mask, x, *dw, dbias, geometry);
  }
}

}  // namespace gradus
