// Runs a graph: its calls in order, on buffers at fixed places in one block of memory (the arena). Between two kernels
// nothing is allocated and no reference is counted. On a GPU the calls are captured and launched as one graph.
#pragma once

#include <gradus/core/runtime/cuda.h>
#include <gradus/graph/memory_plan.h>

namespace gradus::graph {

class Executor {
 public:
  /// Allocates the arena from the device's runtime.
  explicit Executor(Graph graph);

  /// Runs the step. External buffers are read and written in place. Random numbers are those that the eager step would
  /// draw from the default generator. On a GPU the first run launches the kernels one by one, so that they are loaded
  /// and libraries choose algorithms. The second run captures the kernels; this run and later ones replay the capture.
  void run();
  /// Runs the step by calling f(call) for each call in order; f must run the call. f may change the addresses of the
  /// call's operands with place(call, device, …) if it restores them with place(call).
  template <class F>
  void for_each_call(const F& f) {
    advance_generator();
    each_call(f);
  }
  /// Makes a call use other memory, on `device`: memory(i) is the first byte of buffer i, and `offset` points to the
  /// generator's offset that the call's random draws add to their own offset.
  static void place(Call& call, Device device, const std::function<char*(int buffer)>& memory, const void* offset);
  /// Makes a call use the arena, the external buffers and offset() again.
  void place(Call& call) const;
  /// The array that has the values of `recorded` after a run. `recorded` is a result of the recorded step, or an array
  /// from before the recording.
  Array result(const Array& recorded) const;

  const Graph& graph() const { return graph_; }
  const MemoryPlan& plan() const { return plan_; }
  /// The generator's offset (int64 scalar on the device). Each recorded draw adds it to the draw's own offset.
  const Array& offset() const { return graph_.offset_; }

 private:
  template <class F>
  void each_call(const F& f) {
    for (const auto& call : graph_.calls_) {
      const OpContext context(call->origin.op.c_str(), call->origin.where);
      f(*call);
    }
  }
  void advance_generator();
  void run_calls_with_scratch();

  Graph graph_;
  MemoryPlan plan_;
  Storage arena_;
  int64_t runs_ = 0;  // number of runs so far, counted only on a GPU
  cuda::Graph captured_;
};

}  // namespace gradus::graph
