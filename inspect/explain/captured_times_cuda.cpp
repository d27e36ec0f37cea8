// Times of captured steps on a GPU.
//
// The kernels of a captured step follow each other without waiting for the host. The time of the step is that of a
// replay. The kernels are timed in a second graph, which records an event before and after each kernel; the time
// between two events without a kernel in between is subtracted from the time of each kernel.
#include <algorithm>
#include <cmath>
#include <deque>

#include <gradus/core/runtime/cuda.h>
#include <gradus/inspect/explain/explain_parts.h>

namespace gradus::training {
namespace {

struct EventPair {
  cuda::Event before{true}, after{true};
  double seconds() const { return 1e-3 * before.elapsed_time(after); }
};

/// Records an event before and after each kernel of a step that is being captured.
class KernelEvents final : public detail::ThreadObserver {
 public:
  struct Timed {
    const char* name;
    EventPair events;
    bool leaf = false;
  };
  void on_begin(const ObservedEvent& event) override {
    if (!is_mine(event, ObservedEvent::Kind::kernel)) return;
    open_.push_back(&kernels.emplace_back(Timed{event.name, {}}));
    open_.back()->events.before.record();
  }
  void on_end(const ObservedEvent& event) override {
    if (!is_mine(event, ObservedEvent::Kind::kernel) || open_.empty()) return;
    open_.back()->events.after.record();
    open_.back()->leaf = event.leaf;
    open_.pop_back();
  }
  std::deque<Timed> kernels;

 private:
  std::vector<Timed*> open_;
};

/// The shortest time between two consecutive events of a graph, without a kernel in between.
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
  // Replays that are timed together, because training also launches steps without waiting for the previous one.
  constexpr int kReplays = 4;
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
    std::vector<const KernelEvents::Timed*> timed;  // the innermost kernels, in order
    for (const KernelEvents::Timed& kernel : observer.kernels)
      if (kernel.leaf) timed.push_back(&kernel);
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
  step();  // the new gradients replace those in the graph's private memory
  set_captured_times(explanation, std::move(least), empty);
}

void detail::set_captured_times(Explanation& explanation, std::vector<double> least, double empty) {
  double sum = 0;
  for (double& seconds : least) sum += seconds = std::max(seconds - empty, 0.0);
  const double scale = sum > explanation.step_seconds ? explanation.step_seconds / sum : 1;
  if (scale < 1)
    print_to(explanation.notes.emplace_back(), "kernels take %.0f %% of the step with events around them: scaled to it",
             100 / scale);
  for (size_t k = 0; k < least.size(); ++k) explanation.kernels[k].seconds = scale * least[k];
  explanation.between_seconds = explanation.step_seconds - scale * sum;
}

}  // namespace gradus::training
