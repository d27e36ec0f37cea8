// The memory of a training step, known to the byte before anything runs.
//
//   const MemoryReport report = plan(net, {64, 1, 28, 28}, optimizer);
//   std::cout << report;                                            // parameters, gradients, activations, …, peak
//   int64_t images = largest_batch(net, {1, 3, 96, 96}, optimizer, int64_t{8} << 30);
//
// The step is written down on arrays without memory (graph/recorder.h): it computes nothing, and changes neither
// the model nor the optimizer. The peak is the allocator's (MemoryStats::peak_allocated) of the model's device, on the
// current backend and, on the CPU, with the current number of threads.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>

#include <gradus/layers/any_module.h>
#include <gradus/optim/kernel_optimizer.h>

namespace gradus {

struct PlanOptions {
  /// The loss of the model's output. Default: cross_entropy.
  GRADUS_ARG(std::function<Tensor(const Tensor& output, const Tensor& target)>, loss);
  /// Shape and type of the target; by default (N), int64, with the input's size N along batch_axis.
  GRADUS_ARG(std::optional<Shape>, target_shape);
  GRADUS_ARG(DType, target_dtype) = DType::i64;
  GRADUS_ARG(DType, input_dtype) = DType::f32;
  /// The axis of the input that images or sequences are counted along.
  GRADUS_ARG(int, batch_axis) = 0;
  /// Forward and loss run under amp::Autocast with this type.
  GRADUS_ARG(std::optional<DType>, autocast) = absent<DType>();
};

enum class MemoryKind : uint8_t {
  parameters,       ///< and buffers
  optimizer_state,  ///< with the numbers that its kernels read, and the half copies of parameters that they write
  inputs,           ///< and targets
  gradients,        ///< of parameters
  activations,      ///< what forward makes
  recomputed,       ///< activations that backward makes again
  backward,         ///< what it makes besides, gradients of activations above all
  optimizer,        ///< what the optimizer's step makes
  workspace,        ///< what kernels take for themselves
};
constexpr int kMemoryKinds = 9;
const char* name(MemoryKind kind);

/// A piece of memory of the eager step.
struct MemorySpan {
  MemoryKind kind = MemoryKind::activations;
  int64_t bytes = 0;
  int64_t begin = 0, end = 0;  ///< times, MemoryReport::end at most
  std::string module, op;      ///< that it is made in: "features.3", "conv2d"; of gradients the parameter's name
};

/// In bytes.
struct MemoryReport {
  int64_t parameters = 0, buffers = 0, inputs = 0, optimizer_state = 0;
  int64_t gradients = 0;    ///< of all parameters; with DistributedDataParallel, its buckets
  int64_t activations = 0;  ///< what forward leaves for backward, the loss included
  int64_t workspace = 0;    ///< the most that a kernel takes for itself
  /// Of the eager step, with parameters, buffers, inputs and state: the sum of at_peak.
  int64_t peak = 0;
  int64_t at_peak[kMemoryKinds] = {};  ///< by MemoryKind
  /// The same step by training::StaticStep: its arena, what no plan of its order goes below, and the peak, to which the
  /// caller's batch comes.
  int64_t static_arena = 0, static_lower_bound = 0, static_peak = 0;
  /// Of the operations of forward, and of those that are run again in backward (an estimate by shapes).
  double forward_flops = 0, recomputed_flops = 0;

  /// In the order of their begin. Times count allocations and releases.
  std::vector<MemorySpan> timeline;
  int64_t backward_begin = 0, step_begin = 0, end = 0, peak_time = 0;

  std::string str() const;  ///< as a table
};
std::ostream& operator<<(std::ostream& stream, const MemoryReport& report);

/// Of a training step: zero_grad, forward, loss, backward, optimizer step, where the optimizer has its state already. A
/// model on several devices is a DeviceError, an optimizer that is no KernelOptimizer a ValueError; what cannot be
/// recorded (a forward that reads a number back) is an error that names the line.
MemoryReport plan(const nn::AnyModule& model, const Shape& input_shape, optim::Optimizer& optimizer,
                  const PlanOptions& options = {});
/// Of a forward pass under NoGradGuard.
MemoryReport plan(const nn::AnyModule& model, const Shape& input_shape, const PlanOptions& options = {});

/// The largest batch with which the eager step's peak is within `bytes`; 0 where one image is too much. The input's
/// size along batch_axis does not matter.
int64_t largest_batch(const nn::AnyModule& model, Shape input_shape, optim::Optimizer& optimizer, int64_t bytes,
                      const PlanOptions& options = {});

template <class M>
concept PlannableModule = !std::is_same_v<M, nn::AnyModule> && std::is_constructible_v<nn::AnyModule, const M&>;
template <PlannableModule M, class... Rest>
MemoryReport plan(const M& model, const Shape& input_shape, Rest&&... rest) {
  return plan(nn::AnyModule(model), input_shape, std::forward<Rest>(rest)...);
}
template <PlannableModule M>
int64_t largest_batch(const M& model, const Shape& input_shape, optim::Optimizer& optimizer, int64_t bytes,
                      const PlanOptions& options = {}) {
  return largest_batch(nn::AnyModule(model), input_shape, optimizer, bytes, options);
}

}  // namespace gradus
