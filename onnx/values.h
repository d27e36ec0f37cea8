// Which values of an ONNX model are in the buffers of a recording, and how operands see them.
#pragma once

#include <gradus/onnx/views.h>

namespace gradus::graph::onnx {

class Values {
 public:
  Values(Model& model, const Graph& graph)
      : model_(model), buffers_(graph.buffers()), regions_(graph.buffers().size()) {}

  /// `value`, of the operand's shape, is what its elements are from now on. Where they are a part of what is known,
  /// nodes are added that put the part in its place. `filled_with` is the scalar that all of them are, if there is one.
  void write(const Call* call, const Operand& operand, const std::string& value, const std::string& filled_with = "");
  /// Of what `whole` wrote only `part` is known from now on.
  void replace(const Operand& whole, const Operand& part, const std::string& value);
  /// The value of an array from before the pass, or from outside. What is known already is passed over.
  void define(const Array& array, const std::string& value);
  /// The value that an operand reads, of its shape: nodes are added that make it of what was written. Axes in
  /// `may_be_1` that the operand repeats (stride 0) stay of size 1. A ValueError where there is no such value.
  std::string read(const Call* call, const Operand& operand, uint32_t may_be_1 = 0);
  /// The elements of the array as an operand; of buffer -1 where no call uses them and nothing defines them.
  Operand operand_of(const Array& array) const;

 private:
  Region with_part(const Call* call, Region region, const Operand& operand, const std::string& value);
  std::string read_reversed(const Call* call, Operand operand);
  Region& find(const Call* call, const Operand& operand);
  void concatenate(const Call* call, const Operand& operand, std::vector<size_t>& parts);
  void join(const Call* call, const Operand& operand, std::vector<size_t>& parts);
  static void replace_parts(std::vector<Region>& regions, std::vector<size_t>& parts, Region whole);
  Region& external(const Call* call, const Operand& operand);

  Model& model_;
  std::vector<Buffer> buffers_;               // those of the graph, then others that define() was given
  std::vector<std::vector<Region>> regions_;  // by buffer
};

}  // namespace gradus::graph::onnx
