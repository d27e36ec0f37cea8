// Records a step: the calls that this thread would run on a device are stored instead, with arrays without memory.
//
//   graph::Recorder recorder;
//   Tensor loss = step(x, y);                     // computes nothing
//   graph::Graph recorded = recorder.finish();
//
// Kernels run only to find out how much workspace they need.
//
// Arrays made while recording have shapes, strides and addresses, but no values: reading one (item(), print) is an
// error that names the line. Arrays from before the recording are read and written in place when the graph runs. Values
// that the step copies into an array from the host (tensor({1, 2})) become constants of the graph. So does what a step
// on a GPU computes on the CPU, which happens once, while recording. Random operators draw new numbers in each run, the
// same ones as in an eager step, from the seed at the time of recording.
#pragma once

#include <optional>

#include <gradus/core/registry.h>
#include <gradus/graph/graph.h>
#include <gradus/graph/recorded_call.h>

namespace gradus::graph {

class Recorder {
 public:
  /// Records until finish(). Results have the layouts that the device's current backend would give them.
  explicit Recorder(Device device = Device());
  /// Discards a recording that was not finished.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The current time in the unit of Allocation: allocations and frees so far.
  int64_t time() const { return graph_.blocks_->time(); }
  /// The number of calls so far.
  size_t size() const { return graph_.calls_.size(); }
  /// Ends the recording and returns it. Throws a ValueError if a call writes into an array that the step filled with
  /// values from the host. A call with an operand on another device of this type throws one immediately.
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
  std::unique_ptr<Backend> calls_;     // passes its calls to on_call()
  std::optional<BackendGuard> guard_;  // set while this records
  std::shared_ptr<char> scrap_;        // dry runs write here instead of into memory from before the step
  size_t scrap_bytes_ = 0;
};

}  // namespace gradus::graph
