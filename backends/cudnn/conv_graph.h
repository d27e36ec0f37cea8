// A convolution in cuDNN's graph interface: a convolution node and, if requested, nodes for the bias and the ReLU.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>

#include <gradus/backends/cudnn/descriptor.h>
#include <gradus/backends/cudnn/select.h>

namespace gradus::cudnn_detail {

using cuda_detail::ConvPass;

/// The description of a convolution on which the choice of an engine depends. It is the key under which engines are
/// cached.
struct EngineRequest {
  ConvPass pass = ConvPass::forward;
  bool bias = false, relu = false;  // in the forward pass only
  DType dtype = DType::f32;
  bool channels_last = false;      // the layout of all operands, which are dense and aligned
  std::array<int64_t, 4> x, w, y;  // sizes
  std::array<int64_t, 2> stride, padding, dilation;
  int device = 0;
  bool tf32 = false, deterministic = true, timed = false;  // the switches of core/runtime/cuda.h
  size_t workspace_limit = 0;

  friend auto operator<=>(const EngineRequest&, const EngineRequest&) = default;
};

/// Describes the problem in messages: "y of x (8, 3, 32, 32), w (16, 3, 3, 3), …".
std::string describe(const EngineRequest& problem);

/// The ids of the graph's tensors that are in memory (others are virtual: one node passes them to the next).
enum TensorId : int64_t { kX = 1, kW, kY, kBias, kAddend };

/// The alignment in bytes that every tensor in memory must have.
inline constexpr int64_t kAlignment = 16;

struct ConvGraph {
  Descriptor descriptor{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  std::deque<Descriptor> parts;  // the descriptors to which `descriptor` refers
  bool addend = false;
};

/// The graph of `problem`, or null if cuDNN does not support it. If `addend` is true, the graph computes y = relu(conv
/// + 0 addend + bias): cuDNN has precompiled engines with a bias only for this pattern.
std::shared_ptr<const ConvGraph> make_graph(const EngineRequest& problem, cudnnHandle_t handle, bool addend);

}  // namespace gradus::cudnn_detail
