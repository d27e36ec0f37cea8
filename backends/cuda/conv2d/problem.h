// A convolution as the choice of its algorithm sees it: shapes, strides, alignments and what the user allows. Host code
// without CUDA, so that decisions can be tested, and memory planned, on machines without a GPU.
#pragma once

#include <algorithm>
#include <optional>

#include <gradus/backends/cuda/device/tuning.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// The result of a convolution: y (fprop), dx (dgrad) or dw (wgrad). fprop and dgrad are the same kind of implicit
/// GEMM, which computes `out` from `in`: y from x, and dx from dy.
enum class ConvPass : uint8_t { forward, backward_data, backward_weight };

/// Offsets below this limit fit in 32 bits even after the offset of any tap is added.
inline constexpr int64_t kShortSpan = int64_t{1} << 29;

/// Shape, strides and alignment of an operand.
struct ConvOperand {
  Shape shape;
  Strides strides;
  int64_t alignment = 16;  ///< the largest power of two up to 16 that divides the address

  ConvOperand() = default;
  ConvOperand(Shape shape, Strides strides) : shape(std::move(shape)), strides(std::move(strides)) {}
  explicit ConvOperand(const View& view)
      : shape(view.shape), strides(view.strides), alignment(alignment_of(view.data, 16)) {}

  bool operator==(const ConvOperand&) const = default;
  int64_t numel() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  /// The largest distance in elements between two elements.
  int64_t span() const;
  /// Returns true if the elements are dense in NHWC (channels_last) or NCHW order. Axes of size 1 may have any stride.
  bool is_dense(bool channels_last) const;
};

/// What the user allows.
struct ConvSwitches {
  bool tf32 = false;                                     ///< our kernels may use TF32: cuda::matmul_allow_tf32()
  bool library_tf32 = true, small_convolutions = false;  ///< options of cuDNN in core/runtime/cuda.h
  size_t workspace_limit = size_t{256} << 20;            ///< option of cuDNN in core/runtime/cuda.h
  bool timed = false;                                    ///< cudnn::benchmark()
  bool operator==(const ConvSwitches&) const = default;
};

struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  DType dtype = DType::f32;
  ConvOperand x, w, y;  ///< (N, C, H, W), (K, C / groups, R, S), (N, K, P, Q), or their gradients
  Conv2dGeometry geometry;
  bool bias = false, relu = false;  ///< whether the result includes them; backward_weight: whether dbias is wanted
  int64_t mask_alignment = 0;       ///< alignment of the mask (ConvOperands::mask); 0 if there is none
  ConvSwitches switches;
  DeviceProperties device = kH200;
  bool operator==(const ConvProblem& other) const;

  /// The image operand that is read at the taps (`in`), and the one whose positions read it (`out`). backward_weight
  /// has the operands of forward.
  const ConvOperand& in() const { return pass == ConvPass::backward_data ? y : x; }
  const ConvOperand& out() const { return pass == ConvPass::backward_data ? x : y; }
  bool is_wgrad() const { return pass == ConvPass::backward_weight; }
  bool is_strided() const { return geometry.stride[0] > 1 || geometry.stride[1] > 1; }
  bool is_half() const { return dtype == DType::f16 || dtype == DType::bf16; }
  int64_t element() const { return static_cast<int64_t>(size_of(dtype)); }

  // Sizes per group: K and C; R S and C R S; for fprop and dgrad, the channels of `out` and of `in`.
  int64_t filters() const { return w.shape[0] / geometry.groups; }
  int64_t channels() const { return w.shape[1]; }
  int64_t kernel() const { return w.shape[2] * w.shape[3]; }
  int64_t taps() const { return channels() * kernel(); }
  int64_t rows() const { return pass == ConvPass::forward ? filters() : channels(); }
  int64_t depth_channels() const { return pass == ConvPass::forward ? channels() : filters(); }

  /// The kind of a problem is its pass, type (float32, half, float64) and layout. Each kind has its own factors in the
  /// tuning table.
  size_t kind() const;
  /// All devices have the factors of an H200.
  size_t device_index() const { return 0; }

  /// Returns true if nothing has to be computed.
  bool is_empty() const { return is_wgrad() ? filters() == 0 || (taps() == 0 && !bias) : out().numel() == 0; }
  /// Returns true if every operand has elements, and fewer than 2^31.
  bool has_ordinary_sizes() const {
    const auto is_ordinary = [](const ConvOperand& x) { return x.numel() > 0 && x.numel() < int64_t{1} << 31; };
    return is_ordinary(x) && is_ordinary(w) && is_ordinary(y);
  }
  /// The mode in which our kernels for tensor cores multiply operands of this type on the device. It is fma if float32
  /// must stay exact, and empty for float64 and for half types on a device without tensor cores.
  std::optional<MathMode> math_mode() const {
    const bool tensor_cores = device.has_tensor_cores();
    if (dtype == DType::f32) return tensor_cores && switches.tf32 ? MathMode::tf32 : MathMode::fma;
    return dtype == DType::f64 || !tensor_cores ? std::nullopt : std::optional(MathMode::half);
  }
  /// Returns true for float32 that cuDNN, too, must keep exact.
  bool is_library_exact() const { return dtype == DType::f32 && !(switches.library_tf32 && device.has_tensor_cores()); }
  /// Returns true for exact float32 on a device with cp.async.
  bool is_async_fma() const { return math_mode() == MathMode::fma && device.has_async_copies(); }
};

/// The problem of a call, with the switches in force (conv2d.cu).
ConvProblem conv_problem(ConvPass pass, const View& x, const View& w, const View& y, const Conv2dGeometry& geometry);

}  // namespace gradus::cuda_detail
