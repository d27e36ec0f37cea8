#include <gradus/core/binary_ops.h>
#include <gradus/core/graph/onnx_exporter.h>
#include <gradus/core/unary_ops.h>

#include <cmath>

namespace gradus::graph::onnx {

std::vector<int64_t> axes_of(uint32_t mask) {
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis < kMaxDims; ++axis)
    if (mask >> axis & 1) axes.push_back(axis);
  return axes;
}

void Exporter::run(Call& call) {
  using Translate = void (Exporter::*)();
  static const std::map<std::string_view, Translate> translations = {
      {"fill", &Exporter::fill},
      {"copy", &Exporter::copy},
      {"arange", &Exporter::arange},
      {"unary", &Exporter::unary},
      {"binary", &Exporter::binary},
      {"binary_scalar", &Exporter::binary_scalar},
      {"where", &Exporter::where},
      {"reduce", &Exporter::reduce},
      {"arg_reduce", &Exporter::arg_reduce},
      {"matmul", &Exporter::matmul},
      {"linear", &Exporter::linear},
      {"conv2d", &Exporter::convolution},
      {"conv2d_bias_relu", &Exporter::convolution},
      {"max_pool2d", &Exporter::max_pool},
      {"resample2d", &Exporter::resample},
      {"scan", &Exporter::scan},
      {"gather", &Exporter::gather},
      {"softmax", &Exporter::softmax},
      {"normalize", &Exporter::normalize},
      {"lstm_sequence", &Exporter::lstm},
      {"attention", &Exporter::attention},
  };
  const auto translation = translations.find(call.name);
  call_ = &call;
  GRADUS_CHECK(translation != translations.end(), ValueError, "to_onnx: ", description_of(&call),
               " has no counterpart in ONNX here");
  const Arguments arguments(call);
  arguments_ = &arguments;
  (this->*translation->second)();
}

std::string Exporter::unary(UnaryOp op, const std::string& x, double a, double b) {
  switch (op) {
    case UnaryOp::neg: return node("Neg", {x});
    case UnaryOp::abs: return node("Abs", {x});
    case UnaryOp::sign: return node("Sign", {x});
    case UnaryOp::floor: return node("Floor", {x});
    case UnaryOp::ceil: return node("Ceil", {x});
    case UnaryOp::round: return node("Round", {x});
    case UnaryOp::trunc: return node("Mul", {node("Sign", {x}), node("Floor", {node("Abs", {x})})});
    case UnaryOp::square: return node("Mul", {x, x});
    case UnaryOp::exp: return node("Exp", {x});
    case UnaryOp::expm1: return node("Sub", {node("Exp", {x}), number(1)});
    case UnaryOp::log: return node("Log", {x});
    case UnaryOp::log1p: return node("Log", {node("Add", {x, number(1)})});
    case UnaryOp::log2: return node("Div", {node("Log", {x}), number(std::log(2.0))});
    case UnaryOp::log10: return node("Div", {node("Log", {x}), number(std::log(10.0))});
    case UnaryOp::sqrt: return node("Sqrt", {x});
    case UnaryOp::rsqrt: return node("Reciprocal", {node("Sqrt", {x})});
    case UnaryOp::reciprocal: return node("Reciprocal", {x});
    case UnaryOp::sin: return node("Sin", {x});
    case UnaryOp::cos: return node("Cos", {x});
    case UnaryOp::erf: return node("Erf", {x});
    case UnaryOp::relu: return node("Relu", {x});
    case UnaryOp::sigmoid: return node("Sigmoid", {x});
    case UnaryOp::tanh: return node("Tanh", {x});
    case UnaryOp::clamp:
    case UnaryOp::hardtanh: return node("Clip", {x, number(a), number(b)});
    case UnaryOp::leaky_relu: return node("LeakyRelu", {x}, {{"alpha", a}});
    case UnaryOp::elu:
      if (b != 1) unsupported("an elu with an input scale");
      return node("Elu", {x}, {{"alpha", a}});
    case UnaryOp::gelu: {
      const std::string erf = node("Erf", {node("Div", {x, number(std::sqrt(2.0))})});
      return node("Mul", {node("Mul", {x, number(0.5)}), node("Add", {erf, number(1)})});
    }
    case UnaryOp::gelu_tanh: {  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³)))
      const std::string cube = node("Mul", {node("Mul", {x, x}), node("Mul", {x, number(0.044715)})});
      const std::string inner = node("Mul", {node("Add", {x, cube}), number(std::sqrt(2 / 3.14159265358979323846))});
      return node("Mul", {node("Mul", {x, number(0.5)}), node("Add", {node("Tanh", {inner}), number(1)})});
    }
    case UnaryOp::silu: return node("Mul", {x, node("Sigmoid", {x})});
    case UnaryOp::softplus: return node("Div", {node("Softplus", {node("Mul", {x, number(a)})}), number(a)});
    case UnaryOp::mish: return node("Mul", {x, node("Tanh", {node("Softplus", {x})})});
    case UnaryOp::log_sigmoid: return node("Neg", {node("Softplus", {node("Neg", {x})})});
    case UnaryOp::hardswish: return node("HardSwish", {x});
    case UnaryOp::logical_not: return node("Not", {cast(x, type_, DType::boolean)});
    case UnaryOp::isfinite: return node("Not", {node("Or", {node("IsNaN", {x}), node("IsInf", {x})})});
    case UnaryOp::isnan: return node("IsNaN", {x});
    case UnaryOp::isinf: return node("IsInf", {x});
  }
  __builtin_unreachable();
}

std::string Exporter::binary(BinaryOp op, const std::string& a, const std::string& b) {
  const auto logical = [&](const char* name) {
    return node(name, {cast(a, type_, DType::boolean), cast(b, type_, DType::boolean)});
  };
  const auto bitwise = [&](const char* name) {
    if (type_ != DType::boolean) unsupported("an operator on bits");
    return node(name, {a, b});
  };
  switch (op) {
    case BinaryOp::add: return node("Add", {a, b});
    case BinaryOp::sub: return node("Sub", {a, b});
    case BinaryOp::mul: return node("Mul", {a, b});
    case BinaryOp::div: return node("Div", {a, b});
    case BinaryOp::pow: return node("Pow", {a, b});
    case BinaryOp::maximum: return node("Max", {a, b});
    case BinaryOp::minimum: return node("Min", {a, b});
    case BinaryOp::fmod: return node("Mod", {a, b}, {{"fmod", int64_t{1}}});
    case BinaryOp::remainder:
      if (!is_floating(type_)) return node("Mod", {a, b});
      return node("Sub", {a, node("Mul", {b, node("Floor", {node("Div", {a, b})})})});
    case BinaryOp::atan2: unsupported("atan2");
    case BinaryOp::bitwise_and: return bitwise("And");
    case BinaryOp::bitwise_or: return bitwise("Or");
    case BinaryOp::bitwise_xor: return bitwise("Xor");
    case BinaryOp::eq: return node("Equal", {a, b});
    case BinaryOp::ne: return node("Not", {node("Equal", {a, b})});
    case BinaryOp::lt: return node("Less", {a, b});
    case BinaryOp::le: return node("LessOrEqual", {a, b});
    case BinaryOp::gt: return node("Greater", {a, b});
    case BinaryOp::ge: return node("GreaterOrEqual", {a, b});
    case BinaryOp::logical_and: return logical("And");
    case BinaryOp::logical_or: return logical("Or");
    case BinaryOp::logical_xor: return logical("Xor");
  }
  __builtin_unreachable();
}

void Exporter::reduce() {
  const std::vector<int64_t> axes = axes_of(static_cast<uint32_t>(value<int64_t>("axes")));
  const auto reduced = [&](const char* op, const std::string& x) {
    return node(op, {x}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  };
  const std::string x = read("x"), wide = cast(x, dtype("x"), dtype("y"));
  switch (choice<ReduceOp>("op")) {
    case ReduceOp::sum:  // whose axes are an input since opset 13
      return write("y", node("ReduceSum", {wide, model_.add_sizes(axes)}, {{"keepdims", int64_t{1}}}));
    case ReduceOp::mean: return write("y", reduced("ReduceMean", wide));
    case ReduceOp::prod: return write("y", reduced("ReduceProd", wide));
    case ReduceOp::max: return write("y", reduced("ReduceMax", wide));
    case ReduceOp::min: return write("y", reduced("ReduceMin", wide));
    case ReduceOp::all:
    case ReduceOp::any: {
      const std::string truth = cast(cast(x, dtype("x"), DType::boolean), DType::boolean, DType::i32);
      const bool all = choice<ReduceOp>("op") == ReduceOp::all;
      return write("y", cast(reduced(all ? "ReduceMin" : "ReduceMax", truth), DType::i32, dtype("y")));
    }
  }
}

// An index that is the same along all other axes takes whole slices, as embeddings and index_select do.
void Exporter::gather() {
  const auto axis = static_cast<int>(value<int64_t>("axis"));
  const StridedLayout& index = operand("index").layout;
  bool takes_slices = true;
  for (int i = 0; i < index.ndim(); ++i)
    takes_slices &= i == axis || (index.strides[i] == 0 && index.shape[i] == shape("x")[i]) || shape("x")[i] == 1;
  const Attributes attributes = {{"axis", int64_t{axis}}};
  if (takes_slices)
    return write("y",
                 node("Gather", {read("x"), read("index", {index.shape[axis]}, {index.strides[axis]})}, attributes));
  write("y", node("GatherElements", {read("x"), read("index")}, attributes));
}

}  // namespace gradus::graph::onnx
