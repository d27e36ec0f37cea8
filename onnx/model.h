// An ONNX model in memory, before it is written as bytes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gradus/graph/call.h>

namespace gradus::graph::onnx {

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;
using Names = std::vector<std::string>;

struct Node {
  std::string op;
  Names inputs, outputs;  ///< names of values; an empty name is an optional input that is omitted
  Attributes attributes;
  const Call* call = nullptr;  ///< the recorded call that the node was translated from
};

/// A size in the model: `number`, or `number` times the batch size if `is_of_batch` is true.
struct Size {
  int64_t number = 0;
  bool is_of_batch = false;
};

/// ONNX's number of an element type (TensorProto.DataType in onnx.proto).
int64_t element_type(DType dtype);

/// An input or output of the model.
struct Port {
  std::string name;
  DType dtype;
  std::vector<Size> shape;
};

class Model {
 public:
  std::vector<Node> nodes;
  std::vector<std::pair<std::string, Array>> weights;
  std::map<std::string, std::vector<Size>> sizes;  ///< int64 vectors by name, for example the shape for a Reshape node
  std::vector<Port> inputs, outputs;

  /// Adds a node and returns the name of its first output. Names of further outputs end in ".1", ".2" and so on.
  std::string add(const Call* call, const std::string& op, Names inputs, Attributes attributes = {}, int outputs = 1);
  /// Adds these numbers to `sizes` under a new name and returns the name.
  std::string add_sizes(const Dims& numbers);
  /// Adds the array to `weights` under a new name and returns the name.
  std::string add_constant(const Array& array);

  /// Removes nodes, weights and sizes that no output depends on.
  void remove_unused();
  /// Generalises this model, which is for batches of size `batch`, to any batch size. Compares it with the same model
  /// for batches of size `larger_batch`: sizes that are proportional to the batch become multiples of it. Throws a
  /// ValueError for other differences.
  void make_dynamic(const Model& larger, int64_t batch, int64_t larger_batch);
  /// Replaces `sizes` that depend on the batch by nodes that compute them from axis `batch_axis` of the first input.
  void compute_sizes(int64_t batch_axis);
  /// The model as the bytes of an ONNX file.
  std::string bytes() const;

 private:
  int count_ = 0;
};

/// "'conv2d' (conv2d of features.3, net.cpp:41)", for error messages. `call` may be null.
std::string description_of(const Call* call);

}  // namespace gradus::graph::onnx
