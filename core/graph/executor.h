// Runs a graph: its calls in order, on buffers that all have their place in one block of memory. Between two kernels
// nothing is allocated, counted or looked up.
#pragma once

#include <gradus/core/graph/memory_plan.h>

namespace gradus::graph {

class Executor {
 public:
  /// Takes the arena from the CPU's runtime.
  explicit Executor(Graph graph);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Reads and writes external buffers in their place. Draws from the default generator what the eager step would.
  void run() {
    for_each_call([this](const Call& call) { call.run(*graph_.backend_); });
  }
  /// A run in which f runs the calls.
  template <class F>
  void for_each_call(const F& f) {
    advance_generator();
    for (const auto& call : graph_.calls_) {
      const OpContext context(call->origin.op.c_str(), call->origin.where);
      f(static_cast<const Call&>(*call));
    }
  }
  /// The array with the numbers that `recorded`, a result or an array from before the step, has after a run.
  Array result(const Array& recorded) const;

  /// The elements of an operand that has some, as long as this lives.
  Array array_of(const Operand& operand) const;

  const Graph& graph() const { return graph_; }
  const MemoryPlan& plan() const { return plan_; }

 private:
  void advance_generator();

  Graph graph_;
  MemoryPlan plan_;
  Storage arena_;
};

}  // namespace gradus::graph
