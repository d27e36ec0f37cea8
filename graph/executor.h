// Runs a graph: its calls in order, on buffers at fixed places in one block of memory. Nothing is allocated, counted or
// looked up between two kernels. On a GPU the calls are captured and launched together.
#pragma once

#include <functional>

#include <gradus/core/runtime/cuda.h>
#include <gradus/graph/memory_plan.h>

namespace gradus::graph {

class Executor {
 public:
  /// Allocates the arena from the device's runtime.
  explicit Executor(Graph graph);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs the step. External buffers are read and written in place, and random numbers are those that the eager step
  /// would draw from the default generator. On a GPU the first run launches kernels one by one, which loads them and
  /// lets libraries choose algorithms, the second one captures them, and later ones are replays.
  void run() {
    advance_generator();
    if (graph_.device_.is_cuda()) run_captured();
    else run_calls();
  }
  /// A run in which f runs each call. f may move a call's operands with place() if it moves them back.
  template <class F>
  void for_each_call(const F& f) {
    advance_generator();
    each_call(f);
  }
  /// Points a call's operands to memory on a device and its random draws to `offset`. memory(i) is the first byte of
  /// buffer i.
  static void place(Call& call, Device device, const std::function<char*(int buffer)>& memory, const void* offset);
  /// Points them to the executor's own memory again.
  void place(Call& call) const;
  /// The array that holds, after a run, the values of `recorded`: a result of the recording or an array from before it.
  Array result(const Array& recorded) const;

  const Graph& graph() const { return graph_; }
  const MemoryPlan& plan() const { return plan_; }
  /// The generator's offset, which recorded draws add to their own (int64 scalar).
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
  void run_calls();
  void run_calls_with_scratch();
  void run_captured();

  Graph graph_;
  MemoryPlan plan_;
  Storage arena_;
  int64_t runs_ = 0;  // on a GPU
  cuda::Graph captured_;
};

}  // namespace gradus::graph
