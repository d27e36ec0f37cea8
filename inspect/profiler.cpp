#include <gradus/inspect/profiler_state.h>

#include <algorithm>
#include <cstring>

#include <gradus/core/error.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus::training {
namespace {

using Kind = ObservedEvent::Kind;

bool begins_backward(const ObservedEvent& event) {
  return event.kind == Kind::op && (!std::strcmp(event.name, "backward") || !std::strcmp(event.name, "grad"));
}

}  // namespace

Profiler::Profiler(const ProfilerOptions& options) : state_(std::make_unique<State>(options)) { add_observer(this); }

Profiler::~Profiler() { stop(); }

void Profiler::stop() {
  if (!state_->running) return;
  remove_observer(this);  // waits until other threads have left this observer
  state_->running = false;
  state_->end = observer_time();
}

double Profiler::seconds() const { return (state_->running ? observer_time() : state_->end) - state_->start; }

void Profiler::on_begin(const ObservedEvent& event) { state_->on_begin(event); }
void Profiler::on_end(const ObservedEvent& event) { state_->on_end(event); }

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
  frames.push_back({&event, module, begins_backward(event) || (outer && outer->backward)});
  look_at_memory(event, event.start - start, module);
}

void Profiler::State::on_end(const ObservedEvent& event) {
  std::lock_guard lock(mutex);
  Thread& thread = this_thread();
  if (thread.frames.empty() || thread.frames.back().event != &event) return;  // it began before this profile
  const Frame frame = thread.frames.back();
  thread.frames.pop_back();

  const bool is_kernel = event.kind == Kind::kernel;
  // Only leaves are counted, because the parts of a composite kernel report its work again.
  const int64_t bytes = event.leaf ? event.bytes : 0, flops = event.leaf ? event.flops : 0;
  Row& own = row(is_kernel ? kernels : operators, event);
  ++own.calls;
  const bool recursive = std::any_of(thread.frames.begin(), thread.frames.end(), [&](const Frame& open) {
    return open.event->kind == event.kind && !std::strcmp(open.event->name, event.name);
  });
  if (!recursive) own.total_seconds += event.seconds;
  own.self_seconds += event.seconds - frame.inner;
  own.bytes += bytes + frame.bytes;
  own.flops += flops + frame.flops;

  // The nearest open event of the same kind contains this one. A kernel's bytes belong to the nearest open operator.
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

}  // namespace gradus::training
