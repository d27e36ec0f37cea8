// Tracks which value of an ONNX model each part of a recording's memory holds, and converts these values to the views
// that operands read.
#pragma once

#include <gradus/graph/graph.h>
#include <gradus/onnx/model.h>

namespace gradus::graph::onnx {

/// An array in a buffer, and the value of the model that the array holds.
struct Region {
  /// Position of the first element in the buffer, in bytes. Negative if calls use only a later part of the array,
  /// because the buffer then begins with this part.
  int64_t offset = 0;
  StridedLayout layout;
  std::string value;             ///< name of the value; empty if the model has no value for the array
  const Call* call = nullptr;    ///< the call that wrote the array
  std::string filled_with = {};  ///< name of a scalar value if all elements are equal to it, else empty
};

/// Describes an operand as a slice of a dense region. The region's elements, in the order of memory, are regarded as an
/// array of shape `row`, which is chosen so that each stride of the operand is a step along one axis of this array. For
/// example, an operand of shape (2, 3) with strides (8, 2) is the slice [0:2, 0:3, 0:1] of a row of shape (2, 4, 2).
struct Cut {
  Cut(const Region& region, const Operand& operand);
  /// The positions in the row's last axis of the operand's elements along the axes `inner`, in the operand's order.
  Array inner_places(const StridedLayout& wanted) const;

  Dims row;                   ///< the sizes of the row's axes
  Dims starts, sizes, steps;  ///< the operand's slice of each axis of the row
  Dims order;                 ///< the row's axes in the operand's order, then those that the operand has no axis for
  /// Axes of the operand whose strides are no steps along an axis of the row, for example those of overlapping windows.
  /// Their elements are in the row's last axis, which is read completely.
  Dims inner;
  int64_t inner_start = 0;  ///< position of the first of these elements in the row's last axis

 private:
  Cut() = default;
  bool cut_first(int count, const Dims& axes, const Region& region, const Operand& operand);
};

/// Applies transpositions, reshapes and slices to a value one after the other. An operation that changes nothing adds
/// no node.
class ViewChain {
 public:
  ViewChain(Model& model, const Call* call, std::string value, Dims shape)
      : model_(model), call_(call), value_(std::move(value)), shape_(shape), made_(shape) {}

  /// The value after all operations. Adds a Reshape node if the last reshape() has not been done yet.
  const std::string& value() {
    if (!(shape_ == made_)) value_ = model_.add(call_, "Reshape", {value_, model_.add_sizes(shape_)});
    made_ = shape_;
    return value_;
  }
  void transpose(const Dims& order) {
    Dims shape = order;
    bool moves = false;
    for (int i = 0, last = -1; i < order.size(); ++i) {
      shape[i] = shape_[static_cast<int>(order[i])];
      if (shape[i] == 1) continue;
      moves |= order[i] < last;
      last = static_cast<int>(order[i]);
    }
    if (moves) add("Transpose", {}, {{"perm", order.vec()}}, shape);
    else reshape(shape);
  }
  void reshape(const Dims& shape) { shape_ = shape; }
  /// Takes shape[i] elements of each axis i, at starts[i], starts[i] + steps[i], …
  void slice(const Dims& starts, const Dims& shape, const Dims& steps) {
    Dims axes, from, to, by;
    for (int i = 0; i < shape.size(); ++i) {
      if (shape[i] == shape_[i]) continue;
      axes.push_back(i);
      from.push_back(starts[i]);
      by.push_back(steps[i]);
      to.push_back(starts[i] + (shape[i] - 1) * steps[i] + 1);
    }
    if (!axes.empty()) add("Slice", {from, to, axes, by}, {}, shape);
  }
  /// Replaces the last axis by the axes of `places`, which contains indices of elements along the last axis.
  void gather(const Array& places) {
    Dims shape(shape_.begin(), static_cast<size_t>(shape_.size() - 1));
    for (int64_t size : places.shape()) shape.push_back(size);
    const int64_t axis = shape_.size() - 1;
    value_ = model_.add(call_, "Gather", {value(), model_.add_constant(places)}, {{"axis", axis}});
    shape_ = made_ = shape;
  }
  void expand(const Dims& shape) {
    if (!(shape == shape_)) add("Expand", {shape}, {}, shape);
  }

 private:
  void add(const std::string& op, const std::vector<Dims>& sizes, Attributes attributes, const Dims& shape) {
    Names inputs = {value()};
    for (const Dims& numbers : sizes) inputs.push_back(model_.add_sizes(numbers));
    value_ = model_.add(call_, op, std::move(inputs), std::move(attributes));
    shape_ = made_ = shape;
  }
  Model& model_;
  const Call* const call_;
  std::string value_;
  Dims shape_, made_;  // shapes of the view and of value_; they differ until value() adds the node of a reshape
};

/// The values in the buffers of a recording, as lists of regions that do not overlap.
class Values {
 public:
  Values(Model& model, const Graph& graph)
      : model_(model), buffers_(graph.buffers()), regions_(graph.buffers().size()) {}

  /// Records that the operand's elements are `value`, which has the operand's shape, from now on. If the operand is a
  /// part of a known region, adds nodes that insert the part into the region's value. `filled_with` may be a scalar
  /// value that all elements are equal to.
  void write(const Call* call, const Operand& operand, const std::string& value, const std::string& filled_with = "");
  /// Records that of the elements of `whole`, which a call wrote, only `part` has a value from now on.
  void replace(const Operand& whole, const Operand& part, const std::string& value);
  /// Records the value of an array that no call of the pass wrote. Does nothing for elements that already have a value.
  void define(const Array& array, const std::string& value);
  /// The value that an operand reads, in the operand's shape. Adds the nodes that compute it from the values of
  /// regions. Axes in the mask `may_be_1` that the operand repeats (stride 0) get size 1. Throws a ValueError if no
  /// value is known.
  std::string read(const Call* call, const Operand& operand, uint32_t may_be_1 = 0);
  /// The array as an operand. Its buffer is -1 if no call uses the array and define() was not called for it.
  Operand operand_of(const Array& array) const;

 private:
  Region with_part(const Call* call, Region region, const Operand& operand, const std::string& value);
  std::string read_reversed(const Call* call, Operand operand);
  Region& find(const Call* call, const Operand& operand);
  void concatenate(const Call* call, const Operand& operand, std::vector<size_t>& parts);
  void join(const Call* call, const Operand& operand, std::vector<size_t>& parts);
  Region& external(const Call* call, const Operand& operand);

  Model& model_;
  std::vector<Buffer> buffers_;               // the graph's buffers, then those that define() added
  std::vector<std::vector<Region>> regions_;  // by buffer
};

}  // namespace gradus::graph::onnx
