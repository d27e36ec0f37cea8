// Converts a recorded forward pass to an ONNX model, which other runtimes can read.
//
// A recording has kernels and strides, ONNX has operators and values. What a call writes becomes a value. If a later
// call reads the same memory transposed, with another shape or in part, nodes such as Transpose, Reshape and Slice are
// inserted between the two. Format: https://github.com/onnx/onnx/blob/main/docs/IR.md, operators of opset 17.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gradus/graph/graph.h>

namespace gradus::graph {

/// A recorded forward pass: its graph, and its inputs, outputs and weights by name. Weights are arrays from before the
/// pass that get a name in the model, such as parameters. Arrays are matched with the recording by their addresses.
/// Outputs may be views of inputs and weights.
struct ForwardPass {
  using Arrays = std::vector<std::pair<std::string, Array>>;
  Graph graph;
  Arrays inputs, outputs, weights;
};

/// The bytes of a model for inputs of the recorded sizes. Weights are copied into the model. Throws a ValueError that
/// names module and line of the first operation that cannot be translated or that reads memory no value describes.
std::string to_onnx(const ForwardPass& pass);

/// A model for any batch size, from the same pass recorded with two sizes of axis `batch_axis` of the first input.
/// Sizes that scale with this axis become multiples of "batch". Throws a ValueError that names the first operation in
/// which the recordings differ in any other way.
std::string to_onnx(const ForwardPass& pass, const ForwardPass& larger, int64_t batch_axis = 0);

}  // namespace gradus::graph
