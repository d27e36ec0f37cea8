#include <gradus/training/explain.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <thread>

#include <gradus/autograd/node.h>
#include <gradus/core/ceil_div.h>
#include <gradus/core/graph/recorded_call.h>
#include <gradus/core/observer.h>
#include <gradus/core/recorded_memory.h>
#include <gradus/training/explain_parts.h>

namespace gradus::training {
namespace {

using detail::ThreadObserver;
using Kind = ObservedEvent::Kind;

/// Layers are known by their name, other operators by their line.
std::string name_of(const graph::Origin& origin) {
  return origin.module.empty() ? origin.str() : origin.op + " of " + origin.module;
}

/// The innermost module that has both inside: "layer1.0" of "layer1.0.conv1" and "layer1.0.bn1".
std::string common_module(const std::string& a, const std::string& b) {
  for (std::string module = a;; module.resize(module.rfind('.'))) {
    if (b == module || b.rfind(module + ".", 0) == 0) return module;
    if (module.find('.') == std::string::npos) return "";
  }
}

/// What the kernels of a step took, in order.
struct KernelTimes final : ThreadObserver {
  void on_end(const ObservedEvent& event) override {
    if (is_mine(event, Kind::kernel) && event.leaf) names.push_back(event.name), seconds.push_back(event.seconds);
  }
  std::vector<const char*> names;
  std::vector<double> seconds;
};

/// The operators that are open on a thread.
class OpenOperators final : public ThreadObserver {
 public:
  void on_begin(const ObservedEvent& event) override {
    if (is_mine(event, Kind::op)) open_.push_back(event.name);
  }
  void on_end(const ObservedEvent& event) override {
    if (is_mine(event, Kind::op) && !open_.empty()) open_.pop_back();
  }
  bool backward() const { return place_of_backward() < open_.size(); }
  /// What the user called; in the backward pass the node.
  std::string name() const {
    if (open_.empty()) return "";
    const size_t at = place_of_backward();
    return at + 1 < open_.size() ? open_[at + 1] : open_[at < open_.size() ? at : 0];
  }
  std::string str() const {
    const std::string module = ModuleFrame::current_path();
    return name() + (module.empty() ? "" : " of " + module) + (backward() ? ", backward" : "");
  }

 private:
  size_t place_of_backward() const {
    const auto at = std::find_if(open_.begin(), open_.end(),
                                 [](std::string_view name) { return name == "backward" || name == "grad"; });
    return static_cast<size_t>(at - open_.begin());
  }
  std::vector<const char*> open_;
};

/// The memory that a thread's arrays take: the system's, or a GPU's, but with a history of each block.
class WatchedMemory final : public RecordedMemory, public std::enable_shared_from_this<WatchedMemory> {
 public:
  static constexpr size_t kAlive = SIZE_MAX;
  struct Block {
    const char* data = nullptr;
    size_t bytes = 0;
    int step = 0;
    graph::Origin origin;
    size_t from_call = 0, to_call = kAlive;
    size_t from = 0, to = kAlive;  // of the allocations and releases
    std::string until, module;
    std::vector<std::string> kept_by;
    size_t writer = kAlive;  // the call that wrote it last
    StridedLayout layout;    // that it was first written in
  };

  explicit WatchedMemory(Device device) : device_(device) {}
  DeviceType type() const override { return device_.type(); }
  std::shared_ptr<void> allocate(size_t bytes) override {
    char* const data = from_system(bytes);
    std::lock_guard lock(mutex_);
    alive_[data] = blocks_.size();
    Block& block = blocks_.emplace_back();
    block.data = data, block.bytes = bytes, block.step = step, block.origin = graph::Origin::current();
    block.from_call = calls, block.from = ticks_++;
    bytes_ += counted_bytes(bytes, device_.type());
    if (bytes_ > peak_) peak_ = bytes_, peak_tick_ = ticks_ - 1, peak_call_ = calls;
    return {data, [memory = shared_from_this()](char* data) { memory->free(data); }};
  }
  void fill(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  bool is_watched() const override { return true; }

  void begin_step(int number) {
    std::lock_guard lock(mutex_);
    step = number, calls = 0;
    before_ = bytes_, peak_ = bytes_, peak_tick_ = ticks_, peak_call_ = 0;
  }
  int64_t peak() const { return peak_ - before_; }
  size_t peak_tick() const { return peak_tick_; }
  size_t peak_call() const { return peak_call_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  /// The block that has this address now; null where it is none of these.
  Block* find(const void* address) {
    std::lock_guard lock(mutex_);
    const auto behind = alive_.upper_bound(static_cast<const char*>(address));
    if (behind == alive_.begin()) return nullptr;
    Block& block = blocks_[std::prev(behind)->second];
    return address < block.data + block.bytes ? &block : nullptr;
  }

  int step = 0;
  size_t calls = 0;                          // of the step, so far
  const OpenOperators* operators = nullptr;  // as long as steps are watched

 private:
  /// Nobody watches what it does.
  struct Unwatched {
    ~Unwatched() { gradus::detail::recorded_memory = before; }
    RecordedMemory* const before = std::exchange(gradus::detail::recorded_memory, nullptr);
  };
  char* from_system(size_t bytes) const {
    constexpr size_t kAlignment = 64;
    if (device_.is_cuda()) {
      const Unwatched unwatched;
      DeviceRuntime& cuda = runtime(device_.type());
      return static_cast<char*>(cuda.allocate(bytes, cuda.current_stream(device_.index())));
    }
    void* const data = bytes < size_t{1} << 62 ? std::aligned_alloc(kAlignment, round_up(bytes, kAlignment)) : nullptr;
    GRADUS_CHECK(data, OutOfMemoryError, "the cpu has no ", bytes, " bytes");
    return static_cast<char*>(data);
  }
  void to_system(char* data) const noexcept {
    const Unwatched unwatched;
    if (device_.is_cuda()) runtime(device_.type()).free(data);
    else std::free(data);
  }
  void free(char* data) noexcept {
    std::lock_guard lock(mutex_);
    const auto entry = alive_.find(data);
    Block& block = blocks_[entry->second];
    alive_.erase(entry);
    bytes_ -= counted_bytes(block.bytes, device_.type());
    block.to = ticks_++;
    if (operators && block.step == step) block.to_call = calls, block.until = operators->str();
    to_system(data);
  }

  const Device device_;
  std::mutex mutex_;
  std::vector<Block> blocks_;
  std::map<const char*, size_t> alive_;  // places in blocks_
  int64_t bytes_ = 0, before_ = 0, peak_ = 0;
  size_t ticks_ = 0, peak_tick_ = 0, peak_call_ = 0;
};

/// Sees what is saved for the backward pass, and leaves it with who saves it.
class SavedWatcher final : public SavedKeeper {
 public:
  explicit SavedWatcher(WatchedMemory& memory) : memory_(memory), before_(std::exchange(current_, this)) {}
  ~SavedWatcher() override { current_ = before_; }
  std::optional<size_t> take(const Array& array, const Tensor&) override {
    WatchedMemory::Block* const block = memory_.find(array.data());
    if (!block || !memory_.operators || memory_.operators->backward()) return std::nullopt;
    const graph::Origin origin = graph::Origin::current();
    block->module = common_module(block->kept_by.empty() ? block->origin.module : block->module, origin.module);
    block->kept_by.push_back(name_of(origin));
    return std::nullopt;
  }
  Kept give(size_t) override { return {}; }
  void drop(size_t) override {}

 private:
  WatchedMemory& memory_;
  SavedKeeper* const before_;
};

/// Runs calls on another backend and writes them down, with their kernels.
class Watcher final : public BackendInterceptor<Watcher>, public ThreadObserver {
 public:
  Watcher(Backend& runs, WatchedMemory& memory, const OpenOperators& operators)
      : runs_(runs), memory_(memory), operators_(operators) {}
  std::string_view name() const override { return runs_.name(); }
  DeviceType device_type() const override { return runs_.device_type(); }
  std::string libraries() const override { return runs_.libraries(); }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    auto call = std::make_unique<graph::detail::RecordedCall<Params...>>(method, arguments...);
    call->name = name;
    const int64_t bytes = begin(std::move(call));
    (runs_.*method)(arguments...);
    if (std::string_view(name) == "optimizer_step" && !kernels.empty())  // its kernel does not say
      kernels.back().bytes = bytes;
    memory_.calls = calls.size();
  }

  void on_end(const ObservedEvent& event) override {
    if (!is_mine(event, Kind::kernel) || !event.leaf) return;
    Explanation::Kernel& kernel = kernels.emplace_back();
    kernel.name = event.name, kernel.backend = event.backend, kernel.implementation = event.implementation;
    kernel.reason = event.reason, kernel.bytes = event.bytes, kernel.flops = event.flops;
    kernel.shapes.assign(event.shapes, event.shapes + event.shape_count);
    kernel.op = operators_.name(), kernel.module = ModuleFrame::current_path(), kernel.backward = operators_.backward();
    kernel.seconds = event.seconds;
    kernel.call = std::max<size_t>(calls.size(), 1) - 1;
  }
  void clear() { kernels.clear(), calls.clear(), recorded.clear(), writers_.clear(); }

  std::vector<Explanation::Kernel> kernels;
  std::vector<Explanation::Call> calls;
  detail::WatchedCalls recorded;

 private:
  /// Returns the bytes of the operands.
  int64_t begin(std::unique_ptr<graph::Call> recorded_call) {
    struct Operands final : graph::Call::Visitor {
      explicit Operands(const std::function<void(const StridedLayout&, const void*, bool)>& use) : use(use) {}
      void read(View& view) override { use(view, view.data, false); }
      void write(MutableView& view) override { use(view, view.data, true); }
      const std::function<void(const StridedLayout&, const void*, bool)>& use;
    };
    const size_t number = calls.size();
    int64_t bytes = 0;
    Explanation::Call& call = calls.emplace_back();
    call.name = recorded_call->name, call.origin = graph::Origin::current();
    call.op = operators_.name(), call.backward = operators_.backward();
    const std::function<void(const StridedLayout&, const void*, bool)> use = [&](const StridedLayout& layout,
                                                                                 const void* data, bool writes) {
      if (layout.numel() == 0) return;
      bytes += layout.numel() * static_cast<int64_t>(size_of(layout.dtype));
      WatchedMemory::Block* const block = memory_.find(data);
      size_t& writer = block ? block->writer : writers_.try_emplace(data, WatchedMemory::kAlive).first->second;
      const bool of_this_step = !block || block->step == memory_.step;
      if (writer != WatchedMemory::kAlive && writer != number && of_this_step) call.inputs.push_back(writer);
      if (!writes) return;
      writer = number;
      if (call.result.size() == 0) call.result = layout.shape;
      if (block && block->layout.ndim() == 0) block->layout = layout;
    };
    Operands operands(use);
    recorded_call->visit(operands);
    recorded_call->origin = call.origin;
    recorded.push_back(std::move(recorded_call));
    return bytes;
  }

  Backend& runs_;
  WatchedMemory& memory_;
  const OpenOperators& operators_;
  std::map<const void*, size_t> writers_;  // of memory that was there before
};

double seconds_of(const std::function<void()>& work) {
  const double start = observer_time();
  work();
  return observer_time() - start;
}

/// The least times of kernels, of what is between them, and of steps.
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
  else explanation.notes.emplace_back("steps differ from each other: the times of kernels are those of one step");
}

/// What follows from the times of kernels.
void compare_with_roofline(Explanation& explanation) {
  for (Explanation::Kernel& kernel : explanation.kernels) {
    const double seconds = explanation.roofline.seconds_at_least(kernel.bytes, kernel.flops);
    if (kernel.seconds > 0) kernel.roofline = seconds / kernel.seconds;
    if (kernel.call < explanation.calls.size()) explanation.calls[kernel.call].seconds += kernel.seconds;
  }
}

constexpr int kWatchedSteps = 3;  // what the first of them left behind at the end of the last is a leak

void explain_memory(Explanation& explanation, const WatchedMemory& memory) {
  explanation.peak_bytes = memory.peak(), explanation.peak_call = memory.peak_call();
  for (const WatchedMemory::Block& block : memory.blocks()) {
    const Shape shape = block.layout.shape;
    const auto bytes = static_cast<int64_t>(block.bytes);
    if (block.step == 0 && block.to == WatchedMemory::kAlive)
      explanation.leaks.push_back({name_of(block.origin), shape, bytes});
    if (block.step != kWatchedSteps - 1 || block.kept_by.empty()) continue;
    Explanation::Saved& saved = explanation.saved.emplace_back();
    saved.made_by = name_of(block.origin), saved.kept_by = block.kept_by, saved.until = block.until;
    saved.module = block.module, saved.shape = shape, saved.dtype = block.layout.dtype, saved.bytes = bytes;
    saved.from_call = block.from_call;
    saved.to_call = std::min(block.to_call, explanation.calls.size());
    if (saved.until.empty()) saved.until = "the end of the step";
    saved.at_peak = block.from <= memory.peak_tick() && memory.peak_tick() < block.to;
  }
  const auto larger = [](const auto& a, const auto& b) { return a.bytes > b.bytes; };
  std::stable_sort(explanation.saved.begin(), explanation.saved.end(), larger);
  std::stable_sort(explanation.leaks.begin(), explanation.leaks.end(), larger);
}

/// Steps with every call and block watched: what ran, and what lived when.
detail::WatchedCalls watch_steps(Explanation& explanation, Device device, Backend& backend,
                                 const std::function<void()>& step) {
  struct MemoryScope {
    explicit MemoryScope(RecordedMemory& memory) { gradus::detail::recorded_memory = &memory; }
    ~MemoryScope() { gradus::detail::recorded_memory = nullptr; }
  };
  const auto memory = std::make_shared<WatchedMemory>(device);
  const OpenOperators operators;
  Watcher watcher(backend, *memory, operators);
  {
    const BackendGuard guard(watcher);
    const MemoryScope scope(*memory);
    const Ref<SavedWatcher> saved = make_ref<SavedWatcher>(*memory);
    memory->operators = &operators;
    for (int i = 0; i < kWatchedSteps; ++i) {
      watcher.clear();
      memory->begin_step(i);
      step();
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

double Explanation::kernel_seconds() const {
  double sum = 0;
  for (const Kernel& kernel : kernels) sum += kernel.seconds;
  return sum;
}

Explanation explain(const std::function<void()>& step, const ExplainOptions& options) {
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
  const detail::WatchedCalls calls = watch_steps(explanation, device, backend, step);
  step();  // its memory is the runtime's again
  if (device.is_cuda()) detail::time_captured_step(explanation, step, options.steps());
  else time_steps(explanation, step, options.steps());
  compare_with_roofline(explanation);
  if (options.proposals()) detail::add_proposals(explanation, calls, backend, step, options);
  return explanation;
}

}  // namespace gradus::training
