#include <gradus/inspect/profiler.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include <gradus/core/error.h>
#include <gradus/core/platform/file.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/inspect/explain/explain_parts.h>

namespace gradus::training {

using Kind = ObservedEvent::Kind;

/// Observes events and collects the data of a Profiler.
struct Profiler::State final : Observer {
  using Key = std::tuple<std::string, std::string, std::string>;  // name, backend, implementation
  using KeyView = std::tuple<std::string_view, std::string_view, std::string_view>;
  /// Compares keys as string views, so that a lookup copies no strings.
  struct KeyOrder {
    using is_transparent = void;
    bool operator()(const KeyView& a, const KeyView& b) const { return a < b; }
  };
  using Rows = std::map<Key, Row, KeyOrder>;

  /// An event that has begun but not ended.
  struct Frame {
    const ObservedEvent* event;
    size_t module;     // index in modules
    bool backward;     // whether it is part of a backward pass
    double inner = 0;  // seconds of the events of the same kind that ran inside it
    int64_t bytes = 0, flops = 0;
  };
  struct Thread {
    int number;
    std::vector<Frame> frames;
  };
  struct TraceEvent {
    const Row* row;
    size_t module;
    int thread;
    double start, seconds;
    int64_t bytes, flops;
    bool backward;
  };

  explicit State(const ProfilerOptions& options_) : options(options_) {}
  void on_begin(const ObservedEvent& event) override;
  void on_end(const ObservedEvent& event) override;
  Thread& this_thread();
  Row& row(Rows& rows, const ObservedEvent& event);
  size_t module_number(const std::string& path);
  void look_at_memory(const ObservedEvent& event, double at, size_t module);
  std::vector<Row> sorted(const Rows& rows);  // in the order of their self times

  const ProfilerOptions options;
  double start = observer_time(), end = 0;
  bool running = true;
  std::mutex mutex;
  std::unordered_map<std::thread::id, Thread> threads;
  Rows operators, kernels;
  std::vector<ModuleRow> modules;  // without the work of submodules
  std::unordered_map<std::string, size_t> module_numbers;
  std::vector<TraceEvent> trace;
  std::vector<MemoryPoint> memory;
  MemoryPeak peak;
  int64_t left_out = 0;  // number of events that the full trace did not store
};

Profiler::Profiler(const ProfilerOptions& options) : state_(std::make_unique<State>(options)) {
  add_observer(state_.get());
}

Profiler::~Profiler() { stop(); }

void Profiler::stop() {
  if (!state_->running) return;
  remove_observer(state_.get());  // waits until no thread is in on_begin() or on_end()
  state_->running = false;
  state_->end = observer_time();
}

double Profiler::seconds() const { return (state_->running ? observer_time() : state_->end) - state_->start; }

Profiler::State::Thread& Profiler::State::this_thread() {
  const auto [thread, is_new] = threads.try_emplace(std::this_thread::get_id());
  if (is_new) thread->second.number = static_cast<int>(threads.size());
  return thread->second;
}

size_t Profiler::State::module_number(const std::string& path) {
  const auto [entry, is_new] = module_numbers.try_emplace(path, modules.size());
  if (is_new) modules.push_back({path});
  return entry->second;
}

Profiler::Row& Profiler::State::row(Rows& rows, const ObservedEvent& event) {
  const KeyView key(event.name, event.backend, event.implementation);
  const auto found = rows.find(key);
  if (found != rows.end()) return found->second;
  return rows.emplace(Key(key), Row{event.name, event.backend, event.implementation}).first->second;
}

void Profiler::State::look_at_memory(const ObservedEvent& event, double at, size_t module) {
  const int64_t bytes = runtime(options.device.type()).memory_stats(options.device.index()).allocated;
  if (bytes > peak.bytes) peak = {bytes, at, event.name, modules[module].path};
  if (!memory.empty() && memory.back().bytes == bytes) return;
  if (memory.size() < options.max_trace_events) memory.push_back({at, bytes});
}

void Profiler::State::on_begin(const ObservedEvent& event) {
  const std::string path = event.kind == Kind::op ? ModuleFrame::current_path() : std::string();
  std::lock_guard lock(mutex);
  std::vector<Frame>& frames = this_thread().frames;
  const Frame* const outer = frames.empty() ? nullptr : &frames.back();
  const size_t module = event.kind == Kind::kernel && outer ? outer->module : module_number(path);
  frames.push_back(
      {&event, module, (event.kind == Kind::op && detail::is_backward(event.name)) || (outer && outer->backward)});
  look_at_memory(event, event.start - start, module);
}

void Profiler::State::on_end(const ObservedEvent& event) {
  std::lock_guard lock(mutex);
  Thread& thread = this_thread();
  if (thread.frames.empty()) return;  // the event began before this profile
  const Frame frame = thread.frames.back();
  thread.frames.pop_back();

  const bool is_kernel = event.kind == Kind::kernel;
  // Only leaves are counted, because a composite kernel reports the work of the kernels inside it a second time.
  const int64_t bytes = event.leaf ? event.bytes : 0, flops = event.leaf ? event.flops : 0;
  Row& own = row(is_kernel ? kernels : operators, event);
  ++own.calls;
  const bool recursive = std::ranges::any_of(thread.frames, [&](const Frame& open) {
    return open.event->kind == event.kind && !std::strcmp(open.event->name, event.name);
  });
  if (!recursive) own.total_seconds += event.seconds;
  own.self_seconds += event.seconds - frame.inner;
  own.bytes += bytes + frame.bytes;
  own.flops += flops + frame.flops;

  // The innermost open event of the same kind contains this event. The innermost open operator called this kernel.
  const auto nearest = [&](Kind kind) -> Frame* {
    for (auto open = thread.frames.rbegin(); open != thread.frames.rend(); ++open)
      if (open->event->kind == kind) return &*open;
    return nullptr;
  };
  if (Frame* outer = nearest(event.kind)) outer->inner += event.seconds;
  if (Frame* op = nearest(Kind::op); is_kernel && op) {
    op->bytes += bytes;
    op->flops += flops;
  }

  ModuleRow& module = modules[frame.module];
  module.bytes += bytes;
  module.flops += flops;
  const bool outermost_kernel = is_kernel && !nearest(Kind::op) && !nearest(Kind::kernel);
  if (!is_kernel || outermost_kernel)
    (frame.backward ? module.backward_seconds : module.forward_seconds) +=
        event.seconds - (is_kernel ? 0 : frame.inner);

  look_at_memory(event, event.start + event.seconds - start, frame.module);
  if (trace.size() < options.max_trace_events)
    trace.push_back(
        {&own, frame.module, thread.number, event.start - start, event.seconds, bytes, flops, frame.backward});
  else ++left_out;
}

// ---- Results as lists, as text and as a trace ----

namespace {

constexpr double kMilli = 1e3, kMicro = 1e6;

using detail::is_inside;
using detail::print_to;

double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }
double rate(int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds / 1e9 : 0; }

}  // namespace

std::vector<Profiler::Row> Profiler::State::sorted(const Rows& rows) {
  std::vector<Row> list;
  std::lock_guard lock(mutex);
  for (const auto& [key, row] : rows) list.push_back(row);
  std::ranges::stable_sort(list, std::greater(), &Row::self_seconds);
  return list;
}

std::vector<Profiler::Row> Profiler::operators() const { return state_->sorted(state_->operators); }
std::vector<Profiler::Row> Profiler::kernels() const { return state_->sorted(state_->kernels); }

std::vector<Profiler::ModuleRow> Profiler::modules() const {
  std::lock_guard lock(state_->mutex);
  // A module that runs no operators itself, such as a Sequential, gets a row, too.
  std::vector<ModuleRow> rows;
  const auto meet = [&](const std::string& path) {
    if (std::ranges::find(rows, path, &ModuleRow::path) == rows.end()) rows.push_back({path});
  };
  for (const ModuleRow& module : state_->modules) {
    for (size_t dot = module.path.find('.'); dot != std::string::npos; dot = module.path.find('.', dot + 1))
      meet(module.path.substr(0, dot));
    meet(module.path);
  }
  for (ModuleRow& row : rows)
    for (const ModuleRow& module : state_->modules) {
      if (!is_inside(module.path, row.path) || (row.path.empty() && !module.path.empty())) continue;
      row.forward_seconds += module.forward_seconds;
      row.backward_seconds += module.backward_seconds;
      row.bytes += module.bytes;
      row.flops += module.flops;
    }
  return rows;
}

std::vector<Profiler::MemoryPoint> Profiler::memory_timeline() const {
  std::lock_guard lock(state_->mutex);
  return state_->memory;
}

Profiler::MemoryPeak Profiler::memory_peak() const {
  std::lock_guard lock(state_->mutex);
  return state_->peak;
}

std::string Profiler::table(size_t rows) const {
  const std::vector<Row> operators = this->operators(), kernels = this->kernels();
  const double in_operators = detail::sum_of(operators, &Row::self_seconds);
  const double in_kernels = detail::sum_of(kernels, &Row::self_seconds);
  std::string text;
  print_to(text, "%.3f s, of which operators %.3f s (%.1f %%) and their kernels %.3f s (%.1f %%)\n", seconds(),
           in_operators, share(in_operators, seconds()), in_kernels, share(in_kernels, seconds()));

  print_to(text, "\n%-28s %9s %11s %11s %7s %10s %9s\n", "operator", "calls", "total ms", "self ms", "self %", "bytes",
           "GFLOP");
  for (size_t i = 0; i < std::min(rows, operators.size()); ++i) {
    const Row& row = operators[i];
    print_to(text, "%-28s %9lld %11.3f %11.3f %7.2f %10s %9.3f\n", row.name.c_str(), static_cast<long long>(row.calls),
             kMilli * row.total_seconds, kMilli * row.self_seconds, share(row.self_seconds, in_operators),
             format_bytes(row.bytes).c_str(), static_cast<double>(row.flops) / 1e9);
  }
  if (operators.size() > rows) print_to(text, "and %zu more\n", operators.size() - rows);

  print_to(text, "\n%-28s %-26s %9s %11s %7s %8s %9s\n", "kernel", "implementation", "calls", "self ms", "self %",
           "GB/s", "GFLOP/s");
  for (size_t i = 0; i < std::min(rows, kernels.size()); ++i) {
    const Row& row = kernels[i];
    print_to(text, "%-28s %-26s %9lld %11.3f %7.2f %8.2f %9.2f\n", row.name.c_str(),
             (row.backend + "/" + row.implementation).c_str(), static_cast<long long>(row.calls),
             kMilli * row.self_seconds, share(row.self_seconds, in_kernels), rate(row.bytes, row.self_seconds),
             rate(row.flops, row.self_seconds));
  }
  if (kernels.size() > rows) print_to(text, "and %zu more\n", kernels.size() - rows);

  print_to(text, "\n%-28s %11s %11s %7s %10s %9s\n", "module", "forward ms", "backward ms", "%", "bytes", "GFLOP");
  for (const ModuleRow& row : modules())
    print_to(text, "%-28s %11.3f %11.3f %7.2f %10s %9.3f\n",
             row.path.empty() ? "(outside of layers)" : row.path.c_str(), kMilli * row.forward_seconds,
             kMilli * row.backward_seconds, share(row.forward_seconds + row.backward_seconds, in_operators),
             format_bytes(row.bytes).c_str(), static_cast<double>(row.flops) / 1e9);

  const MemoryPeak peak = memory_peak();
  print_to(text, "\npeak memory: %s, at %.3f s, in %s%s%s\n", format_bytes(peak.bytes).c_str(), peak.seconds,
           peak.name.empty() ? "nothing" : peak.name.c_str(), peak.module.empty() ? "" : " of layer ",
           peak.module.c_str());
  return text;
}

void Profiler::save_trace(const std::string& path) const {
  std::lock_guard lock(state_->mutex);
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  };
  std::string text =
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"gradus\"}}";
  for (const auto& [id, thread] : state_->threads)
    print_to(text, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"thread %d\"}}",
             thread.number, thread.number);
  for (const State::TraceEvent& event : state_->trace) {
    const bool is_kernel = !event.row->backend.empty();
    text += ",\n{\"ph\":\"X\",\"pid\":1,\"name\":" + quoted(event.row->name);
    print_to(text,
             ",\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"args\":{\"pass\":\"%s\",\"module\":", event.thread,
             kMicro * event.start, kMicro * event.seconds, is_kernel ? "kernel" : "operator",
             event.backward ? "backward" : "forward");
    text += quoted(state_->modules[event.module].path);
    if (is_kernel) {
      text += ",\"implementation\":" + quoted(event.row->backend + "/" + event.row->implementation);
      print_to(text, ",\"bytes\":%lld,\"flops\":%lld", static_cast<long long>(event.bytes),
               static_cast<long long>(event.flops));
    }
    text += "}}";
  }
  for (const MemoryPoint& point : state_->memory)
    print_to(text, ",\n{\"ph\":\"C\",\"pid\":1,\"name\":\"memory\",\"ts\":%.3f,\"args\":{\"allocated\":%lld}}",
             kMicro * point.seconds, static_cast<long long>(point.bytes));
  print_to(text, "\n],\"otherData\":{\"events_left_out\":%lld}}\n", static_cast<long long>(state_->left_out));
  io::write_file(path, text);
}

}  // namespace gradus::training
