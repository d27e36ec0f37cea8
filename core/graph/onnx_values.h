// Which values of an ONNX model are in the buffers of a recording, and how operands see them.
#pragma once

#include <gradus/core/graph/graph.h>
#include <gradus/core/graph/onnx_model.h>

namespace gradus::graph::onnx {

/// Elements of a buffer that a value of the model stands for.
struct Region {
  int64_t offset = 0;  ///< in bytes; before the buffer where calls use the end of a larger array alone
  StridedLayout layout;
  std::string value;  ///< "" where the model has none
};

class Values {
 public:
  Values(Model& model, const Graph& graph) : model_(model), graph_(graph), regions_(graph.buffers().size()) {}

  /// `value`, of the operand's shape, is what its elements are from now on. A write into a part of what is known is a
  /// ValueError.
  void write(const Call* call, const Operand& operand, const std::string& value);
  /// Of what `whole` wrote only `part` is known from now on.
  void replace(const Operand& whole, const Operand& part, const std::string& value);
  /// The value of an array from before the pass, or from outside: what no call uses, or is known already, is passed
  /// over.
  void define(const Array& array, const std::string& value);
  /// The value that an operand reads, of its shape: nodes are added that make it of what was written. Axes in
  /// `may_be_1` that the operand repeats (stride 0) stay of size 1. A ValueError where there is no such value.
  std::string read(const Call* call, const Operand& operand, uint32_t may_be_1 = 0);
  /// The elements of the array as an operand; of buffer -1 where no call uses them.
  Operand operand_of(const Array& array) const;

 private:
  std::string read_reversed(const Call* call, Operand operand);
  Region& find(const Call* call, const Operand& operand);
  Region& concatenated(const Call* call, const Operand& operand, std::vector<size_t> parts);
  Region& external(const Call* call, const Operand& operand);

  Model& model_;
  const Graph& graph_;
  std::vector<std::vector<Region>> regions_;  // by buffer
};

}  // namespace gradus::graph::onnx
