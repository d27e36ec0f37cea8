// An ONNX model in memory: what an export makes of a recording, before it becomes bytes.
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
  Names inputs, outputs;  ///< values by name; an optional one that is left out is ""
  Attributes attributes;
  const Call* call = nullptr;  ///< that it stands for
};

/// A size in the model: a number, or a multiple of the batch.
struct Size {
  int64_t number = 0;
  bool is_of_batch = false;
};

/// What goes in or comes out.
struct Port {
  std::string name;
  DType dtype;
  std::vector<Size> shape;
};

class Model {
 public:
  std::vector<Node> nodes;
  std::vector<std::pair<std::string, Array>> weights;
  std::map<std::string, std::vector<Size>> sizes;  ///< one-dimensional values that operators take shapes from
  std::vector<Port> inputs, outputs;

  /// Adds a node, and returns the name of its (first) output; further ones have ".1", ".2" behind it.
  std::string add(const Call* call, const std::string& op, Names inputs, Attributes attributes = {}, int outputs = 1);
  /// The name of a value with these numbers, int64.
  std::string add_sizes(const Dims& numbers);
  /// The name of a value that every run has.
  std::string add_constant(const Array& array);

  /// Leaves out what no output needs.
  void remove_unused();
  /// Makes of this model, recorded for a batch of `batch`, and of the same for `larger_batch` one for any: numbers that
  /// scale with the batch become sizes of it. Numbers that differ otherwise are a ValueError.
  void make_dynamic(const Model& larger, int64_t batch, int64_t larger_batch);
  /// Puts nodes that compute them in the place of sizes of the batch, which is axis `batch_axis` of the first input.
  void compute_sizes(int64_t batch_axis);
  /// The file.
  std::string bytes() const;

 private:
  int count_ = 0;
};

/// "call 3, conv2d (conv2d of features.3, net.cpp:41)", for messages.
std::string description_of(const Call* call);

}  // namespace gradus::graph::onnx
