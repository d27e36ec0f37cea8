// Predicts the memory of a training step exactly, before anything runs.
//
//   const MemoryReport report = plan(net, {64, 1, 28, 28}, optimizer);
//   std::cout << report;                                            // parameters, gradients, activations, …, peak
//   int64_t images = largest_batch(net, {1, 3, 96, 96}, optimizer, int64_t{8} << 30);
//
// The step is recorded with arrays without memory (graph/recorder.h). This computes nothing and changes neither
// the model nor the optimizer. The peak is that of the allocator of the model's device (MemoryStats::peak_allocated),
// for the current backend and, on the CPU, the current number of threads.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>

#include <gradus/layers/module/containers.h>
#include <gradus/optim/optimizer.h>

namespace gradus {

struct PlanOptions {
  /// The loss of the model's output. Default: cross_entropy.
  GRADUS_ARG(std::function<Tensor(const Tensor& output, const Tensor& target)>, loss);
  /// Shape and type of the target. Default: (N), int64, where N is the input's size along batch_axis.
  GRADUS_ARG(std::optional<Shape>, target_shape);
  GRADUS_ARG(DType, target_dtype) = DType::i64;
  GRADUS_ARG(DType, input_dtype) = DType::f32;
  /// The axis of the input that counts images or sequences.
  GRADUS_ARG(int, batch_axis) = 0;
  /// If set, the forward pass and the loss run under amp::Autocast with this type.
  GRADUS_ARG(std::optional<DType>, autocast) = absent<DType>();
};

enum class MemoryKind : uint8_t {
  parameters,       ///< and buffers
  optimizer_state,  ///< including the scalars that its kernels read and copies of parameters in half types
  inputs,           ///< and targets
  gradients,        ///< of parameters
  activations,      ///< everything that the forward pass allocates
  recomputed,       ///< activations that the backward pass computes again
  backward,         ///< other memory of the backward pass, mostly gradients of activations
  optimizer,        ///< temporary memory of the optimizer's step
  workspace,        ///< scratch memory of kernels
};
constexpr int kMemoryKinds = 9;
const char* name(MemoryKind kind);

/// A piece of memory of the eager step.
struct MemorySpan {
  MemoryKind kind = MemoryKind::activations;
  int64_t bytes = 0;
  int64_t begin = 0, end = 0;  ///< times, at most MemoryReport::end
  std::string module, op;      ///< where it is allocated: "features.3", "conv2d"; for a gradient, op is the parameter
};

/// The memory of a step in bytes.
struct MemoryReport {
  int64_t parameters = 0, buffers = 0, inputs = 0, optimizer_state = 0;
  int64_t gradients = 0;    ///< of all parameters; with DistributedDataParallel, its buckets
  int64_t activations = 0;  ///< kept from the forward for the backward pass, including the loss
  int64_t workspace = 0;    ///< the largest scratch memory of a kernel
  /// The peak of the eager step, including parameters, buffers, inputs and state. The sum of at_peak.
  int64_t peak = 0;
  int64_t at_peak[kMemoryKinds] = {};  ///< the parts of the peak, by MemoryKind
  /// The same step as a training::StaticStep: its arena, a lower bound for any plan of this order of calls, and the
  /// peak, which does not include the caller's batch.
  int64_t static_arena = 0, static_lower_bound = 0, static_peak = 0;
  /// FLOPs of the forward pass and of what the backward pass computes again, estimated from shapes.
  double forward_flops = 0, recomputed_flops = 0;

  /// Sorted by begin. A time is the number of allocations and releases before it.
  std::vector<MemorySpan> timeline;
  int64_t backward_begin = 0, step_begin = 0, end = 0, peak_time = 0;

  std::string str() const;  ///< as a table
};
std::ostream& operator<<(std::ostream& stream, const MemoryReport& report);

/// What is planned: an AnyModule, a holder of a module, or a shared_ptr to one.
struct PlannedModel : nn::AnyModule {
  template <class Model>
  requires std::is_constructible_v<nn::AnyModule, const Model&> PlannedModel(const Model& model)  // NOLINT
      : nn::AnyModule(model) {}
};

/// Of a training step: zero_grad, forward, loss, backward, optimizer step, where the optimizer has its state already. A
/// model on several devices is a DeviceError, an optimizer without a rule (has_rule()) a ValueError; what cannot be
/// recorded (a forward that reads a number back) is an error that names the line.
MemoryReport plan(const PlannedModel& model, const Shape& input_shape, optim::Optimizer& optimizer,
                  const PlanOptions& options = {});
/// Plans a forward pass under NoGradGuard.
MemoryReport plan(const PlannedModel& model, const Shape& input_shape, const PlanOptions& options = {});

/// The largest batch for which the eager step's peak is at most `bytes`, or 0 if even a batch of one is too large. The
/// input's size along batch_axis is ignored.
int64_t largest_batch(const PlannedModel& model, Shape input_shape, optim::Optimizer& optimizer, int64_t bytes,
                      const PlanOptions& options = {});

}  // namespace gradus
