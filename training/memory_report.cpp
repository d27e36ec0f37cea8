#include <gradus/training/memory_report.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <ostream>
#include <thread>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/engine.h>
#include <gradus/autograd/mixed_precision/half_copy.h>
#include <gradus/autograd/node.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/graph/memory_plan.h>
#include <gradus/graph/passes/passes.h>
#include <gradus/graph/recorder.h>
#include <gradus/optim/optimizer_state.h>

namespace gradus {
namespace {

/// Returns the bytes of the tensors' memory as the allocator of their device counts them. Memory that several tensors
/// share, for example shards, counts once, as do elements that an expanded tensor repeats.
int64_t bytes_of(const TensorList& tensors) {
  std::map<uintptr_t, uintptr_t> blocks;
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const Array& x = tensor.array();
    const size_t held = std::min(x.nbytes(), x.storage().bytes());
    const auto begin = reinterpret_cast<uintptr_t>(x.data());
    uintptr_t& end = blocks[begin];
    end = std::max(end, begin + static_cast<uintptr_t>(counted_bytes(held, tensor.device().type())));
  }
  uintptr_t reached = 0;
  for (const auto& [begin, end] : blocks) {
    const uintptr_t from = std::max(begin, reached);
    reached = std::max(from, end);
    bytes += static_cast<int64_t>(reached - from);
  }
  return bytes;
}

/// While it exists, the parameters have no gradients and no half-precision copies. The destructor restores both.
class WithoutGradients : NoCopy {
 public:
  explicit WithoutGradients(TensorList parameters) : parameters_(std::move(parameters)) {
    for (const Tensor& parameter : parameters_) {
      kept_.push_back(std::exchange(parameter.mutable_grad(), Tensor()));
      half_copies_.push_back(amp::detail::exchange_half_copy(parameter, nullptr));
    }
  }
  ~WithoutGradients() {
    for (size_t i = 0; i < kept_.size(); ++i) {
      amp::detail::drop_half_gradient(*parameters_[i].impl()->meta);  // it was only recorded, so it has no values
      parameters_[i].mutable_grad() = kept_[i];
      amp::detail::exchange_half_copy(parameters_[i], half_copies_[i]);
    }
  }

 private:
  const TensorList parameters_;
  TensorList kept_;
  std::vector<std::shared_ptr<amp::detail::HalfCopy>> half_copies_;
};

/// The inputs and the optimizer state that exist before the step, made of arrays without memory.
struct Before {
  Tensor x, target;
  std::unique_ptr<optim::FreshState> state;
  amp::detail::RecordedHalfCopies half_copies;

  Before(Device device, const Shape& shape, const TensorList& parameters, optim::Optimizer* optimizer,
         const PlanOptions& options) {
    const int axis = options.batch_axis();
    GRADUS_CHECK(axis >= 0 && axis < shape.size(), ValueError, "plan: an input of shape ", shape, " has no axis ", axis,
                 ", which PlanOptions::batch_axis names");
    graph::Recorder recorder(device);
    x = empty(shape, TensorOptions(options.input_dtype()).device(device));
    if (optimizer) {
      target = empty(options.target_shape().value_or(Shape{shape[axis]}),
                     TensorOptions(options.target_dtype()).device(device));
      state = std::make_unique<optim::FreshState>(*optimizer);
      if (options.autocast()) half_copies = amp::detail::RecordedHalfCopies(parameters, *options.autocast());
    }
    recorder.finish();
  }
};

/// Observes the operators that the backward pass computes again, and finds their calls of kernels in the recording.
/// Writes the operator's name for each of these calls to `ops`. The key is the number of the call in the recording.
class RecomputedCalls final : public Observer, NoCopy {
 public:
  RecomputedCalls(const graph::Recorder& recorder, std::map<size_t, std::string>& ops)
      : recorder_(recorder), ops_(ops) {
    add_observer(this);
  }
  ~RecomputedCalls() override { remove_observer(this); }

  void on_begin(const ObservedEvent& event) override {
    if (std::this_thread::get_id() != thread_ || !autograd::is_recomputing() || depth_++ > 0) return;
    op_ = event.name;
    first_ = recorder_.size();
  }
  void on_end(const ObservedEvent&) override {
    if (std::this_thread::get_id() != thread_ || !autograd::is_recomputing() || --depth_ > 0) return;
    for (size_t call = first_; call < recorder_.size(); ++call) ops_[call] = op_;
  }

 private:
  const graph::Recorder& recorder_;
  std::map<size_t, std::string>& ops_;
  const std::thread::id thread_ = std::this_thread::get_id();
  int depth_ = 0;
  std::string op_;
  size_t first_ = 0;
};

/// A recorded step.
struct Recorded {
  graph::Graph graph;
  int64_t backward_begin = 0, step_begin = 0, end = 0;
  size_t forward_calls = 0;
  std::map<size_t, std::string> recomputed;                    // names of recomputed operators, by number of the call
  std::vector<std::pair<const void*, std::string>> gradients;  // addresses of gradients, and names of their parameters
};

Recorded record(const nn::AnyModule& model, Before& before, optim::Optimizer* optimizer, const PlanOptions& options) {
  Recorded recorded;
  const Device device = before.x.device();
  graph::Recorder recorder(device);
  Tensor result;
  {
    std::optional<amp::Autocast> autocast;
    if (options.autocast()) autocast.emplace(device.type(), options.autocast());
    const AutoGradMode mode(optimizer && GradMode::is_enabled());
    result = model.forward(before.x);
    if (optimizer)
      result = options.loss() ? options.loss()(result, before.target) : cross_entropy(result, before.target);
  }
  recorded.backward_begin = recorded.step_begin = recorder.time();
  recorded.forward_calls = recorder.size();
  if (optimizer) {
    const RecomputedCalls observer(recorder, recorded.recomputed);
    result.backward();
    recorded.step_begin = recorder.time();
    optimizer->step();
    before.half_copies.end_recording();
    for (const auto& parameter : model.ptr()->named_parameters())
      if (const Array gradient = amp::detail::gradient_for_step(*parameter); gradient.defined())
        recorded.gradients.emplace_back(gradient.data(), parameter.key());
    for (const Tensor& parameter : optimizer->parameters())
      if (const Array gradient = amp::detail::gradient_for_step(parameter); gradient.defined())
        recorded.gradients.emplace_back(gradient.data(), "a shard");
  }
  recorded.end = recorder.time();
  recorded.graph = recorder.finish();
  recorded.graph.set_result(result.array());
  return recorded;
}

/// Estimates the multiplications and additions of a call from the shapes of its operands.
double flops_of(const graph::Call& call) {
  const auto numel = [&](size_t i) { return static_cast<double>(call.operands[i].layout.numel()); };
  const auto last = [&](size_t i) {
    return static_cast<double>(call.operands[i].layout.shape[call.operands[i].layout.ndim() - 1]);
  };
  const std::string_view name = call.name;
  double written = 0;
  size_t result = 0;
  for (size_t i = 0; i < call.operands.size(); ++i)
    if (call.operands[i].is_written) {
      written += numel(i);
      if (result == 0) result = i;
    }
  if (name == "matmul" || name == "linear") return 2 * numel(result) * last(0);
  if (name == "conv2d" || name == "conv2d_bias_relu")
    return 2 * numel(result) * numel(1) / static_cast<double>(std::max<int64_t>(call.operands[1].layout.shape[0], 1));
  return written;
}

void add_allocation(MemoryReport& report, const Recorded& recorded, const graph::Allocation& allocation) {
  MemorySpan span;
  span.bytes = allocation.bytes;
  span.begin = allocation.begin;
  span.end = std::min(allocation.end, report.end);
  const auto& calls = recorded.graph.calls();
  const auto call = static_cast<size_t>(allocation.call);
  if (call < calls.size()) {
    span.module = calls[call]->origin.module;
    span.op = calls[call]->origin.op;
  }
  const auto again = recorded.recomputed.find(call);
  if (again != recorded.recomputed.end()) span.op = again->second;
  const auto gradient = std::find_if(recorded.gradients.begin(), recorded.gradients.end(),
                                     [&](const auto& known) { return known.first == allocation.data; });
  span.kind = allocation.is_workspace                      ? MemoryKind::workspace
              : allocation.begin < recorded.backward_begin ? MemoryKind::activations
              : gradient != recorded.gradients.end()       ? MemoryKind::gradients
              : again != recorded.recomputed.end()         ? MemoryKind::recomputed
              : allocation.begin < recorded.step_begin     ? MemoryKind::backward
                                                           : MemoryKind::optimizer;
  if (span.kind == MemoryKind::gradients) {
    span.op = gradient->second;
    report.gradients += span.bytes;
  }
  if (span.begin < recorded.backward_begin && span.end >= recorded.backward_begin) report.activations += span.bytes;
  report.timeline.push_back(std::move(span));
}

/// Adds the memory of the same step as a StaticStep. `existing` is the memory in use before the step.
void add_static(MemoryReport& report, graph::Graph& graph, int64_t existing) {
  graph::run_passes(graph);
  const graph::MemoryPlan memory_plan = graph::plan_memory(graph);
  const auto counted = [&](size_t bytes) { return counted_bytes(bytes, graph.device().type()); };
  int64_t constants = 0;
  for (const graph::Buffer& buffer : graph.buffers())
    if (buffer.external && buffer.memory != buffer.data) constants += counted(buffer.bytes);
  report.static_arena = static_cast<int64_t>(memory_plan.bytes);
  report.static_lower_bound = static_cast<int64_t>(memory_plan.lower_bound);
  report.static_peak = existing + constants + report.static_arena;
  // Adds the kernels' workspace and the offset of the random generator (an int64_t). On a GPU, the arena already
  // includes the workspace, and the captured graph keeps a second offset, so two offsets are added.
  report.static_peak +=
      graph.device().is_cpu() ? report.workspace + counted(sizeof(int64_t)) : 2 * counted(sizeof(int64_t));
}

/// Completes a report that contains only the memory in use before the step; its gradients are DistributedDataParallel's
/// buckets.
MemoryReport completed(MemoryReport report, Recorded recorded) {
  report.backward_begin = recorded.backward_begin;
  report.step_begin = recorded.step_begin;
  report.end = recorded.end;
  report.peak_time = recorded.graph.peak_time();
  int64_t existing = 0;
  const auto add_existing = [&](MemoryKind kind, int64_t bytes, const char* what) {
    existing += bytes;
    if (bytes > 0) report.timeline.push_back({kind, bytes, 0, report.end, "", what});
  };
  add_existing(MemoryKind::parameters, report.parameters, "parameters");
  add_existing(MemoryKind::parameters, report.buffers, "buffers");
  add_existing(MemoryKind::optimizer_state, report.optimizer_state, "optimizer state");
  add_existing(MemoryKind::inputs, report.inputs, "inputs");
  add_existing(MemoryKind::gradients, report.gradients, "buckets");
  for (const graph::Allocation& allocation : recorded.graph.allocations()) add_allocation(report, recorded, allocation);
  // No allocation has the time of a release, and all times of a step that allocates nothing are 0.
  for (const MemorySpan& span : report.timeline)
    if (span.begin <= report.peak_time && report.peak_time <= span.end) {
      report.at_peak[static_cast<int>(span.kind)] += span.bytes;
      report.peak += span.bytes;
    }
  for (size_t i = 0; i < recorded.graph.calls().size(); ++i) {
    const graph::Call& call = *recorded.graph.calls()[i];
    report.workspace = std::max(report.workspace, call.workspace_bytes);
    if (i < recorded.forward_calls) report.forward_flops += flops_of(call);
    else if (recorded.recomputed.contains(i)) report.recomputed_flops += flops_of(call);
  }
  add_static(report, recorded.graph, existing);
  return report;
}

MemoryReport report_of_step(const nn::AnyModule& model, const Shape& input_shape, optim::Optimizer* optimizer,
                            const PlanOptions& options) {
  GRADUS_CHECK(!model.is_empty(), ValueError, "plan: the model is an empty AnyModule");
  GRADUS_CHECK(!optimizer || optimizer->has_rule(), ValueError,
               "plan: an optimizer without a rule (Optimizer::has_rule) cannot be recorded");
  const TensorList parameters = model.ptr()->parameters();
  const Device device = parameters.empty() ? Device() : parameters[0].device();
  for (const Tensor& parameter : parameters)
    GRADUS_CHECK(parameter.device() == device, DeviceError, "plan: a step is recorded on one device, this model is on ",
                 device, " and ", parameter.device());
  TensorList held = parameters;
  if (optimizer)
    for (const Tensor& parameter : optimizer->parameters())  // the model's parameters, or shards of them
      if (std::ranges::find(parameters, parameter.impl(), &Tensor::impl) == parameters.end()) held.push_back(parameter);
  const WithoutGradients without_gradients(held);
  Before before(device, input_shape, parameters, optimizer, options);
  MemoryReport report;
  TensorList slots;  // memory to which gradients are bound, in the buckets of DistributedDataParallel
  for (const Tensor& parameter : held)
    if (const Array* slot = bound_grad(*parameter.impl()->meta)) slots.emplace_back(*slot);
  report.gradients = bytes_of(slots);
  report.parameters = bytes_of(held);
  report.buffers = bytes_of(model.ptr()->buffers());
  report.inputs = bytes_of({before.target, before.x});
  report.optimizer_state = before.state ? before.state->bytes() : 0;
  Recorded recorded = record(model, before, optimizer, options);
  report.optimizer_state += before.half_copies.bytes();
  return completed(std::move(report), std::move(recorded));
}

}  // namespace

const char* name(MemoryKind kind) {
  constexpr const char* kNames[] = {"parameters", "optimizer state", "inputs",    "gradients", "activations",
                                    "recomputed", "backward",        "optimizer", "workspace"};
  static_assert(std::size(kNames) == kMemoryKinds);
  return kNames[static_cast<int>(kind)];
}

MemoryReport plan(const PlannedModel& model, const Shape& input_shape, optim::Optimizer& optimizer,
                  const PlanOptions& options) {
  return report_of_step(model, input_shape, &optimizer, options);
}

MemoryReport plan(const PlannedModel& model, const Shape& input_shape, const PlanOptions& options) {
  return report_of_step(model, input_shape, nullptr, options);
}

int64_t largest_batch(const PlannedModel& model, Shape input_shape, optim::Optimizer& optimizer, int64_t bytes,
                      const PlanOptions& options) {
  const auto fits = [&](int64_t batch) {
    input_shape[options.batch_axis()] = batch;
    return report_of_step(model, input_shape, &optimizer, options).peak <= bytes;
  };
  GRADUS_CHECK(options.batch_axis() >= 0 && options.batch_axis() < input_shape.size(), ValueError,
               "largest_batch: an input of shape ", input_shape, " has no axis ", options.batch_axis());
  int64_t most = 0, too_many = 1;
  while (fits(too_many)) {
    most = too_many;
    too_many *= 2;
  }
  while (too_many - most > 1) {
    const int64_t middle = most + (too_many - most) / 2;
    (fits(middle) ? most : too_many) = middle;
  }
  return most;
}

std::string MemoryReport::str() const {
  std::string text;
  const auto line = [&](const std::string& what, int64_t bytes, const char* remark = "") {
    char buffer[128];
    std::snprintf(buffer, sizeof buffer, "%-24s %15lld %9.2f MiB  %s\n", what.c_str(), static_cast<long long>(bytes),
                  static_cast<double>(bytes) / 1048576, remark);
    text += buffer;
  };
  line("parameters", parameters);
  if (buffers > 0) line("buffers", buffers);
  line("gradients", gradients);
  line("optimizer state", optimizer_state);
  line("activations", activations, "left by forward for backward");
  line("workspace", workspace, "of one kernel, at most");
  line("inputs", inputs);
  line("peak, eager", peak, "of which");
  for (int kind = 0; kind < kMemoryKinds; ++kind)
    if (at_peak[kind] > 0) line(std::string("  ") + name(static_cast<MemoryKind>(kind)), at_peak[kind]);
  line("peak, static", static_peak);
  line("  arena", static_arena);
  line("  its lower bound", static_lower_bound);
  return text;
}

std::ostream& operator<<(std::ostream& stream, const MemoryReport& report) { return stream << report.str(); }

}  // namespace gradus
