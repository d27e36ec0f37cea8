// A convolution as cuDNN's graph interface describes it: a convolution node and, where asked for, nodes that add the
// bias and cut off at 0.
#pragma once

#include <deque>
#include <memory>

#include <gradus/backends/cudnn/conv_problem.h>
#include <gradus/backends/cudnn/descriptor.h>

namespace gradus::cudnn_detail {

/// The tensors of the graph that are in memory.
enum TensorId : int64_t { kX = 1, kW, kY, kBias, kAddend };

/// The address that every tensor in memory has a multiple of.
inline constexpr int64_t kAlignment = 16;

struct ConvGraph {
  Descriptor descriptor{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  std::deque<Descriptor> parts;  // that the descriptor refers to
  bool addend = false;
};

/// The graph of `problem`; null where cuDNN does not take it. With `addend` it is y = relu(conv + 0 addend + bias), the
/// pattern of the engines that were compiled with a bias.
std::shared_ptr<const ConvGraph> make_graph(const ConvProblem& problem, cudnnHandle_t handle, bool addend);

}  // namespace gradus::cudnn_detail
