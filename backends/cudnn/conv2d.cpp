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

using namespace cuda_detail;

// Describes the convolution for find_engine(). fused: the engine also applies bias and ReLU.
EngineRequest request(const ConvOperands& call, bool fused) {
  const ConvProblem& problem = call.problem;
  const auto sizes = [](const ConvOperand& operand) {
    return std::array<int64_t, 4>{operand.shape[0], operand.shape[1], operand.shape[2], operand.shape[3]};
  };
  const auto& tiling = std::get<LibraryTiling>(call.plan->tiling);
  const Conv2dGeometry& geometry = problem.geometry;
  return {.pass = problem.pass,
          .bias = fused && problem.bias,
          .relu = fused && problem.relu,
          .dtype = problem.dtype,
          .channels_last = tiling.channels_last,
          .x = sizes(problem.x),
          .w = sizes(problem.w),
          .y = sizes(problem.y),
          .stride = std::to_array(geometry.stride),
          .padding = std::to_array(geometry.padding),
          .dilation = std::to_array(geometry.dilation),
          .device = call.out.device.index(),
          .tf32 = call.plan->math_mode == MathMode::tf32,
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

// The bias (K) as (1, K, 1, 1), broadcast to `shape`.
View along_channels(const View& bias, const Shape& shape) {
  View wide = bias;
  wide.shape = shape, wide.strides = {0, bias.strides[0], 0, 0};
  return wide;
}

// An operand that is dense, aligned and in the layout of the plan, as engines need it: the view itself, which may be
// absent, or a copy.
class Reachable {
 public:
  Reachable(Backend& backend, const View& x, bool channels_last, bool is_result) : x_(x), data_(x.data) {
    if (!x.data) return;
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
bool run_engine(const ConvOperands& call, bool fused) {
  Backend& backend = call.backend;
  const ConvPass pass = call.problem.pass;
  const bool channels_last = std::get<LibraryTiling>(call.plan->tiling).channels_last;
  const Reachable x(backend, call.x(), channels_last, pass == ConvPass::backward_data);
  const Reachable w(backend, call.weight, channels_last, pass == ConvPass::backward_weight);
  const Reachable y(backend, call.y(), channels_last, pass == ConvPass::forward);
  const View bias_or_none = fused && call.bias ? along_channels(call.bias, {1, call.bias.shape[0], 1, 1}) : View();
  const Reachable bias(backend, bias_or_none, channels_last, false);
  const EngineOperands operands{x.data(), w.data(), y.data(), bias.data()};
  const Engine* engine = find_engine(request(call, fused), operands);
  if (!engine) return false;
  {
    const char* const name = pass == ConvPass::forward && !fused ? "conv2d" : call.name;
    EventScope event(name, "cudnn", call.algorithm->name, {&call.x(), &call.weight, &call.y()}, call.flops(),
                     call.algorithm->reason);
    engine->run(operands);
  }
  (pass == ConvPass::forward ? y : pass == ConvPass::backward_data ? x : w).deliver(backend);
  return true;
}

}  // namespace

bool launch_fused(const ConvOperands& call) { return run_engine(call, true); }

bool launch_engine(const ConvOperands& call) {
  if (!run_engine(call, false)) return false;
  if (call.problem.pass != ConvPass::forward) return true;
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
  using namespace cuda_detail;
  const auto is_for_library = [&] {
    const ConvProblem problem = conv_problem(ConvPass::backward_weight, args.x, args.dw, args.dy, args.geometry);
    const ConvOperands call = {*this, "conv2d_backward_weight", problem, args.x, args.dw, {}, args.dy};
    return choice_for(call, conv_family()).algorithm->is_library;
  };
  if (args.dw && !is_for_library()) return CudaBackend::conv2d_bias_relu_backward(args);
  Backend::conv2d_bias_relu_backward(args);
}

}  // namespace gradus
