// Tracks which values of an ONNX model are in the buffers of a recording, and converts them to what operands read.
#pragma once

#include <gradus/graph/graph.h>
#include <gradus/onnx/model.h>

namespace gradus::graph::onnx {

/// Elements of a buffer whose contents are a value of the model.
struct Region {
  int64_t offset = 0;  ///< in bytes; negative if calls use only the end of a larger array
  StridedLayout layout;
  std::string value;             ///< empty if the model has no value for it
  const Call* call = nullptr;    ///< the call that wrote it
  std::string filled_with = {};  ///< a scalar that all elements equal; empty if there is none
};

/// The offset of its end in bytes.
int64_t end_of(const Region& region);
/// The region that an operand covers.
Region region_of(const Operand& operand, const std::string& value = {});
/// Returns true if there are no gaps between its elements.
bool is_dense(const Region& region);
/// Returns true if both consist of the same elements in the same order.
bool same_place(const Region& a, const Region& b);
/// Returns true if both may have an element in common.
bool overlap(const Region& a, const Region& b);

/// Describes an operand as a slice of a dense region. The region's elements form one row, which is divided into axes
/// such that each stride of the operand is a step along one of them.
struct Cut {
  Cut(const Region& region, const Operand& operand);
  /// The places of the elements along `inner` in the row's last axis, in the operand's order.
  Array inner_places(const StridedLayout& wanted) const;

  Dims row;                   ///< the sizes of the axes
  Dims starts, sizes, steps;  ///< the operand's slice of each axis
  Dims order;                 ///< the axes in the operand's order, then those from which it takes one element
  /// The operand's axes that are not steps along axes of the row, for example overlapping windows. Their elements are
  /// in the last axis of the row, which is read completely.
  Dims inner;
  int64_t inner_start = 0;  ///< the first element in that axis

 private:
  Cut() = default;
  bool cut_first(int count, const Dims& axes, const Region& region, const Operand& operand);
};

/// Applies views to a value one after the other. A node is added only if it changes something.
class ViewChain {
 public:
  ViewChain(Model& model, const Call* call, std::string value, Dims shape)
      : model_(model), call_(call), value_(std::move(value)), shape_(shape), made_(shape) {}

  const std::string& value() { return make(), value_; }
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
  /// Takes shape[i] elements of each axis: starts[i], starts[i] + steps[i], …
  void slice(const Dims& starts, const Dims& shape, const Dims& steps) {
    Dims axes, from, to, by;
    for (int i = 0; i < shape.size(); ++i) {
      if (shape[i] == shape_[i]) continue;
      axes.push_back(i), from.push_back(starts[i]), by.push_back(steps[i]);
      to.push_back(starts[i] + (shape[i] - 1) * steps[i] + 1);
    }
    if (!axes.empty()) add("Slice", {from, to, axes, by}, {}, shape);
  }
  /// Replaces the last axis by the axes of `places`, which hold the indices of the elements to take.
  void gather(const Array& places) {
    Dims shape(shape_.begin(), static_cast<size_t>(shape_.size() - 1));
    for (int64_t size : places.shape()) shape.push_back(size);
    make();
    const int64_t axis = shape_.size() - 1;
    value_ = model_.add(call_, "Gather", {value_, model_.add_constant(places)}, {{"axis", axis}});
    shape_ = made_ = shape;
  }
  void expand(const Dims& shape) {
    if (!(shape == shape_)) add("Expand", {shape}, {}, shape);
  }

 private:
  void make() {  // adds the node of a pending reshape
    if (!(shape_ == made_)) value_ = model_.add(call_, "Reshape", {value_, model_.add_sizes(shape_)});
    made_ = shape_;
  }
  void add(const std::string& op, const std::vector<Dims>& sizes, Attributes attributes, const Dims& shape) {
    make();
    Names inputs = {value_};
    for (const Dims& numbers : sizes) inputs.push_back(model_.add_sizes(numbers));
    value_ = model_.add(call_, op, std::move(inputs), std::move(attributes));
    shape_ = made_ = shape;
  }
  Model& model_;
  const Call* const call_;
  std::string value_;
  Dims shape_, made_;  // shapes of the view and of value_; they differ while a reshape is pending
};

/// The values in the buffers of a recording.
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
