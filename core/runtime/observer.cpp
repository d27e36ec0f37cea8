#include <gradus/core/runtime/observer.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include <gradus/core/parallel/parallel.h>

namespace gradus {

static std::shared_mutex observers_mutex;
static std::vector<Observer*> observers;
static thread_local ObservedEvent* innermost = nullptr;

double observer_time() {
  if (detail::observer_clock) return detail::observer_clock();
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

const ObservedEvent* innermost_event() { return innermost; }

void add_observer(Observer* observer) {
  std::unique_lock lock(observers_mutex);
  observers.push_back(observer);
  detail::observer_count.store(static_cast<int>(observers.size()));
}

void remove_observer(Observer* observer) {
  std::unique_lock lock(observers_mutex);
  std::erase(observers, observer);
  detail::observer_count.store(static_cast<int>(observers.size()));
}

void EventScope::begin(ObservedEvent::Kind kind, const char* name, const char* backend, const char* implementation,
                       Operands operands, int64_t flops, const char* reason) {
  if (detail::skips_chunks) return;  // kernels compute nothing on this thread now
  event_ = new ObservedEvent{kind, name, backend, implementation, reason};
  event_->flops = flops;
  for (const Operand& operand : operands) {
    const StridedLayout& layout = *operand.layout;
    if (!*operand.data && layout.ndim() == 0) continue;  // absent
    event_->bytes += layout.numel() * static_cast<int64_t>(size_of(layout.dtype));
    if (event_->shape_count < 4) event_->shapes[event_->shape_count++] = layout.shape;
  }
  parent_ = innermost;
  if (parent_) {
    parent_->leaf = false;
    event_->depth = parent_->depth + 1;
  }
  innermost = event_;
  event_->start = observer_time();
  std::shared_lock lock(observers_mutex);
  for (Observer* observer : observers) observer->on_begin(*event_);
}

void EventScope::end() noexcept {
  event_->seconds = observer_time() - event_->start;
  innermost = parent_;
  try {
    std::shared_lock lock(observers_mutex);
    for (Observer* observer : observers) observer->on_end(*event_);
  } catch (...) {  // an observer's exception must not become the operator's
  }
  delete event_;
}

}  // namespace gradus
