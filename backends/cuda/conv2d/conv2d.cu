// Convolution, its fused form with bias and ReLU, and their gradients: from views to the kernels of conv2d_stencil.cu,
// conv2d_direct.cu, conv2d_thin.cu, conv2d_tiled.cu, conv2d_implicit.cu, conv2d_fma.cu and conv2d_weight.cu. Bias and
// ReLU are part of the kernels.
#include <gradus/backends/cuda/conv2d/conv2d_exact.h>
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/cuda.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/conv2d/conv2d_thin.cuh>

namespace gradus {
namespace {

using cuda_detail::Divisor;
using cuda_detail::Gather;
using cuda_detail::Launch;
using cuda_detail::Strides4;

int64_t flops(const View& w, const View& y) { return w.shape[0] ? 2 * y.numel() * w.numel() / w.shape[0] : 0; }

// `out` is the result (y, or dx when `backward`), `in` what is gathered (x, or dy), with a stencil where `mask`
// (strides of `in`, or null) is positive.
void by_gathering(const char* name, bool backward, const View& in, const void* mask, const View& w, const void* bias,
                  bool relu, const MutableView& out, const Conv2dGeometry& geometry) {
  if (out.numel() == 0) return;
  cuda_detail::check_countable(in.numel(), backward ? "dy" : "x");
  cuda_detail::check_countable(out.numel(), backward ? "dx" : "y");
  const int64_t groups = geometry.groups, rows = out.shape[1] / groups, channels = in.shape[1] / groups;
  const int64_t taps = w.shape[2] * w.shape[3];
  Gather gather{.rows = static_cast<uint32_t>(rows),
                .positions = static_cast<uint32_t>(out.shape[0] * out.shape[2] * out.shape[3]),
                .depth = in.numel() > 0 ? static_cast<uint32_t>(channels * taps) : 0,
                .in_channels = static_cast<uint32_t>(channels),
                .in_height = static_cast<int>(in.shape[2]),
                .in_width = static_cast<int>(in.shape[3]),
                .stride_h = Divisor(backward ? geometry.stride[0] : 1),
                .stride_w = Divisor(backward ? geometry.stride[1] : 1),
                .out_height = Divisor(out.shape[2]),
                .out_width = Divisor(out.shape[3]),
                .taps = Divisor(taps),
                .tap_width = Divisor(w.shape[3]),
                .in = Strides4(in.strides),
                .out = Strides4(out.strides),
                .weight_row = w.strides[backward ? 1 : 0],
                .weight_channel = w.strides[backward ? 0 : 1],
                .weight_r = w.strides[2],
                .weight_s = w.strides[3],
                .weight_group = w.shape[0] / groups * w.strides[0]};
  for (int i = 0; i < 2; ++i) {
    const int stride = static_cast<int>(geometry.stride[i]), padding = static_cast<int>(geometry.padding[i]);
    const int dilation = static_cast<int>(geometry.dilation[i]);
    gather.step[i] = backward ? 1 : stride, gather.origin[i] = backward ? padding : -padding;
    gather.tap_step[i] = backward ? -dilation : dilation, gather.stride[i] = backward ? stride : 1;
  }
  const Launch launch(out.device);
  const cuda_detail::GatherCall call{gather,
                                     static_cast<uint32_t>(groups),
                                     gather.stride[0] > 1 || gather.stride[1] > 1,
                                     out.dtype,
                                     out.device,
                                     in.data,
                                     mask,
                                     w.data,
                                     bias,
                                     relu,
                                     out.data};
  const auto mode = cuda_detail::math_mode_for(out.dtype, out.device);
  const bool fits = mode && gather.depth > 0 &&
                    2 * static_cast<size_t>(channels) * size_of(out.dtype) >= cuda_detail::kRowBytes &&
                    static_cast<size_t>(channels) * size_of(out.dtype) % sizeof(cuda_detail::Vec16) == 0 &&
                    std::max(cuda_detail::span_of(in), cuda_detail::span_of(out)) < cuda_detail::kShortSpan;
  const bool stencil = cuda_detail::has_stencil(in, w, rows, geometry),
             direct = rows <= cuda_detail::kDirectRows && !call.strided,
             exact = in.strides[1] != 1 &&  // else implicit_gather() loads four channels at once
                     cuda_detail::has_exact_gather(in, out, groups, call.strided);
  const char* implementation = stencil  ? "stencil"
                               : direct ? "direct"
                               : exact  ? "fma"
                               : fits   ? cuda_detail::implicit_name(*mode)
                                        : "tiled";
  EventScope event(name, "cuda", implementation, {&in, &w}, flops(w, backward ? in : View(out)));
  if (stencil) cuda_detail::stencil_gather(call, launch);
  else if (direct) cuda_detail::direct_gather(call, launch);
  else if (exact) cuda_detail::fma_gather(call, launch);
  else if (fits) cuda_detail::implicit_gather(call, *mode, launch);
  else cuda_detail::tiled_gather(call, launch);
}

}  // namespace

std::optional<cuda_detail::MathMode> cuda_detail::math_mode_for(DType dtype, Device device) {
  const bool tensor_cores = compute_capability(device.index) >= 80;
  if (dtype == DType::f32) return tensor_cores && cuda::matmul_allow_tf32() ? MathMode::tf32 : MathMode::fma;
  if (dtype == DType::f64 || !tensor_cores) return std::nullopt;
  return MathMode::half;
}

bool cuda_detail::has_exact_gather(const View& in, const StridedLayout& out, int64_t groups, bool strided) {
  return math_mode_for(in.dtype, in.device) == MathMode::fma && compute_capability(in.device.index) >= 80 &&
         in.numel() > 0 && in.shape[1] / groups % kRowDepth<float> == 0 && out.shape[1] / groups > kDirectRows &&
         (!strided || in.strides[1] != 1) && std::max(span_of(in), span_of(out)) < kShortSpan;
}

const char* cuda_detail::implicit_name(MathMode mode) {
  switch (mode) {
    case MathMode::fma: return "implicit_fma";
    case MathMode::tf32: return "implicit_tf32";
    case MathMode::half: return "implicit_half";
  }
  return "";
}

void CudaBackend::conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) {
  conv2d_bias_relu(x, w, nullptr, false, y, geometry);
}

void CudaBackend::conv2d_bias_relu(const View& x, const View& w, const View* bias, bool relu, const MutableView& y,
                                   const Conv2dGeometry& geometry) {
  Array packed_bias;
  if (bias && bias->strides[0] != 1) {
    packed_bias = Array::empty(bias->shape, bias->dtype, bias->device);
    copy(*bias, packed_bias);
  }
  const char* name = bias || relu ? "conv2d_bias_relu" : "conv2d";
  const void* bias_data = packed_bias.defined() ? packed_bias.data() : bias ? bias->data : nullptr;
  const auto walk = cuda_detail::thin_walk(x, w, y, geometry);
  if (!walk) return by_gathering(name, false, x, nullptr, w, bias_data, relu, y, geometry);
  EventScope event(name, "cuda", "thin", {&x, &w}, flops(w, y));
  cuda_detail::thin_forward(*walk, x, w, bias_data, relu, y);
}

void CudaBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                       const Conv2dGeometry& geometry) {
  by_gathering("conv2d_backward_data", true, dy, nullptr, w, nullptr, false, dx, geometry);
}

void CudaBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                         const Conv2dGeometry& geometry) {
  cuda_detail::conv2d_weight_gradient(dy, nullptr, x, dw, nullptr, geometry);
}

// The weights' gradient of few channels reads each dy once and masks it on the way, and so does a stencil; other
// kernels read each many times, so that it pays to mask them first. The sum for dbias rides on the weights' gradient.
void CudaBackend::conv2d_bias_relu_backward(const View& dy, const View& x, const View& w, const View* y_if_relu,
                                            const MutableView* dx, const MutableView* dw, const MutableView* dbias,
                                            const Conv2dGeometry& geometry, const MutableView* masked) {
  const int64_t filters = w.shape[0] / geometry.groups;
  const bool dx_masks =
      !dx || (filters <= cuda_detail::kDirectRows && cuda_detail::has_stencil(dy, w, w.shape[1], geometry));
  const bool masks = !y_if_relu || (y_if_relu->strides == dy.strides && dx_masks && dw &&
                                    cuda_detail::weight_gradient_takes_mask(dy, x, *dw, geometry));
  Array scratch;
  const View gradient = masks ? dy : masked_by_relu(dy, *y_if_relu, masked, scratch);
  const void* mask = masks && y_if_relu ? y_if_relu->data : nullptr;
  if (dx && mask) by_gathering("conv2d_backward_data", true, dy, mask, w, nullptr, false, *dx, geometry);
  else if (dx) conv2d_backward_data(gradient, w, *dx, geometry);
  if (dw) cuda_detail::conv2d_weight_gradient(gradient, mask, x, *dw, dbias, geometry);
  else Backend::conv2d_bias_relu_backward(gradient, x, w, nullptr, nullptr, nullptr, dbias, geometry);
}

}  // namespace gradus
