// What explanations, their proposals and lab pages share.
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

/// An observer of this thread, as long as it lives.
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

/// Seconds of the fastest of `count` calls of work(), after one more: what it takes when nothing disturbs it.
double least_seconds(int count, const std::function<void()>& work);

/// On a GPU: seconds of work(), captured and replayed, each the fastest of `count`.
double least_captured_seconds(int count, const std::function<void()>& work);
/// Fills in the seconds of a step that is captured, of its kernels and of the gaps between them.
void time_captured_step(Explanation& explanation, const std::function<void()>& step, int count);

/// The calls of Explanation::calls, with their arguments.
using WatchedCalls = std::vector<std::unique_ptr<graph::Call>>;

class WatchedMemory;

/// Looks on while an explanation watches steps, the last of which is the one that it tells of.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  virtual void begin_step(WatchedMemory& memory) = 0;
  virtual void end_step() = 0;
  /// Before a call of the backend runs, and when it has.
  virtual void on_call(graph::Call& call, bool has_run) = 0;
  /// The forward pass keeps an array for the backward pass.
  virtual void on_saved(const Array& array) = 0;
};
/// explain(); `watch` may be null.
Explanation explain(const std::function<void()>& step, const ExplainOptions& options, StepWatch* watch);

/// For HTML.
std::string escaped(const std::string& text);
/// The net as SVG: a box for each layer or operator in a row of calls, whose <rect> has its number as "data-box". Adds
/// the number of each call's box to `box_of`, SIZE_MAX for calls of no box, where that is not null. "" for more boxes
/// than a reader or a browser could cope with.
std::string picture_of(const Explanation& explanation, std::vector<size_t>* box_of = nullptr);

/// Fills `faster` and `smaller`.
void add_proposals(Explanation& explanation, const WatchedCalls& calls, Backend& backend,
                   const std::function<void()>& step, const ExplainOptions& options);

}  // namespace gradus::training::detail
