// Engine: one of cuDNN's implementations of a convolution with its execution plan, ready to run.
#pragma once

#include <gradus/backends/cudnn/conv_graph.h>

namespace gradus::cudnn_detail {

/// The addresses of the operands, one of which is the result. `bias` is null if the problem has no bias.
struct EngineOperands {
  const void *x, *w, *y, *bias;
};

class Engine {
 public:
  /// `config` is cuDNN's configuration of an engine for `graph`. run() may be called only if supported() returns true.
  Engine(const EngineRequest& problem, std::shared_ptr<const ConvGraph> graph, Descriptor config, cudnnHandle_t handle);

  /// Returns false if the engine refuses the problem or needs more scratch memory than problem.workspace_limit.
  bool supported() const { return supported_; }
  /// Queues the convolution on this thread's stream.
  void run(const EngineOperands& operands) const;

 private:
  const EngineRequest problem_;
  const std::shared_ptr<const ConvGraph> graph_;
  const Descriptor config_;
  Descriptor plan_;
  size_t workspace_ = 0;
  bool supported_ = false;
};

/// The engine for `problem`, from this thread's cache or a new one; null if no engine of cuDNN supports the problem. If
/// problem.timed is set, candidates are timed: they run on `operands` and overwrite the result.
const Engine* find_engine(const EngineRequest& problem, const EngineOperands& operands);

}  // namespace gradus::cudnn_detail
