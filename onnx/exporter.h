// Converts a recorded forward pass to an ONNX model, which other runtimes can read.
//
// A recording consists of kernel calls on memory with strides; an ONNX model consists of operators (nodes) on named
// values without strides. The memory that a call writes becomes a value. If a later call reads this memory transposed,
// with another shape or only in part, nodes such as Transpose, Reshape and Slice are inserted between the two. The
// class Exporter translates calls to nodes, with one function for each operation. Format:
// https://github.com/onnx/onnx/blob/main/docs/IR.md, operators of opset 17.
#pragma once

#include <gradus/core/ops/ops.h>
#include <gradus/onnx/values.h>

namespace gradus::graph {

/// A recorded forward pass: its graph, and its inputs, outputs and weights with their names. Weights are arrays that
/// existed before the pass and get a name in the model, such as parameters. Arrays are matched with the recording's
/// memory by their addresses. Outputs may be views of inputs and weights.
struct ForwardPass {
  using Arrays = std::vector<std::pair<std::string, Array>>;
  Graph graph;
  Arrays inputs, outputs, weights;
};

/// The bytes of an ONNX file for inputs of the recorded sizes. The file contains the weights. Throws a ValueError that
/// names module and line of the first operation that cannot be translated, or that reads memory which corresponds to no
/// value of the model.
std::string to_onnx(const ForwardPass& pass);

/// The bytes of an ONNX file for any batch size. `pass` and `larger` are recordings of the same forward pass with two
/// different sizes of axis `batch_axis` of the first input. Sizes that are proportional to this axis become multiples
/// of "batch". Throws a ValueError that names the first operation in which the recordings differ in any other way.
std::string to_onnx(const ForwardPass& pass, const ForwardPass& larger, int64_t batch_axis = 0);

namespace onnx {

/// The arguments of a call, in maps from names to operands and values.
struct Arguments final : ArgumentVisitor {
  explicit Arguments(Call& call) : next(call.operands.data()) { call.visit_arguments(*this); }
  void operand(const std::string& name, const View&, bool) override { operands[name] = next++; }
  void value(const std::string& name, const Value& value) override { values[name] = value; }

  const Operand* next;
  std::map<std::string, const Operand*> operands;
  std::map<std::string, Value> values;
};

/// The operands of a `linear` call. The translation of an LSTM needs them: gradus multiplies the input by the weight in
/// a `linear` call before the LSTM, while ONNX's LSTM does this itself.
struct Linear {
  std::string x, w, bias;
};

/// Translates the calls of a graph one after the other and adds their nodes to a model.
class Exporter {
 public:
  Exporter(Model& model, const Graph& graph) : model_(model), values_(model, graph) {}

  Values& values() { return values_; }

  void run(Call& call);

  // ---- Nodes ----
  std::string node(const std::string& op, Names inputs, Attributes attributes = {}) {
    return model_.add(call_, op, std::move(inputs), std::move(attributes));
  }
  std::string constant(const Scalar& number, DType dtype) { return model_.add_constant(ops::full({}, number, dtype)); }
  /// type() is the type in which the current call computes. number() adds a constant of this type.
  DType type() const { return type_; }
  std::string number(double number) { return constant(number, type_); }
  std::string cast(const std::string& x, DType from, DType to) {
    return from == to ? x : node("Cast", {x}, {{"to", element_type(to)}});
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    GRADUS_FAIL(ValueError, "to_onnx: ", description_of(call_), ": ", what, " has no counterpart in ONNX here");
  }

 private:
  // ---- Arguments ----
  bool has(const std::string& name) const { return arguments_->operands.count(name) > 0; }
  const Operand& operand(const std::string& name) const { return *arguments_->operands.at(name); }
  const Shape& shape(const std::string& name) const { return operand(name).layout.shape; }
  DType dtype(const std::string& name) const { return operand(name).layout.dtype; }
  template <class T>
  const T& value(const std::string& name) const {
    return std::get<T>(arguments_->values.at(name));
  }
  template <class Enum>
  Enum choice(const std::string& name) const {
    return static_cast<Enum>(value<Choice>(name).number);
  }
  std::string read(const std::string& name, uint32_t may_be_1 = 0) {
    return values_.read(call_, operand(name), may_be_1);
  }
  std::string read_if_present(const std::string& name) { return has(name) ? read(name) : ""; }
  std::string read(const std::string& name, const Shape& shape, const Strides& strides) {
    Operand changed = operand(name);
    changed.layout.shape = shape, changed.layout.strides = strides;
    return values_.read(call_, changed);
  }
  /// Reads the operands of an element-wise operator. Since ONNX broadcasts them, an operand that is repeated along an
  /// axis (stride 0) is read with size 1. If all operands are repeated along an axis, the first one is expanded, so
  /// that the result has the full shape.
  Names read_broadcast(const Names& names) {
    uint32_t repeated = ~0u;
    for (const std::string& name : names) {
      const Strides& strides = operand(name).layout.strides;
      for (int i = 0; i < strides.size(); ++i)
        if (strides[i] != 0) repeated &= ~(1u << i);
    }
    Names read_values;
    for (const std::string& name : names) read_values.push_back(read(name, read_values.empty() ? ~repeated : ~0u));
    return read_values;
  }
  void write(const std::string& name, const std::string& value) { values_.write(call_, operand(name), value); }

  // ---- Translations ----
  void fill() {
    const std::string number = constant(value<Scalar>("value"), dtype("y"));
    const std::string y = shape("y").empty() ? number : node("Expand", {number, model_.add_sizes(shape("y"))});
    values_.write(call_, operand("y"), y, number);
  }
  void copy() { write("y", cast(read("x"), dtype("x"), dtype("y"))); }
  void arange() {
    const Array numbers = Array::empty(shape("y"), dtype("y"));
    backend("naive").arange(numbers, value<Scalar>("start"), value<Scalar>("step"));
    write("y", model_.add_constant(numbers));
  }
  void where() {
    const Names inputs = read_broadcast({"condition", "a", "b"});
    const DType type = dtype("y"), wide = type == DType::boolean ? DType::u8 : type;  // runtimes lack it for booleans
    write("y", cast(node("Where", {inputs[0], cast(inputs[1], type, wide), cast(inputs[2], type, wide)}), wide, type));
  }

  void unary() {
    type_ = dtype("x");
    write("y", unary(choice<UnaryOp>("op"), read("x"), value<double>("a"), value<double>("b")));
  }
  std::string unary(UnaryOp op, const std::string& x, double a, double b);
  void binary() {
    const Names inputs = read_broadcast({"a", "b"});
    type_ = dtype("a");
    write("y", binary(choice<BinaryOp>("op"), inputs[0], inputs[1]));
  }
  void binary_scalar() {
    type_ = dtype("a");
    const std::string a = read("a"), scalar = constant(value<Scalar>("scalar"), type_);
    const bool scalar_first = value<bool>("scalar_first");
    write("y", binary(choice<BinaryOp>("op"), scalar_first ? scalar : a, scalar_first ? a : scalar));
  }
  std::string binary(BinaryOp op, const std::string& a, const std::string& b);

  /// The argument "axes", a mask with a bit for each axis, and the axes whose bits are set.
  uint32_t mask() const { return static_cast<uint32_t>(value<int64_t>("axes")); }
  std::vector<int64_t> axes() const {
    std::vector<int64_t> axes;
    for (int64_t axis = 0; axis < kMaxDims; ++axis)
      if (mask() >> axis & 1) axes.push_back(axis);
    return axes;
  }
  std::string reduced(const std::string& op, const std::string& x, const std::vector<int64_t>& axes) {
    return node(op, {x}, {{"axes", axes}, {"keepdims", 1}});
  }
  void reduce();
  void arg_reduce() {
    const bool largest = choice<ArgReduceOp>("op") == ArgReduceOp::argmax;
    const std::string x = read("x");
    const int64_t axis = value<int64_t>("axis");
    write("indices", node(largest ? "ArgMax" : "ArgMin", {x}, {{"axis", axis}, {"keepdims", 1}}));
    if (has("values")) write("values", reduced(largest ? "ReduceMax" : "ReduceMin", x, {axis}));
  }
  void scan() {
    if (choice<ScanOp>("op") != ScanOp::sum) unsupported("a running product");
    if (shape("x").empty()) return copy();
    const std::string x = cast(read("x"), dtype("x"), dtype("y")), axis = constant(value<int64_t>("axis"), DType::i64);
    write("y", node("CumSum", {x, axis}, {{"reverse", value<bool>("reverse")}}));
  }
  void softmax() {
    const bool log = choice<SoftmaxKind>("kind") == SoftmaxKind::log_softmax;
    write("y", node(log ? "LogSoftmax" : "Softmax", {read("x")}, {{"axis", value<int64_t>("axis")}}));
  }
  void sort();
  void gather();
  void scatter() {
    write("y", node("ScatterElements", {read("y"), read("index"), read("x")},
                    {{"axis", value<int64_t>("axis")}, {"reduction", value<bool>("accumulate") ? "add" : "none"}}));
  }
  void pick() {  // NegativeLogLikelihoodLoss is the negative of the picked element
    write("y", node("Neg", {node("NegativeLogLikelihoodLoss", {read("x"), read("target")},
                                 {{"reduction", "none"}, {"ignore_index", value<int64_t>("ignore_index")}})}));
  }
  void cross_entropy() {
    const auto& [number, names] = value<Choice>("reduction");
    const std::string loss =
        model_.add(call_, "SoftmaxCrossEntropyLoss", {read("x"), read("target")},
                   {{"reduction", names[number]}, {"ignore_index", value<int64_t>("ignore_index")}}, 2);
    write("loss", loss);
    write("log_probabilities", loss + ".1");
    write("weight_sum", "");
  }
  void grayscale() {
    type_ = dtype("x");
    const Array weights = ops::zeros({3, 1, 1}, DType::f64);
    weights.data<double>()[0] = 0.2989, weights.data<double>()[1] = 0.5870, weights.data<double>()[2] = 0.1140;
    const std::string parts = node("Mul", {read("x"), model_.add_constant(ops::cast(weights, type_))});
    write("y", node("ReduceSum", {parts, model_.add_sizes(-3)}, {{"keepdims", 1}}));
  }

  void matmul() {
    const uint32_t batch = (1u << (shape("y").size() - 2)) - 1;
    type_ = dtype("y");
    std::string y = node("MatMul", {read("a"), read("b", batch)});
    if (value<bool>("accumulate")) y = node("Add", {y, read("y")});
    write("y", y);
  }
  void linear() {
    const Linear linear{read("x"), read("w"), read_if_present("bias")};
    const std::string y = node("Gemm", {linear.x, linear.w, linear.bias}, {{"transB", 1}});
    linears_[y] = linear;
    write("y", y);
  }
  void convolution();
  void transposed_convolution();
  void max_pool();
  void resample();
  void normalize();
  void recurrent();
  void lstm();
  Operand at_step(const std::string& name, int64_t step, int64_t column, int64_t columns) const;
  /// Adds the nodes of a step of a cell. Returns the names of c and h.
  std::pair<std::string, std::string> step_of(RecurrentCell cell, const Names& sums, const std::string& c_before);
  void attention();

  /// Numbers of the window's geometry for the height and the width, for example geometry("padding").
  const std::vector<int64_t>& geometry(const std::string& name) const {
    return value<std::vector<int64_t>>("geometry." + name);
  }
  /// The attributes of a node with a window, which pads the input by geometry("padding") at the beginning of each axis.
  Attributes window(const std::vector<int64_t>& kernel, const std::vector<int64_t>& padding_at_end) const {
    std::vector<int64_t> pads = geometry("padding");
    pads.insert(pads.end(), padding_at_end.begin(), padding_at_end.end());
    return {
        {"kernel_shape", kernel}, {"strides", geometry("stride")}, {"pads", pads}, {"dilations", geometry("dilation")}};
  }
  /// The weights of a Stencil argument as a matrix (size_out, size_in), or its transpose, as a constant.
  std::string stencil_matrix(const std::string& name, bool transposed);

  Model& model_;
  Values values_;
  std::map<std::string, Linear> linears_;  // operands of `linear` calls by the name of the result
  const Call* call_ = nullptr;
  const Arguments* arguments_ = nullptr;
  DType type_ = DType::f32;
};

}  // namespace onnx
}  // namespace gradus::graph
