// Runs the convolutions for which select() chooses cuDNN. cuDNN's engines need operands that are either all NCHW or all
// NHWC, so operands that do not have the plan's layout are copied. In a net that is channels-last throughout nothing is
// copied.
#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/backends/cudnn/cudnn_backend.h>
#include <gradus/backends/cudnn/engine.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace cudnn_detail {
namespace {

using cuda_detail::ConvOperand;
using cuda_detail::ConvOperands;
using cuda_detail::ConvPlan;
using cuda_detail::ConvProblem;
using cuda_detail::LibraryTiling;

// The convolution that an engine computes: that of the call, or an equivalent one with other operands (flip_transpose).
struct Convolution {
  const char* name;  // the operator's name, for observers
  const ConvProblem& problem;
  const View &x, &w, &y;  // one of them is the result
  const View* bias;       // null: the engine computes neither bias nor ReLU
};

// Describes the convolution for find_engine().
EngineRequest request(const Convolution& c, const ConvPlan& plan) {
  const auto sizes = [](const View& view) {
    return std::array<int64_t, 4>{view.shape[0], view.shape[1], view.shape[2], view.shape[3]};
  };
  const auto& tiling = std::get<LibraryTiling>(plan.tiling);
  const Conv2dGeometry& geometry = c.problem.geometry;
  return {.pass = c.problem.pass,
          .bias = c.bias && c.problem.bias,
          .relu = c.bias && c.problem.relu,
          .dtype = c.problem.dtype,
          .channels_last = tiling.channels_last,
          .x = sizes(c.x),
          .w = sizes(c.w),
          .y = sizes(c.y),
          .stride = std::to_array(geometry.stride),
          .padding = std::to_array(geometry.padding),
          .dilation = std::to_array(geometry.dilation),
          .device = c.y.device.index(),
          .tf32 = plan.math_mode == cuda_detail::MathMode::tf32,
          .deterministic = cudnn::deterministic(),
          .timed = cudnn::benchmark(),
          .workspace_limit = tiling.workspace_limit};
}

MutableView writable(const View& view) {
  MutableView result;
  static_cast<StridedLayout&>(result) = view;
  result.data = const_cast<void*>(view.data);
  return result;
}

// An operand that is dense, aligned and in the layout of the plan, as engines need it: the view itself or a copy.
class Reachable {
 public:
  Reachable(Backend& backend, const View& x, bool channels_last, bool is_result) : x_(x), data_(x.data) {
    const ConvOperand operand(x);
    if (operand.alignment == kAlignment && operand.is_dense(channels_last)) return;
    copy_ = Array::empty_strided(x.shape, channels_last ? channels_last_strides(x.shape) : contiguous_strides(x.shape),
                                 x.dtype, x.device);
    if (!is_result) backend.copy(x, copy_);
    data_ = copy_.data();
  }
  const void* data() const { return data_; }
  /// If the engine wrote the result into a copy, copies it to the view.
  void deliver(Backend& backend) const {
    if (copy_.defined()) backend.copy(copy_, writable(x_));
  }

 private:
  const View& x_;
  const void* data_;
  Array copy_;
};

// Runs an engine of cuDNN as planned. Returns false if no engine supports the problem.
bool run_engine(const ConvPlan& plan, const ConvOperands& call, const Convolution& c) {
  Backend& backend = call.backend;
  const ConvPass pass = c.problem.pass;
  const bool channels_last = std::get<LibraryTiling>(plan.tiling).channels_last;
  const Reachable x(backend, c.x, channels_last, pass == ConvPass::backward_data);
  const Reachable w(backend, c.w, channels_last, pass == ConvPass::backward_weight);
  const Reachable y(backend, c.y, channels_last, pass == ConvPass::forward);
  Array packed_bias;
  const void* bias = c.bias ? c.bias->data : nullptr;
  if (bias && (c.bias->strides[0] != 1 || ConvOperand::alignment_of(bias) < kAlignment)) {
    packed_bias = Array::empty(c.bias->shape, c.bias->dtype, c.bias->device);
    backend.copy(*c.bias, packed_bias);
    bias = packed_bias.data();
  }
  const EngineOperands operands{x.data(), w.data(), y.data(), bias};
  const Engine* engine = find_engine(request(c, plan), operands);
  if (!engine) return false;
  {
    const int64_t flops = 2 * c.y.numel() * c.w.numel() / c.w.shape[0];
    EventScope event(c.name, "cudnn", call.algorithm->name, {&c.x, &c.w, &c.y}, flops, call.algorithm->reason);
    engine->run(operands);
  }
  (pass == ConvPass::forward ? y : pass == ConvPass::backward_data ? x : w).deliver(backend);
  return true;
}

// The filters of flip_transpose(): a copy of w (K, C, R, S) as (C, K, R, S), with rows and columns in reverse order.
Array flip_transpose_filters(Backend& backend, const View& w, const ConvOperand& flipped) {
  View from = w;
  std::swap(from.shape[0], from.shape[1]), std::swap(from.strides[0], from.strides[1]);
  const int64_t last = (w.shape[2] - 1) * w.strides[2] + (w.shape[3] - 1) * w.strides[3];
  from.data = static_cast<const std::byte*>(w.data) + last * static_cast<int64_t>(size_of(w.dtype));
  from.strides[2] = -w.strides[2], from.strides[3] = -w.strides[3];
  Array dense = Array::empty_strided(flipped.shape, flipped.strides, w.dtype, w.device);
  backend.copy(from, dense);
  return dense;
}

// The bias (K) as (1, K, 1, 1), broadcast to the shape of y.
View along_channels(const View& bias, const Shape& shape) {
  View wide = bias;
  wide.shape = shape, wide.strides = {0, bias.strides[0], 0, 0};
  return wide;
}

}  // namespace

bool launch_fused(const ConvPlan& plan, const ConvOperands& call, std::byte*) {
  return run_engine(plan, call, {call.name, call.problem, call.x(), call.weight, call.y(), &call.bias});
}

bool launch_flipped(const ConvPlan& plan, const ConvOperands& call, std::byte*) {
  const ConvProblem flipped = flip_transpose(call.problem);
  const Array filters = flip_transpose_filters(call.backend, call.weight, flipped.w);
  return run_engine(plan, call, {call.name, flipped, call.y(), View(filters), call.x(), nullptr});
}

bool launch_engine(const ConvPlan& plan, const ConvOperands& call, std::byte*) {
  const bool forward = call.problem.pass == ConvPass::forward;
  if (!run_engine(plan, call, {forward ? "conv2d" : call.name, call.problem, call.x(), call.weight, call.y(), nullptr}))
    return false;
  if (!forward) return true;
  const MutableView y = writable(call.y());
  if (call.problem.bias) call.backend.binary(BinaryOp::add, y, along_channels(call.bias, y.shape), y);
  if (call.problem.relu) call.backend.unary(UnaryOp::relu, y, y, {});
  return true;
}

}  // namespace cudnn_detail

const cuda_detail::ConvFamily& CudnnBackend::conv_family() const { return cudnn_detail::conv_family(); }

// If a kernel of the base class computes dw, that kernel also applies the mask of the ReLU to dy. If cuDNN computes dw,
// a separate kernel masks dy once, before the three gradients are computed.
void CudnnBackend::conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) {
  using cuda_detail::ConvPass;
  const auto is_for_library = [&] {
    const cuda_detail::ConvProblem problem =
        cuda_detail::conv_problem(ConvPass::backward_weight, args.x, args.dw, args.dy, args.geometry);
    const cuda_detail::ConvOperands call = {*this, "conv2d_backward_weight", problem, args.x, args.dw, {}, args.dy};
    return cuda_detail::choice_for(call, conv_family()).algorithm->is_library;
  };
  if (args.dw && !is_for_library()) return CudaBackend::conv2d_bias_relu_backward(args);
  Backend::conv2d_bias_relu_backward(args);
}

}  // namespace gradus
