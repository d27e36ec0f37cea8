// What explanations, their proposals, lab pages and the profiler share: watching a step's calls and memory, and text
// and HTML output.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gradus/autograd/node.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/graph/call.h>
#include <gradus/inspect/explain/explain.h>

namespace gradus::training::detail {

/// An observer that is registered during its lifetime and has a filter for the events of its thread.
class ThreadObserver : public Observer, NoCopy {
 public:
  ThreadObserver() { add_observer(this); }
  ~ThreadObserver() override { remove_observer(this); }

 protected:
  bool is_mine(const ObservedEvent& event, ObservedEvent::Kind kind) const {
    return event.kind == kind && std::this_thread::get_id() == thread_;
  }

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
};

/// Calls work() once untimed and then `count` times. Returns the seconds of the fastest call.
double least_seconds(int count, const std::function<void()>& work);

/// Captures work() on a GPU and replays it. Returns the seconds of the fastest of `count` replays.
double least_captured_seconds(int count, const std::function<void()>& work);

/// Sets the times of the kernels and of the step to those of a captured step on a GPU.
void time_captured_step(Explanation& explanation, const std::function<void()>& step, int count);

/// Sets the times of kernels and between kernels. `least` has the times between the events around each kernel, `empty`
/// is the time between two events without a kernel. The kernels' times are scaled down if they exceed the step's time.
void set_captured_times(Explanation& explanation, std::vector<double> least, double empty);

class WatchedMemory;

/// Callbacks for the steps that explain() watches. The explanation describes only the last of these steps. The default
/// of each function does nothing.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  virtual void begin_step(WatchedMemory&) {}
  virtual void end_step() {}
  /// Called before each call of a backend's kernel (has_run is false) and after it (has_run is true).
  virtual void on_call(graph::Call&, bool /*has_run*/) {}
  /// Called when the forward pass saves an array for the backward pass.
  virtual void on_saved(const Array&) {}
};
/// training::explain() with callbacks.
Explanation explain(const std::function<void()>& step, const ExplainOptions& options, StepWatch& watch);

/// Appends formatted text of at most 1,023 characters to `text`.
[[gnu::format(printf, 2, 3)]] inline void print_to(std::string& text, const char* format, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  text.append(buffer, std::min<size_t>(static_cast<size_t>(std::max(length, 0)), sizeof buffer - 1));
}

/// The sum of a member over the elements of a list.
template <class T, class Number>
Number sum_of(const std::vector<T>& list, Number T::*member) {
  Number sum = 0;
  for (const T& element : list) sum += element.*member;
  return sum;
}

/// An operator in a layer is named by the layer ("conv2d of features.3"), any other operator by its source line.
inline std::string name_of(const graph::Origin& origin) {
  return origin.module.empty() ? origin.str() : origin.op + " of " + origin.module;
}

/// Returns true for the operators that run a backward pass.
inline bool is_backward(std::string_view op) { return op == "backward" || op == "grad"; }

/// Returns true if `path` is `module` or a module inside it: "layer1.0.conv1" is inside "layer1.0".
inline bool is_inside(const std::string& path, const std::string& module) {
  return path == module || path.starts_with(module + ".");
}

/// Returns an HTML page with its marks "{{name}}" replaced by the texts in `contents`, in the order of the marks.
std::string filled(std::string_view page, const std::vector<std::string>& contents);
/// The text with HTML's special characters escaped.
std::string escaped(const std::string& text);
/// The net as SVG, with a box for each layer or operator. The <rect> of a box has the box's number as "data-box".
/// box_of[i] becomes the number of the box of call i, or SIZE_MAX if the call has no box. Returns an empty string if
/// there are more than 1,000 boxes.
std::string picture_of(const Explanation& explanation, std::vector<size_t>& box_of);

/// Fills in Explanation::faster and Explanation::smaller. `calls` are the recorded calls that Explanation::calls
/// describes, with their arguments.
void add_proposals(Explanation& explanation, const graph::Calls& calls, Backend& backend,
                   const std::function<void()>& step, const ExplainOptions& options);

// ---- Memory of watched steps: where each block was made, what keeps it, and when it was released ----

/// The stack of operators that have begun and not ended on this thread.
class OpenOperators final : public ThreadObserver {
 public:
  void on_begin(const ObservedEvent& event) override {
    if (is_mine(event, ObservedEvent::Kind::op)) open_.push_back(event.name);
  }
  void on_end(const ObservedEvent& event) override {
    if (is_mine(event, ObservedEvent::Kind::op) && !open_.empty()) open_.pop_back();
  }
  bool backward() const { return place_of_backward() < open_.size(); }
  /// The outermost operator, which the user called; in the backward pass, the node that runs.
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
    return static_cast<size_t>(std::ranges::find_if(open_, is_backward) - open_.begin());
  }
  std::vector<const char*> open_;
};

/// Allocates the memory of a thread's arrays from the runtime and keeps a history of each block.
class WatchedMemory final : public RecordedMemory, public std::enable_shared_from_this<WatchedMemory> {
 public:
  static constexpr size_t kAlive = SIZE_MAX;
  struct Block {
    const char* data = nullptr;
    size_t bytes = 0;
    int step = 0;
    graph::Origin origin;
    size_t from_call = 0, to_call = kAlive;
    size_t from = 0, to = kAlive;  // when it was allocated and freed, as values of tick()
    std::string until, module;
    std::vector<std::string> kept_by;
    size_t writer = kAlive;  // the last call that wrote it; kAlive before the first one
    StridedLayout layout;    // of the first array that a call wrote into the block
  };

  explicit WatchedMemory(Device device) : device_(device) {}
  DeviceType type() const override { return device_.type(); }
  std::shared_ptr<void> allocate(size_t bytes) override {
    const ScopedValue<RecordedMemory*> unwatched(gradus::detail::recorded_memory, nullptr);
    DeviceRuntime& system = runtime(device_.type());
    char* const data = static_cast<char*>(system.allocate(bytes, system.current_stream(device_.index())));
    std::lock_guard lock(mutex_);
    alive_[data] = blocks_.size();
    Block& block = blocks_.emplace_back();
    block.data = data, block.bytes = bytes, block.step = step, block.origin = graph::Origin::current();
    block.from_call = calls, block.from = ticks_++;
    bytes_ += counted_bytes(bytes, device_.type());
    if (bytes_ > peak_) peak_ = bytes_, peak_tick_ = ticks_ - 1, peak_call_ = calls;
    return {data, [memory = shared_from_this()](char* freed) { memory->free(freed); }};
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
  /// The time as a number: how many blocks were allocated and freed so far.
  size_t tick() const { return ticks_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  /// The allocated block that contains this address; null if there is none.
  Block* find(const void* address) {
    std::lock_guard lock(mutex_);
    const auto after = alive_.upper_bound(static_cast<const char*>(address));
    if (after == alive_.begin()) return nullptr;
    Block& block = blocks_[std::prev(after)->second];
    return address < block.data + block.bytes ? &block : nullptr;
  }

  int step = 0;
  size_t calls = 0;                          // number of calls in the step so far
  const OpenOperators* operators = nullptr;  // null while no step is watched

 private:
  void free(char* data) noexcept {
    std::lock_guard lock(mutex_);
    const auto entry = alive_.find(data);
    Block& block = blocks_[entry->second];
    alive_.erase(entry);
    bytes_ -= counted_bytes(block.bytes, device_.type());
    block.to = ticks_++;
    if (operators && block.step == step) block.to_call = calls, block.until = operators->str();
    const ScopedValue<RecordedMemory*> unwatched(gradus::detail::recorded_memory, nullptr);
    runtime(device_.type()).free(data);
  }

  const Device device_;
  std::mutex mutex_;
  std::vector<Block> blocks_;
  std::map<const char*, size_t> alive_;  // indices into blocks_
  int64_t bytes_ = 0, before_ = 0, peak_ = 0;
  size_t ticks_ = 0, peak_tick_ = 0, peak_call_ = 0;
};

}  // namespace gradus::training::detail
