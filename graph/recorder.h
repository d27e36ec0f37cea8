// Writes a step down: what this thread would run on a device is recorded instead, on arrays without memory.
//
//   graph::Recorder recorder;
//   Tensor loss = step(x, y);                     // computes nothing
//   graph::Graph recorded = recorder.finish();
//
// Kernels are asked for nothing but the memory that they take for themselves.
//
// Arrays made meanwhile have shapes, strides and addresses, but nothing computes their numbers: reading one (item(),
// print) is an error that names the line. Those that were there before are read and written when the graph is run, in
// their place. Numbers that the step puts into an array by itself (tensor({1, 2})) become part of the graph; those that
// a step on a GPU computes on the host, too, which happens once. Random operators draw anew in each run what the eager
// step would, from the seed at the time of recording.
#pragma once

#include <optional>

#include <gradus/core/registry.h>
#include <gradus/graph/graph.h>
#include <gradus/graph/recorded_call.h>

namespace gradus::graph {

class Recorder {
 public:
  /// Records until finish(). Operations keep the layouts that the device's current backend would give results.
  explicit Recorder(Device device = Device());
  /// Gives up a recording that did not come to its end.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Now, as Allocation counts it, and the number of calls so far.
  int64_t time() const { return graph_.blocks_->time(); }
  size_t size() const { return graph_.calls_.size(); }
  /// What was recorded. A ValueError where a call writes into an array that the step filled with numbers from the host.
  /// (Calls that have an operand on another device of the type are one at once.)
  Graph finish();

 private:
  void on_call(std::unique_ptr<Call> call);
  void add(std::unique_ptr<Call> call);
  void find_workspace(Call& call);
  void run_dry(Call& call);
  void end() noexcept;
  void find_buffers();
  void find_operands();
  void make_constant(Buffer& buffer);

  Graph graph_;
  std::unique_ptr<Backend> calls_;     // gives its calls to on_call()
  std::optional<BackendGuard> guard_;  // while this records
  std::shared_ptr<char> scrap_;        // addresses that stand for memory outside of the step that a call would write
  size_t scrap_bytes_ = 0;
};

}  // namespace gradus::graph
