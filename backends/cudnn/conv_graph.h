// A convolution in cuDNN's graph interface: a convolution node and, if asked for, nodes for the bias and ReLU.
#pragma once

#include <deque>
#include <memory>

#include <gradus/backends/cudnn/conv_problem.h>
#include <gradus/backends/cudnn/descriptor.h>

namespace gradus::cudnn_detail {

/// The ids of the graph's tensors that are in memory.
enum TensorId : int64_t { kX = 1, kW, kY, kBias, kAddend };

/// The alignment in bytes that every tensor in memory must have.
inline constexpr int64_t kAlignment = 16;

struct ConvGraph {
  Descriptor descriptor{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  std::deque<Descriptor> parts;  // the descriptors to which `descriptor` refers
  bool addend = false;
};

/// The graph of `problem`, or null if cuDNN does not support it. With `addend` it is y = relu(conv + 0 addend + bias),
/// the pattern for which cuDNN has precompiled engines with a bias.
std::shared_ptr<const ConvGraph> make_graph(const ConvProblem& problem, cudnnHandle_t handle, bool addend);

}  // namespace gradus::cudnn_detail
