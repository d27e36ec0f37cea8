// Times of steps on a GPU. In a captured step, kernels run one after the other without waiting for the host. The step's
// time is that of the unchanged graph. Kernels are timed in a second graph, which has an event before and after each
// kernel; the time of such a pair without a kernel in between is subtracted.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>

#include <gradus/core/runtime/cuda.h>
#include <gradus/inspect/explain/explain_parts.h>

namespace gradus::training {
namespace {

struct EventPair {
  cuda::Event before{true}, after{true};
  double seconds() const { return 1e-3 * before.elapsed_time(after); }
};

/// Puts events around the kernels of a step that is being captured.
class KernelEvents final : public detail::ThreadObserver {
 public:
  struct Timed {
    const char* name;
    EventPair events;
    bool leaf = false;
  };
  void on_begin(const ObservedEvent& event) override {
    if (!is_mine(event, ObservedEvent::Kind::kernel)) return;
    open_.push_back(&kernels_.emplace_back(Timed{event.name, {}}));
    open_.back()->events.before.record();
  }
  void on_end(const ObservedEvent& event) override {
    if (!is_mine(event, ObservedEvent::Kind::kernel) || open_.empty()) return;
    open_.back()->events.after.record();
    open_.back()->leaf = event.leaf;
    open_.pop_back();
  }
  /// The innermost kernels, in order.
  std::vector<const Timed*> leaves() const {
    std::vector<const Timed*> leaves;
    for (const Timed& kernel : kernels_)
      if (kernel.leaf) leaves.push_back(&kernel);
    return leaves;
  }

 private:
  std::deque<Timed> kernels_;
  std::vector<Timed*> open_;
};

/// The least seconds between two events of a graph without a kernel in between.
double seconds_of_empty_pair() {
  constexpr int kPairs = 16, kReplays = 8;
  std::vector<EventPair> pairs(kPairs);
  cuda::Graph graph;
  graph.capture([&] {
    for (EventPair& pair : pairs) pair.before.record(), pair.after.record();
  });
  double least = INFINITY;
  for (int i = 0; i < kReplays; ++i) {
    graph.replay();
    cuda::synchronize();
    for (const EventPair& pair : pairs) least = std::min(least, pair.seconds());
  }
  return least;
}

}  // namespace

double detail::least_captured_seconds(int count, const std::function<void()>& work) {
  constexpr int kReplays = 4;  // one after the other, as in training
  cuda::Graph graph;
  graph.capture(work);
  EventPair events;
  double least = INFINITY;
  for (int i = 0; i <= count; ++i) {
    events.before.record();
    for (int k = 0; k < kReplays; ++k) graph.replay();
    events.after.record();
    events.after.synchronize();
    if (i > 0) least = std::min(least, events.seconds() / kReplays);
  }
  return least;
}

void detail::time_captured_step(Explanation& explanation, const std::function<void()>& step, int count) {
  std::vector<double> least(explanation.kernels.size(), INFINITY);
  const double empty = seconds_of_empty_pair();
  {
    cuda::Graph graph;
    KernelEvents observer;
    graph.capture(step);
    const std::vector<const KernelEvents::Timed*> timed = observer.leaves();
    bool same = timed.size() == least.size();
    for (size_t k = 0; same && k < least.size(); ++k)
      same = std::string_view(timed[k]->name) == explanation.kernels[k].name;
    GRADUS_CHECK(same, ValueError, "explain: the captured step has other kernels than the eager one (", timed.size(),
                 " and ", least.size(), "): each step must do the same");
    for (int i = 0; i <= count; ++i) {
      graph.replay();
      cuda::synchronize();
      for (size_t k = 0; i > 0 && k < least.size(); ++k) least[k] = std::min(least[k], timed[k]->events.seconds());
    }
  }
  explanation.step_seconds = least_captured_seconds(count, step);
  step();  // replaces gradients in the graph's memory by ones in the runtime's
  double sum = 0;
  for (double& seconds : least) sum += seconds = std::max(seconds - empty, 0.0);
  const double scale = sum > explanation.step_seconds ? explanation.step_seconds / sum : 1;
  if (scale < 1) {
    char note[96];
    std::snprintf(note, sizeof note, "kernels take %.0f %% of the step with events around them: scaled to it",
                  100 / scale);
    explanation.notes.emplace_back(note);
  }
  for (size_t k = 0; k < least.size(); ++k) explanation.kernels[k].seconds = scale * least[k];
  explanation.between_seconds = explanation.step_seconds - scale * sum;
}

}  // namespace gradus::training
