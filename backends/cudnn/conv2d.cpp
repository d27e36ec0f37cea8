// Convolutions by cuDNN, where select() (backends/cuda/conv2d/select.h) leaves them to the library. cuDNN's engines
// need operands that are all NCHW or all NHWC. Operands in another layout than the plan's are copied; nothing is copied
// in a net that is channels-last throughout.
#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/backends/cudnn/conv_plan.h>
#include <gradus/backends/cudnn/cudnn.h>
#include <gradus/backends/cudnn/cudnn_backend.h>
#include <gradus/core/binary_ops.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/unary_ops.h>

namespace gradus {
namespace {

using cuda_detail::ConvOperand;
using cuda_detail::ConvPass;
using Library = cuda_detail::ConvSwitches::Library;

// A convolution with its operands. `out` is the result: one of x, w and y.
struct Convolution {
  cuda_detail::ConvProblem problem;
  const View x, w, y;
  const MutableView& out;
  View bias;

  Convolution(ConvPass pass, const View& x, const View& w, const View& y, const MutableView& out,
              const Conv2dGeometry& geometry)
      : problem{pass, y.dtype, ConvOperand(x), ConvOperand(w), ConvOperand(y), geometry}, x(x), w(w), y(y), out(out) {}

  /// The plan if select() leaves the convolution to cuDNN; empty if a kernel of the base class computes it.
  std::optional<cuda_detail::ConvPlan> plan(Library library) const {
    const cuda_detail::DeviceProperties& device = cuda_detail::device_properties(y.device.index());
    const cuda_detail::ConvSwitches switches = {.tf32 = cuda::matmul_allow_tf32(),
                                                .library = library,
                                                .library_tf32 = cudnn::allow_tf32(),
                                                .small_convolutions = cudnn::small_convolutions(),
                                                .workspace_limit = cudnn::workspace_limit()};
    if (choose(problem, device, switches).algorithm != cuda_detail::ConvAlgorithm::library) return std::nullopt;
    return select(problem, device, switches);
  }
  int64_t flops() const { return 2 * y.numel() * w.numel() / w.shape[0]; }
};

// The convolution in cuDNN's terms.
cudnn_detail::ConvProblem request(const Convolution& c, const cuda_detail::ConvPlan& plan) {
  const auto sizes = [](const View& view) {
    return std::array<int64_t, 4>{view.shape[0], view.shape[1], view.shape[2], view.shape[3]};
  };
  const Conv2dGeometry& geometry = c.problem.geometry;
  return {.pass = c.problem.pass,
          .bias = plan.fused && c.problem.bias,
          .relu = plan.fused && c.problem.relu,
          .dtype = c.problem.dtype,
          .channels_last = plan.channels_last,
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
          .workspace_limit = plan.workspace_bytes};
}

// An operand as engines need it: dense, aligned and in the layout of the plan. If it is not, a copy takes its place.
class Reachable {
 public:
  Reachable(Backend& backend, const View& x, bool channels_last, bool is_result) : data_(x.data) {
    const ConvOperand operand(x);
    if (operand.alignment == cudnn_detail::kAlignment && operand.is_dense(channels_last)) return;
    copy_ = Array::empty_strided(x.shape, channels_last ? channels_last_strides(x.shape) : contiguous_strides(x.shape),
                                 x.dtype, x.device);
    if (!is_result) backend.copy(x, copy_);
    data_ = copy_.data();
  }
  const void* data() const { return data_; }
  /// Copies the result to `out` if it is in a copy.
  void deliver(Backend& backend, const MutableView& out) const {
    if (copy_.defined()) backend.copy(copy_, out);
  }

 private:
  const void* data_;
  Array copy_;
};

// Runs an engine of cuDNN as planned; returns false if none supports the problem.
bool run_engine(Backend& backend, const char* name, const Convolution& c, const cuda_detail::ConvPlan& plan) {
  const ConvPass pass = c.problem.pass;
  const Reachable x(backend, c.x, plan.channels_last, pass == ConvPass::backward_data);
  const Reachable w(backend, c.w, plan.channels_last, pass == ConvPass::backward_weight);
  const Reachable y(backend, c.y, plan.channels_last, pass == ConvPass::forward);
  Array packed_bias;
  const void* bias = plan.fused ? c.bias.data : nullptr;
  if (bias && (c.bias.strides[0] != 1 || ConvOperand::alignment_of(bias) < cudnn_detail::kAlignment)) {
    packed_bias = Array::empty(c.bias.shape, c.bias.dtype, c.bias.device);
    backend.copy(c.bias, packed_bias);
    bias = packed_bias.data();
  }
  const cudnn_detail::ConvOperands operands{x.data(), w.data(), y.data(), bias};
  const cudnn_detail::ConvPlan* engine = cudnn_detail::find_plan(request(c, plan), operands);
  if (!engine) return false;
  {
    EventScope event(name, "cudnn", plan.name(), {&c.x, &c.w, &c.y}, c.flops(), plan.reason());
    engine->run(operands);
  }
  (pass == ConvPass::forward ? y : pass == ConvPass::backward_data ? x : w).deliver(backend, c.out);
  return true;
}

// The filters of flip_transpose(): a copy of w (K, C, R, S) as (C, K, R, S), with the taps in reverse order.
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

// Tries the plans that select() leaves to cuDNN, first with all that cuDNN may do (Library::full), then as a plain
// convolution, and returns the plan that ran. Empty if the base class has to compute the convolution.
std::optional<cuda_detail::ConvPlan> run_library(Backend& backend, const char* name, const Convolution& c) {
  for (const Library library : {Library::full, Library::plain}) {
    const auto plan = c.plan(library);
    if (!plan) break;
    if (plan->flipped) {
      const cuda_detail::ConvProblem flipped = flip_transpose(c.problem);
      const Array filters = flip_transpose_filters(backend, c.w, flipped.w);
      if (run_engine(backend, name, {ConvPass::forward, c.y, filters, c.x, c.out, flipped.geometry}, *plan))
        return plan;
      continue;
    }
    const bool plain = c.problem.pass == ConvPass::forward && !plan->fused;
    if (run_engine(backend, plain ? "conv2d" : name, c, *plan)) return plan;
    if (!plan->fused) break;
  }
  return std::nullopt;
}

// The bias (K) as (1, K, 1, 1), broadcast to the shape of y.
View along_channels(const View& bias, const Shape& shape) {
  View wide = bias;
  wide.shape = shape, wide.strides = {0, bias.strides[0], 0, 0};
  return wide;
}

}  // namespace

// If the engine does not include bias and ReLU, separate kernels apply them.
void CudnnBackend::conv2d_bias_relu(const Conv2dArgs& args) {
  const View& bias = args.bias;
  const MutableView& y = args.y;
  Convolution c(ConvPass::forward, args.x, args.w, y, y, args.geometry);
  c.bias = bias, c.problem.bias = static_cast<bool>(bias), c.problem.relu = args.relu;
  const auto plan = run_library(*this, bias || args.relu ? "conv2d_bias_relu" : "conv2d", c);
  if (!plan) return CudaBackend::conv2d_bias_relu(args);
  if (plan->fused) return;
  if (bias) binary(BinaryOp::add, y, along_channels(bias, y.shape), y);
  if (args.relu) unary(UnaryOp::relu, y, y, {});
}

void CudnnBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                        const Conv2dGeometry& geometry) {
  if (!run_library(*this, "conv2d_backward_data", {ConvPass::backward_data, dx, w, dy, dx, geometry}))
    CudaBackend::conv2d_backward_data(dy, w, dx, geometry);
}

void CudnnBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                          const Conv2dGeometry& geometry) {
  if (!run_library(*this, "conv2d_backward_weight", {ConvPass::backward_weight, x, dw, dy, dw, geometry}))
    CudaBackend::conv2d_backward_weight(dy, x, dw, geometry);
}

// If a kernel of the base class computes dw, it also applies the mask. Otherwise dy is masked once for all three
// gradients.
void CudnnBackend::conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) {
  const View& dw = args.dw;
  if (dw && !Convolution(ConvPass::backward_weight, args.x, dw, args.dy, args.dw, args.geometry).plan(Library::full))
    return CudaBackend::conv2d_bias_relu_backward(args);
  Backend::conv2d_bias_relu_backward(args);
}

std::unique_ptr<Backend> make_cudnn_backend() { return std::make_unique<CudnnBackend>(); }

}  // namespace gradus
