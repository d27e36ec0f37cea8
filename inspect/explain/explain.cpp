#include <gradus/inspect/explain/explain.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <gradus/autograd/node.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/ops.h>
#include <gradus/graph/recorder.h>
#include <gradus/inspect/explain/explain_parts.h>

namespace gradus::training {
namespace {

using detail::name_of;
using detail::OpenOperators;
using detail::ThreadObserver;
using detail::WatchedMemory;
using Kind = ObservedEvent::Kind;

/// The innermost module that contains the modules a and b: "layer1.0" for "layer1.0.conv1" and "layer1.0.bn1".
std::string common_module(const std::string& a, const std::string& b) {
  for (std::string module = a;; module.resize(module.rfind('.'))) {
    if (detail::is_inside(b, module)) return module;
    if (module.find('.') == std::string::npos) return "";
  }
}

/// Measures the times of a step's kernels, in order.
struct KernelTimes final : ThreadObserver {
  void on_end(const ObservedEvent& event) override {
    if (is_mine(event, Kind::kernel) && event.leaf) names.push_back(event.name), seconds.push_back(event.seconds);
  }
  std::vector<const char*> names;
  std::vector<double> seconds;
};

/// Observes which arrays the forward pass saves for the backward pass. take() always returns nothing, so that the
/// operators keep the arrays themselves.
class SavedWatcher final : public SavedKeeper {
 public:
  SavedWatcher(WatchedMemory& memory, detail::StepWatch& watch)
      : memory_(memory), watch_(watch), before_(std::exchange(current_, this)) {}
  ~SavedWatcher() override { current_ = before_; }
  std::optional<size_t> take(const Array& array, const Tensor&) override {
    if (memory_.operators->backward()) return std::nullopt;
    watch_.on_saved(array);
    WatchedMemory::Block* const block = memory_.find(array.data());
    if (!block) return std::nullopt;
    const graph::Origin origin = graph::Origin::current();
    block->module = common_module(block->kept_by.empty() ? block->origin.module : block->module, origin.module);
    block->kept_by.push_back(name_of(origin));
    return std::nullopt;
  }
  Kept give(size_t) override { return {}; }
  void drop(size_t) override {}

 private:
  WatchedMemory& memory_;
  detail::StepWatch& watch_;
  SavedKeeper* const before_;
};

/// Records calls and their kernels. The step must use backend(), which passes each call on to the backend `runs`.
class Watcher final : public ThreadObserver {
 public:
  Watcher(Backend& runs, WatchedMemory& memory, const OpenOperators& operators, detail::StepWatch& watch)
      : runs_(runs), memory_(memory), operators_(operators), watch_(watch),
        calls_(graph::call_backend(runs, [this](std::unique_ptr<graph::Call> call) { on_call(std::move(call)); })) {}
  Backend& backend() { return *calls_; }

  void on_end(const ObservedEvent& event) override {
    if (!is_mine(event, Kind::kernel) || !event.leaf) return;
    Explanation::Kernel& kernel = kernels.emplace_back();
    kernel.name = event.name, kernel.backend = event.backend, kernel.implementation = event.implementation;
    kernel.reason = event.reason, kernel.bytes = event.bytes, kernel.flops = event.flops;
    kernel.shapes.assign(event.shapes, event.shapes + event.shape_count);
    kernel.op = operators_.name();
    kernel.module = ModuleFrame::current_path();
    kernel.backward = operators_.backward();
    kernel.seconds = event.seconds;
    kernel.call = std::max<size_t>(calls.size(), 1) - 1;
  }
  void clear() { kernels.clear(), calls.clear(), recorded.clear(), writers_.clear(); }

  std::vector<Explanation::Kernel> kernels;
  std::vector<Explanation::Call> calls;
  graph::Calls recorded;

 private:
  void on_call(std::unique_ptr<graph::Call> recorded_call) {
    const size_t number = calls.size();
    int64_t bytes = 0;  // total size of the operands
    Explanation::Call& call = calls.emplace_back();
    call.name = recorded_call->name, call.origin = graph::Origin::current();
    call.op = operators_.name(), call.backward = operators_.backward();
    graph::for_each_view(*recorded_call, [&](const auto& view, bool writes) {
      if (view.numel() == 0) return;
      bytes += view.numel() * static_cast<int64_t>(size_of(view.dtype));
      WatchedMemory::Block* const block = memory_.find(view.data);
      size_t& writer = block ? block->writer : writers_.try_emplace(view.data, WatchedMemory::kAlive).first->second;
      const bool of_this_step = !block || block->step == memory_.step;
      if (writer != WatchedMemory::kAlive && writer != number && of_this_step) call.inputs.push_back(writer);
      if (!writes) return;
      writer = number;
      if (call.result.size() == 0) call.result = view.shape;
      if (block && block->layout.ndim() == 0) block->layout = view;
    });
    recorded_call->origin = call.origin;
    watch_.on_call(*recorded_call, /*has_run=*/false);
    recorded_call->run(runs_);
    watch_.on_call(*recorded_call, /*has_run=*/true);
    if (call.name == "optimizer_step" && !kernels.empty()) kernels.back().bytes = bytes;  // the kernel reports no bytes
    memory_.calls = calls.size();
    recorded.push_back(std::move(recorded_call));
  }

  Backend& runs_;
  WatchedMemory& memory_;
  const OpenOperators& operators_;
  detail::StepWatch& watch_;
  const std::unique_ptr<Backend> calls_;
  std::map<const void*, size_t> writers_;  // last call that wrote to an address from before the watched steps
};

double seconds_of(const std::function<void()>& work) {
  const double start = observer_time();
  work();
  return observer_time() - start;
}

/// Measures the shortest times of kernels, of the gaps between them and of steps.
void time_steps(Explanation& explanation, const std::function<void()>& step, int count) {
  explanation.step_seconds = explanation.between_seconds = INFINITY;
  std::vector<double> least(explanation.kernels.size(), INFINITY);
  bool same = true;
  for (int i = 0; i < count; ++i) {
    explanation.step_seconds = std::min(explanation.step_seconds, seconds_of(step));
    const KernelTimes times;
    double between = seconds_of(step);
    for (size_t k = 0; k < times.seconds.size(); ++k) {
      between -= times.seconds[k];
      same = same && times.seconds.size() == least.size() && times.names[k] == explanation.kernels[k].name;
      if (same) least[k] = std::min(least[k], times.seconds[k]);
    }
    explanation.between_seconds = std::min(explanation.between_seconds, between);
  }
  if (same)
    for (size_t k = 0; k < least.size(); ++k) explanation.kernels[k].seconds = least[k];
  else explanation.notes.emplace_back("steps differ: the times of kernels are those of one step");
}

/// Computes each kernel's share of the roofline and the times of calls from the kernels' times.
void compare_with_roofline(Explanation& explanation) {
  for (Explanation::Kernel& kernel : explanation.kernels) {
    const double seconds = explanation.roofline.seconds_at_least(kernel.bytes, kernel.flops);
    if (kernel.seconds > 0) kernel.roofline = seconds / kernel.seconds;
    if (kernel.call < explanation.calls.size()) explanation.calls[kernel.call].seconds += kernel.seconds;
  }
}

constexpr int kWatchedSteps = 3;  // memory of the first step that is not freed after the last step is a leak

void explain_memory(Explanation& explanation, const WatchedMemory& memory) {
  explanation.peak_bytes = memory.peak(), explanation.peak_call = memory.peak_call();
  for (const WatchedMemory::Block& block : memory.blocks()) {
    const Shape shape = block.layout.shape;
    const auto bytes = static_cast<int64_t>(block.bytes);
    if (block.step == 0 && block.to == WatchedMemory::kAlive)
      explanation.leaks.push_back({name_of(block.origin), shape, bytes});
    if (block.step != kWatchedSteps - 1 || block.kept_by.empty()) continue;
    Explanation::Saved& saved = explanation.saved.emplace_back();
    saved.made_by = name_of(block.origin);
    saved.kept_by = block.kept_by;
    saved.until = block.until;
    saved.module = block.module, saved.shape = shape, saved.dtype = block.layout.dtype, saved.bytes = bytes;
    saved.from_call = block.from_call;
    saved.to_call = std::min(block.to_call, explanation.calls.size());
    if (block.to_call == WatchedMemory::kAlive) saved.until = "the end of the step";
    else if (saved.until.empty()) saved.until = "the program released it";
    saved.at_peak = block.from <= memory.peak_tick() && memory.peak_tick() < block.to;
  }
  std::ranges::stable_sort(explanation.saved, std::greater(), &Explanation::Saved::bytes);
  std::ranges::stable_sort(explanation.leaks, std::greater(), &Explanation::Leak::bytes);
}

/// Runs steps and records their calls and memory blocks. Returns the calls of the last step.
graph::Calls watch_steps(Explanation& explanation, Device device, Backend& backend, const std::function<void()>& step,
                         detail::StepWatch& watch) {
  const auto memory = std::make_shared<WatchedMemory>(device);
  const OpenOperators operators;
  Watcher watcher(backend, *memory, operators, watch);
  {
    const BackendGuard guard(watcher.backend());
    const ScopedValue<RecordedMemory*> scope(gradus::detail::recorded_memory, memory.get());
    const Ref<SavedWatcher> saved = make_ref<SavedWatcher>(*memory, watch);
    memory->operators = &operators;
    for (int i = 0; i < kWatchedSteps; ++i) {
      watcher.clear();
      memory->begin_step(i);
      watch.begin_step(*memory);
      step();
      watch.end_step();
    }
    memory->operators = nullptr;
  }
  explanation.kernels = std::move(watcher.kernels), explanation.calls = std::move(watcher.calls);
  explain_memory(explanation, *memory);
  return std::move(watcher.recorded);
}

}  // namespace

double detail::least_seconds(int count, const std::function<void()>& work) {
  work();
  double least = INFINITY;
  for (int i = 0; i < count; ++i) least = std::min(least, seconds_of(work));
  return least;
}

double Explanation::kernel_seconds() const { return detail::sum_of(kernels, &Kernel::seconds); }

Explanation explain(const std::function<void()>& step, const ExplainOptions& options) {
  detail::StepWatch none;
  return detail::explain(step, options, none);
}

Explanation detail::explain(const std::function<void()>& step, const ExplainOptions& options, StepWatch& watch) {
  const OpContext* const outer = OpContext::current();
  GRADUS_CHECK(options.warm_up() >= 1 && options.steps() >= 1, ValueError,
               "explain needs at least one step to warm up and one to time, got ", options.warm_up(), " and ",
               options.steps());
  GRADUS_CHECK(!gradus::detail::recorded_memory && !outer, ValueError,
               "explain watches whole steps: call it outside of operators and recordings");
  const Device device = settled(options.device());
  const DeviceGuard guard(device);
  Backend& backend = current_backend(device.type());
  Explanation explanation;
  explanation.roofline = measure_roofline(device);
  for (int i = 0; i < options.warm_up(); ++i) step();
  const graph::Calls calls = watch_steps(explanation, device, backend, step, watch);
  step();  // the new gradients replace those that WatchedMemory allocated
  if (device.is_cuda()) time_captured_step(explanation, step, options.steps());
  else time_steps(explanation, step, options.steps());
  compare_with_roofline(explanation);
  if (options.proposals()) detail::add_proposals(explanation, calls, backend, step, options);
  return explanation;
}

// ---- The limits of a device ----

double Roofline::seconds_at_least(int64_t bytes, int64_t flops) const {
  const auto fits = std::ranges::lower_bound(levels, bytes, {}, &Level::bytes);
  const double bandwidth = levels.empty() ? INFINITY : fits == levels.end() ? levels.back().bandwidth : fits->bandwidth;
  return std::max(static_cast<double>(bytes) / bandwidth, peak > 0 ? static_cast<double>(flops) / peak : 0);
}

Roofline measure_roofline(Device device) {
  constexpr int64_t kMegabyte = 1 << 20;
  const bool on_gpu = device.is_cuda();
  Backend& backend = gradus::backend(on_gpu ? "cuda" : has_backend("openmp") ? "openmp" : "naive");
  const auto filled = [&](const Shape& shape) {
    const Array array = Array::empty(shape, DType::f32, device);
    ops::fill(array, 1);
    return array;
  };
  const auto rate = [&](int64_t amount, const std::function<void()>& work) {
    if (!on_gpu) return static_cast<double>(amount) / detail::least_seconds(30, work);
    constexpr int kTimes = 8;  // calls in one graph, so that the time of its launch is negligible
    work();
    return static_cast<double>(amount) * kTimes / detail::least_captured_seconds(10, [&] {
             for (int i = 0; i < kTimes; ++i) work();
           });
  };
  Roofline roofline;
  const int64_t side = on_gpu ? 4096 : 384;
  const Array a = filled({side, side}), b = filled({side, side}), c = filled({side, side});
  roofline.peak = rate(2 * side * side * side, [&] { backend.matmul(a, b, c, false); });
  const std::vector<int64_t> sizes =
      on_gpu ? std::vector<int64_t>{2 * kMegabyte, 24 * kMegabyte, 768 * kMegabyte}
             : std::vector<int64_t>{kMegabyte / 4, 2 * kMegabyte, 16 * kMegabyte, 64 * kMegabyte};
  for (const int64_t bytes : sizes) {
    const Array x = filled({bytes / 4}), sum = filled({1});
    const Array left = filled({bytes / 12}), right = filled({bytes / 12}), y = filled({bytes / 12});
    const double read = rate(bytes, [&] { backend.reduce(ReduceOp::sum, x, 1, sum); });
    const double added = rate(bytes / 12 * 12, [&] { backend.binary(BinaryOp::add, left, right, y); });
    roofline.levels.push_back({bytes, std::max(read, added)});
  }
  return roofline;
}

}  // namespace gradus::training
