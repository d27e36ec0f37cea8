// Tracks which values of an ONNX model are in the buffers of a recording, and converts them to what operands read.
#pragma once

#include <gradus/onnx/views.h>

namespace gradus::graph::onnx {

class Values {
 public:
  Values(Model& model, const Graph& graph)
      : model_(model), buffers_(graph.buffers()), regions_(graph.buffers().size()) {}

  /// Records that the operand's elements are `value` from now on, which has the operand's shape. If they are a part of
  /// a known region, nodes are added that insert the part. `filled_with` is a scalar that all elements equal, if there
  /// is one.
  void write(const Call* call, const Operand& operand, const std::string& value, const std::string& filled_with = "");
  /// Records that of the elements written by `whole` only `part` is known from now on.
  void replace(const Operand& whole, const Operand& part, const std::string& value);
  /// Records the value of an array from before or outside the pass. Does nothing for elements that are known already.
  void define(const Array& array, const std::string& value);
  /// The value that an operand reads, in its shape. Adds the nodes that derive it from what was written. Axes in the
  /// mask `may_be_1` that the operand repeats (stride 0) keep size 1. Throws a ValueError if there is no such value.
  std::string read(const Call* call, const Operand& operand, uint32_t may_be_1 = 0);
  /// The elements of the array as an operand. Its buffer is -1 if no call uses them and define() did not get them.
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
  std::vector<Buffer> buffers_;               // the graph's, then others from define()
  std::vector<std::vector<Region>> regions_;  // by buffer
};

}  // namespace gradus::graph::onnx
