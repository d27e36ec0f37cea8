// What explain.cpp and its proposals share.
#pragma once

#include <memory>
#include <thread>

#include <gradus/core/observer.h>
#include <gradus/core/registry.h>
#include <gradus/training/explain.h>

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

/// Fills `faster` and `smaller`.
void add_proposals(Explanation& explanation, const WatchedCalls& calls, Backend& backend,
                   const std::function<void()>& step, const ExplainOptions& options);

}  // namespace gradus::training::detail
