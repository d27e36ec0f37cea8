// Elements of a buffer, and how a part or another order of them is made of a value of the model.
#pragma once

#include <gradus/graph/graph.h>
#include <gradus/onnx/model.h>

namespace gradus::graph::onnx {

/// Elements of a buffer that a value of the model stands for.
struct Region {
  int64_t offset = 0;  ///< in bytes; before the buffer where calls use the end of a larger array alone
  StridedLayout layout;
  std::string value;             ///< "" where the model has none
  const Call* call = nullptr;    ///< that wrote it
  std::string filled_with = {};  ///< the scalar that all elements are, where they are equal
};

/// Where it ends, in bytes.
int64_t end_of(const Region& region);
/// That an operand is.
Region region_of(const Operand& operand, const std::string& value = {});
/// Whether there is nothing between its elements.
bool is_dense(const Region& region);
/// Whether both are the same elements in the same order.
bool same_place(const Region& a, const Region& b);
/// Whether both may have an element in common.
bool overlap(const Region& a, const Region& b);

/// A dense region as one row of elements, which is cut into axes so that each stride of an operand is one step along
/// one of them: what the operand reads or writes is a slice of those axes.
struct Cut {
  Cut(const Region& region, const Operand& operand);
  /// Where the elements along `inner` are, in the operand's order of these axes.
  Array inner_places(const StridedLayout& wanted) const;

  Dims row;                   ///< the sizes of the axes
  Dims starts, sizes, steps;  ///< what the operand takes of each
  Dims order;                 ///< the axes in the operand's order, then those of which it takes one element
  /// The operand's axes that are no steps along axes of the row (windows that overlap): they are within the last axis
  /// of the row, which is taken whole.
  Dims inner;
  int64_t inner_start = 0;  ///< in that axis

 private:
  Cut() = default;
  bool cut_first(int count, const Dims& axes, const Region& region, const Operand& operand);
};

/// Views of a value, each node made only where it changes something.
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
  /// Of each axis shape[i] elements, starts[i], starts[i] + steps[i], …
  void slice(const Dims& starts, const Dims& shape, const Dims& steps) {
    Dims axes, from, to, by;
    for (int i = 0; i < shape.size(); ++i) {
      if (shape[i] == shape_[i]) continue;
      axes.push_back(i), from.push_back(starts[i]), by.push_back(steps[i]);
      to.push_back(starts[i] + (shape[i] - 1) * steps[i] + 1);
    }
    if (!axes.empty()) add("Slice", {from, to, axes, by}, {}, shape);
  }
  /// Of the last axis the elements with these numbers, which have axes of their own.
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
  void make() {  // the last reshape
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
  Dims shape_, made_;  // of the view, and of the value so far
};

}  // namespace gradus::graph::onnx
