// Declarations shared by explanations, their proposals and lab pages.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gradus/core/registry.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/graph/call.h>
#include <gradus/inspect/explain/explain.h>

namespace gradus::training::detail {

/// An observer of this thread, registered during its lifetime.
class ThreadObserver : public Observer {
 public:
  ThreadObserver() { add_observer(this); }
  ~ThreadObserver() override { remove_observer(this); }
  ThreadObserver(const ThreadObserver&) = delete;
  ThreadObserver& operator=(const ThreadObserver&) = delete;

 protected:
  bool is_mine(const ObservedEvent& event, ObservedEvent::Kind kind) const {
    return event.kind == kind && std::this_thread::get_id() == thread_;
  }

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
};

/// Seconds of the fastest of `count` calls of work(), after one untimed call.
double least_seconds(int count, const std::function<void()>& work);

/// Seconds of work() on a GPU, captured and replayed: the fastest of `count` measurements.
double least_captured_seconds(int count, const std::function<void()>& work);
/// Fills in the times of a captured step, of its kernels and of the gaps between them.
void time_captured_step(Explanation& explanation, const std::function<void()>& step, int count);

/// The calls of Explanation::calls with their arguments.
using WatchedCalls = std::vector<std::unique_ptr<graph::Call>>;

class WatchedMemory;

/// Callbacks for the steps that an explanation watches. Only the last of these steps is reported.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  virtual void begin_step(WatchedMemory& memory) = 0;
  virtual void end_step() = 0;
  /// Called before and after a call of the backend runs.
  virtual void on_call(graph::Call& call, bool has_run) = 0;
  /// Called when the forward pass keeps an array for the backward pass.
  virtual void on_saved(const Array& array) = 0;
};
/// explain(); `watch` may be null.
Explanation explain(const std::function<void()>& step, const ExplainOptions& options, StepWatch* watch);

/// The text with HTML's special characters escaped.
std::string escaped(const std::string& text);
/// The net as SVG, with a box for each layer or operator. The <rect> of a box has its number as "data-box". Unless
/// `box_of` is null, it gets the number of each call's box, SIZE_MAX for calls without one. Empty if there are too many
/// boxes to draw.
std::string picture_of(const Explanation& explanation, std::vector<size_t>* box_of = nullptr);

/// Fills in Explanation::faster and Explanation::smaller.
void add_proposals(Explanation& explanation, const WatchedCalls& calls, Backend& backend,
                   const std::function<void()>& step, const ExplainOptions& options);

}  // namespace gradus::training::detail
