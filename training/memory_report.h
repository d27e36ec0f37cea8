// plan() reports how much memory a training step will take, exactly and before anything runs.
//
//   const MemoryReport report = plan(net, {64, 1, 28, 28}, optimizer);
//   std::cout << report;                                            // parameters, gradients, activations, …, peak
//   int64_t images = largest_batch(net, {1, 3, 96, 96}, optimizer, int64_t{8} << 30);
//
// plan() records the step on arrays without memory (graph/recorder.h). It computes nothing and changes neither the
// model nor the optimizer. The reported peak is the one that the allocator of the model's device would count
// (MemoryStats::peak_allocated) with the current backend and, on the CPU, the current number of threads.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>

#include <gradus/layers/module/containers.h>
#include <gradus/optim/optimizer.h>

namespace gradus {

struct PlanOptions {
  /// Computes the loss from the model's output. Default: cross_entropy.
  GRADUS_ARG(std::function<Tensor(const Tensor& output, const Tensor& target)>, loss);
  /// Shape and type of the target. Default: (N) int64, where N is the input's size along batch_axis.
  GRADUS_ARG(std::optional<Shape>, target_shape);
  GRADUS_ARG(DType, target_dtype) = DType::i64;
  GRADUS_ARG(DType, input_dtype) = DType::f32;
  /// The axis of the input along which the images or sequences of a batch are.
  GRADUS_ARG(int, batch_axis) = 0;
  /// If set, the forward pass and the loss run under amp::Autocast with this type.
  GRADUS_ARG(std::optional<DType>, autocast) = absent<DType>();
};

enum class MemoryKind : uint8_t {
  parameters,       ///< parameters and buffers of the model
  optimizer_state,  ///< state tensors, scalars that kernels read, half-precision copies of parameters
  inputs,           ///< inputs and targets
  gradients,        ///< gradients of parameters
  activations,      ///< all memory that the forward pass allocates
  recomputed,       ///< memory for activations that the backward pass computes again
  backward,         ///< other memory that the backward pass allocates, mostly for gradients of activations
  optimizer,        ///< temporary memory that the optimizer's step allocates
  workspace,        ///< scratch memory of kernels
};
constexpr int kMemoryKinds = 9;
const char* name(MemoryKind kind);

/// A piece of memory that the eager step allocates, or that exists during the whole step.
struct MemorySpan {
  MemoryKind kind = MemoryKind::activations;
  int64_t bytes = 0;
  int64_t begin = 0, end = 0;  ///< allocated and released at these times (MemoryReport::timeline)
  std::string module, op;      ///< what allocates it: "features.3", "conv2d"; op of a gradient: its parameter
};

/// The memory of a step in bytes.
struct MemoryReport {
  int64_t parameters = 0, buffers = 0, inputs = 0, optimizer_state = 0;
  int64_t gradients = 0;    ///< of all parameters; with DistributedDataParallel, the size of its buckets
  int64_t activations = 0;  ///< memory that the forward pass leaves for the backward pass, including the loss
  int64_t workspace = 0;    ///< the most scratch memory that one kernel needs
  /// The most memory that is in use at any time of the eager step, including parameters, buffers, inputs and optimizer
  /// state. Equals the sum of at_peak.
  int64_t peak = 0;
  int64_t at_peak[kMemoryKinds] = {};  ///< the memory of each MemoryKind at the time of the peak
  /// The memory of the same step as a training::StaticStep. static_arena is the size of its arena; static_lower_bound
  /// is a lower bound for the arena of any memory plan with this order of calls. static_peak does not include the batch
  /// that the caller passes, which the step copies to its own inputs.
  int64_t static_arena = 0, static_lower_bound = 0, static_peak = 0;
  /// FLOPs of the forward pass, and of the operators that the backward pass computes again, estimated from shapes.
  double forward_flops = 0, recomputed_flops = 0;

  /// All pieces of memory, sorted by begin. The unit of time is one allocation or release since the start of the step.
  /// backward_begin, step_begin and end are the times at which the backward pass begins, the optimizer's step begins,
  /// and the step ends.
  std::vector<MemorySpan> timeline;
  int64_t backward_begin = 0, step_begin = 0, end = 0, peak_time = 0;

  std::string str() const;  ///< the report as a table
};
std::ostream& operator<<(std::ostream& stream, const MemoryReport& report);

/// The type of the parameter `model` of plan() and related functions. It is constructed implicitly from an AnyModule, a
/// module's holder, or a shared_ptr to a module.
struct PlannedModel : nn::AnyModule {
  template <class Model>
  requires std::is_constructible_v<nn::AnyModule, const Model&> PlannedModel(const Model& model)  // NOLINT
      : nn::AnyModule(model) {}
};

/// Reports the memory of a training step: zero_grad, forward, loss, backward and optimizer step. It is a later step
/// than the first, so the optimizer already has its state. A model on several devices is a DeviceError, an optimizer
/// without a rule (has_rule()) a ValueError. A step that cannot be recorded, because it reads a number back from the
/// device, is an error that names the line.
MemoryReport plan(const PlannedModel& model, const Shape& input_shape, optim::Optimizer& optimizer,
                  const PlanOptions& options = {});
/// Reports the memory of a forward pass under NoGradGuard.
MemoryReport plan(const PlannedModel& model, const Shape& input_shape, const PlanOptions& options = {});

/// Returns the largest batch size for which the eager step's peak is at most `bytes`, or 0 if even a batch of one is
/// too large. The size of `input_shape` along batch_axis is ignored.
int64_t largest_batch(const PlannedModel& model, Shape input_shape, optim::Optimizer& optimizer, int64_t bytes,
                      const PlanOptions& options = {});

}  // namespace gradus
