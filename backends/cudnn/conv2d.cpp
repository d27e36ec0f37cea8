// Convolution by cuDNN. Its engines take operands that lie in memory all as NCHW or all as NHWC. What lies otherwise
// than the images is copied; a net that is channels-last throughout is never transposed.
#include <gradus/backends/cuda/conv2d/conv2d_exact.h>
#include <gradus/backends/cuda/conv2d/conv2d_sliding.h>
#include <gradus/backends/cuda/conv2d/conv2d_thin.h>
#include <gradus/backends/cudnn/conv_plan.h>
#include <gradus/backends/cudnn/cudnn.h>
#include <gradus/backends/cudnn/cudnn_backend.h>
#include <gradus/core/cudnn.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using cudnn_detail::ConvProblem;
using cudnn_detail::ConvResult;

Strides dense_strides(const Shape& shape, bool channels_last) {
  return channels_last ? channels_last_strides(shape) : contiguous_strides(shape);
}

// Axes of size 1 may have any stride.
bool lies_as(const StridedLayout& x, bool channels_last) {
  const Strides strides = dense_strides(x.shape, channels_last);
  for (int i = 0; i < 4; ++i)
    if (x.shape[i] > 1 && x.strides[i] != strides[i]) return false;
  return true;
}

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % cudnn_detail::kAlignment == 0; }

constexpr int64_t kFewChannels = 32;  // for exact float32

// A convolution with its operands; `out` is the one of x, w and y that is the result.
struct Convolution {
  ConvResult result;
  const View x, w, y;
  const MutableView& out;
  const Conv2dGeometry& geometry;
  const View* bias = nullptr;
  bool relu = false;
  size_t workspace_limit = cudnn::workspace_limit();

  // The order of the images, as the first that can be only one of the two has it.
  bool channels_last() const {
    for (const View* operand : {result == ConvResult::y ? &y : &x, result == ConvResult::y ? &x : &y, &w})
      if (const bool last = lies_as(*operand, true); last != lies_as(*operand, false)) return last;
    return false;
  }

  ConvProblem problem() const {
    const auto sizes = [](const View& view) {
      return std::array<int64_t, 4>{view.shape[0], view.shape[1], view.shape[2], view.shape[3]};
    };
    return {.result = result,
            .bias = bias != nullptr,
            .relu = relu,
            .dtype = y.dtype,
            .channels_last = channels_last(),
            .x = sizes(x),
            .w = sizes(w),
            .y = sizes(y),
            .stride = std::to_array(geometry.stride),
            .padding = std::to_array(geometry.padding),
            .dilation = std::to_array(geometry.dilation),
            .device = y.device.index,
            .tf32 = y.dtype == DType::f32 && cudnn::allow_tf32(),
            .deterministic = cudnn::deterministic(),
            .timed = cudnn::benchmark(),
            .workspace_limit = workspace_limit};
  }

  // Little arithmetic for each element that is read: then the base class's kernels are faster, above all those for the
  // gradient of weights, which mask and sum for the bias on the way. On an H200, layers of benchmarks/conv2d: that
  // gradient takes 0.01 ms for conv_c32's first and 0.03 for stl10_net's first, by cuDNN, with TF32, 0.08 and 0.19.
  // Half types use tensor cores in both, cuDNN's with the channels padded to eight. From 64 taps on there is arithmetic
  // enough: the gradient for 1x1 kernels, 64 to 128 channels, 128 images of 16x16, takes cuDNN 0.02 ms with TF32, us
  // 0.05.
  bool prefers_base() const {
    if (cudnn::small_convolutions()) return false;
    if (result != ConvResult::dx && cuda_detail::is_thin(x, w, y, geometry)) return true;
    if (y.dtype == DType::f32 && !cudnn::allow_tf32() && is_better_exact()) return true;
    const int64_t filters = w.shape[0] / geometry.groups, channels = w.shape[1];
    const bool few = std::max(filters, channels) <= 16;
    if (result != ConvResult::dw || few) return few;
    const bool half = y.dtype == DType::f16 || y.dtype == DType::bf16;
    const int64_t taps = channels * w.shape[2] * w.shape[3];
    return half ? channels == 1 || cuda_detail::is_sliding(y, x, w, geometry) : taps < 64 && filters * taps <= 8192;
  }

  // Exact float32, where the base class's kernels are faster. On an H200, milliseconds by them and by cuDNN:
  // - gradients of weights, of 128 images, 64 to 512 channels, 3x3: 0.26 to 0.29, 0.31 to 0.78. At 32 filters half of a
  //   tile idles. Where channels lie side by side they are behind for many weights (32 images of 512 channels 0.13,
  //   0.08) and many pixels, else ahead (32 of 64 channels 0.11, 0.28).
  // - gradients of images under a stride: 0.19 to 0.23, 0.21 to 0.63, unless channels lie side by side;
  // - results so small that cuDNN's tiles leave much of the device idle (128 images of 512 channels forward 0.26, 0.39;
  //   with twice the elements 0.27, 0.25), above all where bias and ReLU follow (32 of 64 channels 0.08, 0.28);
  // - gradients of so many pixels of few channels that engines that go through Fourier space, cuDNN's best for them,
  //   want more scratch than they may have (512 images of 32 channels, 48x48: 1.32, 1.82).
  bool is_better_exact() const {
    const int64_t groups = geometry.groups;
    if (result == ConvResult::dw)
      return (w.shape[0] / groups > kFewChannels || w.shape[1] < kFewChannels) &&
             (!channels_last() || (w.numel() < int64_t{1} << 20 && y.numel() < int64_t{1} << 22)) &&
             cuda_detail::has_exact_weight_gradient(y, x, w, geometry);
    const bool forward = result == ConvResult::y, strided = geometry.stride[0] > 1 || geometry.stride[1] > 1;
    const View &in = forward ? x : y, &made = forward ? y : x;
    if (!cuda_detail::has_exact_gather(in, made, groups, !forward && strided)) return false;
    const bool few = made.shape[1] / groups <= kFewChannels;
    if (!forward && (strided || (few && made.numel() >= int64_t{1} << 24))) return true;
    return made.numel() < int64_t{1} << ((bias || relu) && !few ? 22 : 21);
  }
  // The gradient of images without a stride as a forward convolution of dy with the weights turned around. cuDNN's
  // exact float32 does that at 38 to 40 TFLOP/s, the gradient itself at 23; for few channels it is the other way round.
  bool is_better_turned() const {
    if (result != ConvResult::dx || y.dtype != DType::f32 || cudnn::allow_tf32() || geometry.groups != 1 ||
        w.shape[1] <= kFewChannels)
      return false;
    for (int i = 0; i < 2; ++i)
      if (geometry.stride[i] != 1 || geometry.padding[i] > geometry.dilation[i] * (w.shape[2 + i] - 1)) return false;
    return true;
  }

  int64_t flops() const { return 2 * y.numel() * w.numel() / w.shape[0]; }
};

// An operand where engines can reach it: dense, aligned, in the order of the images. Where it lies, or in a copy.
class Reachable {
 public:
  Reachable(Backend& backend, const View& x, bool channels_last, bool is_result) : data_(x.data) {
    if (is_aligned(x.data) && lies_as(x, channels_last)) return;
    copy_ = Array::empty_strided(x.shape, dense_strides(x.shape, channels_last), x.dtype, x.device);
    if (!is_result) backend.copy(x, copy_);
    data_ = copy_.data();
  }
  const void* data() const { return data_; }
  /// Puts the result into its place.
  void deliver(Backend& backend, const MutableView& out) const {
    if (copy_.defined()) backend.copy(copy_, out);
  }

 private:
  const void* data_;
  Array copy_;
};

const char* implementation(const ConvProblem& problem) {
  if (problem.bias || problem.relu) return problem.tf32 ? "fused_tf32" : "fused";
  return problem.tf32 ? "engine_tf32" : "engine";
}

// Runs it by cuDNN; false where cuDNN does not take it. Nothing to do and too much of it is the base class's to say.
bool run(Backend& backend, const char* name, const Convolution& c) {
  for (const View* operand : {&c.x, &c.w, &c.y})
    if (operand->numel() == 0 || operand->numel() >= int64_t{1} << 31) return false;
  if (c.prefers_base()) return false;
  const ConvProblem problem = c.problem();
  const Reachable x(backend, c.x, problem.channels_last, c.result == ConvResult::dx);
  const Reachable w(backend, c.w, problem.channels_last, c.result == ConvResult::dw);
  const Reachable y(backend, c.y, problem.channels_last, c.result == ConvResult::y);
  Array packed_bias;
  if (c.bias && (c.bias->strides[0] != 1 || !is_aligned(c.bias->data))) {
    packed_bias = Array::empty(c.bias->shape, c.bias->dtype, c.bias->device);
    backend.copy(*c.bias, packed_bias);
  }
  const void* bias = packed_bias.defined() ? packed_bias.data() : c.bias ? c.bias->data : nullptr;
  const cudnn_detail::ConvOperands operands{x.data(), w.data(), y.data(), bias};
  const cudnn_detail::ConvPlan* plan = cudnn_detail::find_plan(problem, operands);
  if (!plan) return false;
  {
    EventScope event(name, "cudnn", implementation(problem), {&c.x, &c.w, &c.y}, c.flops());
    plan->run(operands);
  }
  (c.result == ConvResult::y ? y : c.result == ConvResult::dx ? x : w).deliver(backend, c.out);
  return true;
}

// w (K, C, R, S) as (C, K, R, S), with the last tap first.
Array turned_weights(Backend& backend, const View& w) {
  View turned = w;
  std::swap(turned.shape[0], turned.shape[1]), std::swap(turned.strides[0], turned.strides[1]);
  const int64_t last = (w.shape[2] - 1) * w.strides[2] + (w.shape[3] - 1) * w.strides[3];
  turned.data = static_cast<const std::byte*>(w.data) + last * static_cast<int64_t>(size_of(w.dtype));
  turned.strides[2] = -w.strides[2], turned.strides[3] = -w.strides[3];
  const bool last_order = lies_as(w, true) && !lies_as(w, false);
  Array dense = Array::empty_strided(turned.shape, dense_strides(turned.shape, last_order), w.dtype, w.device);
  backend.copy(turned, dense);
  return dense;
}

// (K) as (1, K, 1, 1) broadcast to y's shape.
View along_channels(const View& bias, const Shape& shape) {
  View wide = bias;
  wide.shape = shape, wide.strides = {0, bias.strides[0], 0, 0};
  return wide;
}

}  // namespace

// Where no engine has bias and ReLU in it, they follow.
void CudnnBackend::conv2d_bias_relu(const View& x, const View& w, const View* bias, bool relu, const MutableView& y,
                                    const Conv2dGeometry& geometry) {
  Convolution c{ConvResult::y, x, w, y, y, geometry, bias, relu};
  if (c.prefers_base()) return CudaBackend::conv2d_bias_relu(x, w, bias, relu, y, geometry);
  if (run(*this, bias || relu ? "conv2d_bias_relu" : "conv2d", c)) return;
  c.bias = nullptr, c.relu = false;
  if (!(bias || relu) || !run(*this, "conv2d", c)) return CudaBackend::conv2d_bias_relu(x, w, bias, relu, y, geometry);
  if (bias) binary(BinaryOp::add, y, along_channels(*bias, y.shape), y);
  if (relu) unary(UnaryOp::relu, y, y, {});
}

void CudnnBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                        const Conv2dGeometry& geometry) {
  const Convolution c{ConvResult::dx, dx, w, dy, dx, geometry};
  if (w.numel() > 0 && c.is_better_turned() && !c.prefers_base()) {
    Conv2dGeometry turned = geometry;
    for (int i = 0; i < 2; ++i) turned.padding[i] = geometry.dilation[i] * (w.shape[2 + i] - 1) - geometry.padding[i];
    const Array weights = turned_weights(*this, w);
    Convolution forward{ConvResult::y, dy, weights, dx, dx, turned};
    // Backward is when memory is short, and engines that go through Fourier space want a multiple of what the images
    // take.
    forward.workspace_limit =
        std::min(forward.workspace_limit, static_cast<size_t>(dy.numel() + dx.numel()) * size_of(dy.dtype));
    if (run(*this, "conv2d_backward_data", forward)) return;
  }
  if (!run(*this, "conv2d_backward_data", c)) CudaBackend::conv2d_backward_data(dy, w, dx, geometry);
}

void CudnnBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                          const Conv2dGeometry& geometry) {
  if (!run(*this, "conv2d_backward_weight", {ConvResult::dw, x, dw, dy, dw, geometry}))
    CudaBackend::conv2d_backward_weight(dy, x, dw, geometry);
}

// dy is masked once for the three gradients, or by the base class's kernel where that makes dw.
void CudnnBackend::conv2d_bias_relu_backward(const View& dy, const View& x, const View& w, const View* y_if_relu,
                                             const MutableView* dx, const MutableView* dw, const MutableView* dbias,
                                             const Conv2dGeometry& geometry, const MutableView* masked) {
  if (dw && Convolution{ConvResult::dw, x, *dw, dy, *dw, geometry}.prefers_base())
    return CudaBackend::conv2d_bias_relu_backward(dy, x, w, y_if_relu, dx, dw, dbias, geometry, masked);
  Array scratch;
  const View gradient = y_if_relu ? masked_by_relu(dy, *y_if_relu, masked, scratch) : dy;
  if (dx) conv2d_backward_data(gradient, w, *dx, geometry);
  if (dw) conv2d_backward_weight(gradient, x, *dw, geometry);
  if (dbias) Backend::conv2d_bias_relu_backward(gradient, x, w, nullptr, nullptr, nullptr, dbias, geometry);
}

std::unique_ptr<Backend> make_cudnn_backend() { return std::make_unique<CudnnBackend>(); }

}  // namespace gradus
