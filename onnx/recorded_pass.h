// A recorded forward pass as an ONNX model, which other runtimes read.
//
// A recording has kernels and strides, ONNX has operators and values: what a call writes is a value, and how a later
// call reads the same memory, transposed, in other sizes, in part, says which Transpose, Reshape and Slice are between
// the two. Format: https://github.com/onnx/onnx/blob/main/docs/IR.md, operators of opset 17.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gradus/graph/graph.h>

namespace gradus::graph {

/// A forward pass that was recorded: its graph, and by name its inputs, what it returned, and arrays from before it
/// that are to have names in the model, such as parameters. Arrays are those of the recording, by their addresses.
/// Outputs may be views of inputs and weights.
struct ForwardPass {
  using Arrays = std::vector<std::pair<std::string, Array>>;
  Graph graph;
  Arrays inputs, outputs, weights;
};

/// The bytes of a model for inputs of the sizes that were recorded. A ValueError names the first operation that has no
/// counterpart in ONNX here, or reads what no value holds, with its module and line. Weights are copied into the model.
std::string to_onnx(const ForwardPass& pass);

/// The same pass recorded at two sizes of axis `batch_axis` of the first input: in the model the axis is "batch", and
/// so is all that scales with it. A ValueError names the first operation where the two differ otherwise.
std::string to_onnx(const ForwardPass& pass, const ForwardPass& larger, int64_t batch_axis = 0);

}  // namespace gradus::graph
