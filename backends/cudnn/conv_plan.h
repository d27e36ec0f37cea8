// A convolution as cuDNN runs it: the engine that was chosen for a problem, ready to be executed.
#pragma once

#include <gradus/backends/cudnn/conv_graph.h>

namespace gradus::cudnn_detail {

/// The addresses of the operands, the result among them. Bias is null where the problem has none.
struct ConvOperands {
  const void *x, *w, *y, *bias;
};

class ConvPlan {
 public:
  /// `config` is an engine for `graph`. Check supported() before use.
  ConvPlan(const ConvProblem& problem, std::shared_ptr<const ConvGraph> graph, Descriptor config, cudnnHandle_t handle);

  /// False where the engine does not take the problem after all or needs too much scratch memory.
  bool supported() const { return supported_; }
  /// Queues the convolution on this thread's stream.
  void run(const ConvOperands& operands) const;

 private:
  const ConvProblem problem_;
  const std::shared_ptr<const ConvGraph> graph_;
  const Descriptor config_;
  Descriptor plan_;
  size_t workspace_ = 0;
  bool supported_ = false;
};

/// The plan for `problem`, from this thread's cache or newly made; null where no engine of cuDNN's takes the problem.
/// When engines are timed, they write the result.
const ConvPlan* find_plan(const ConvProblem& problem, const ConvOperands& operands);

}  // namespace gradus::cudnn_detail
