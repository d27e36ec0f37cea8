// Runs a graph: its calls in order, on buffers that all have their place in one block of memory. Between two kernels
// nothing is allocated, counted or looked up. On a GPU the calls are captured and launched as a whole.
#pragma once

#include <functional>

#include <gradus/core/runtime/cuda.h>
#include <gradus/graph/memory_plan.h>

namespace gradus::graph {

class Executor {
 public:
  /// Takes the arena from the device's runtime.
  explicit Executor(Graph graph);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Reads and writes external buffers in their place. Draws from the default generator what the eager step would. On a
  /// GPU the first run launches kernel by kernel, which loads them and has their plans made; later ones are replays.
  void run() {
    advance_generator();
    if (graph_.device_.is_cuda()) run_captured();
    else run_calls();
  }
  /// A run in which f runs the calls; it may place operands elsewhere (place()) if it places them back.
  template <class F>
  void for_each_call(const F& f) {
    advance_generator();
    for (const auto& call : graph_.calls_) {
      const OpContext context(call->origin.op.c_str(), call->origin.where);
      f(*call);
    }
  }
  /// Puts a call's operands and the generator's offset on a device, where `memory` has the first byte of each buffer.
  static void place(Call& call, Device device, const std::function<char*(int buffer)>& memory, const void* offset);
  /// Puts them into the executor's own memory.
  void place(Call& call) const;
  /// The array with the numbers that `recorded`, a result or an array from before the step, has after a run.
  Array result(const Array& recorded) const;

  const Graph& graph() const { return graph_; }
  const MemoryPlan& plan() const { return plan_; }
  /// Of the generator, which recorded draws add to their own (int64 scalar).
  const Array& offset() const { return graph_.offset_; }

 private:
  void advance_generator();
  void run_calls();
  void run_calls_with_scratch();
  void run_captured();

  Graph graph_;
  MemoryPlan plan_;
  Storage arena_;
  enum class State : uint8_t { loaded, launched, captured } state_ = State::loaded;  // on a GPU
  cuda::Graph captured_;
};

}  // namespace gradus::graph
