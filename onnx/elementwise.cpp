// Element-wise operators in ONNX. Each is one node or a formula of several nodes, found by the operator's name in
// core/unary_ops.h and core/binary_ops.h.
#include <gradus/core/binary_ops.h>
#include <gradus/core/unary_ops.h>
#include <gradus/onnx/exporter.h>

#include <cmath>

namespace gradus::graph::onnx {
namespace {

constexpr double kPi = 3.14159265358979323846;

const std::map<std::string_view, const char*> kUnaryNodes = {
    {"abs", "Abs"},     {"acos", "Acos"}, {"acosh", "Acosh"},     {"asin", "Asin"},
    {"asinh", "Asinh"}, {"atan", "Atan"}, {"atanh", "Atanh"},     {"cos", "Cos"},
    {"cosh", "Cosh"},   {"erf", "Erf"},   {"exp", "Exp"},         {"hardswish", "HardSwish"},
    {"log", "Log"},     {"neg", "Neg"},   {"relu", "Relu"},       {"reciprocal", "Reciprocal"},
    {"sign", "Sign"},   {"sin", "Sin"},   {"sigmoid", "Sigmoid"}, {"sinh", "Sinh"},
    {"sqrt", "Sqrt"},   {"tan", "Tan"},   {"tanh", "Tanh"},
};
const std::map<std::string_view, const char*> kBinaryNodes = {
    {"add", "Add"},        {"sub", "Sub"},     {"mul", "Mul"},     {"div", "Div"},
    {"pow", "Pow"},        {"maximum", "Max"}, {"minimum", "Min"}, {"lt", "Less"},
    {"le", "LessOrEqual"}, {"eq", "Equal"},    {"gt", "Greater"},  {"ge", "GreaterOrEqual"},
};

}  // namespace

const std::map<std::string_view, Exporter::UnaryFormula>& Exporter::unary_formulas() {
  using E = Exporter;
  using Name = const std::string;
  static const std::map<std::string_view, UnaryFormula> formulas = {
      {"trunc",
       [](E& e, Name& x, double, double) {
         if (!is_floating(e.type_)) return x;
         return e.node("Mul", {e.node("Sign", {x}), e.node("Floor", {e.node("Abs", {x})})});
       }},
      {"ceil", [](E& e, Name& x, double, double) { return is_floating(e.type_) ? e.node("Ceil", {x}) : x; }},
      {"floor", [](E& e, Name& x, double, double) { return is_floating(e.type_) ? e.node("Floor", {x}) : x; }},
      {"round", [](E& e, Name& x, double, double) { return is_floating(e.type_) ? e.node("Round", {x}) : x; }},
      {"square",
       [](E& e, Name& x, double, double) {
         return e.node("Mul", {x, x});
       }},
      {"expm1",
       [](E& e, Name& x, double, double) {  // exp(x) - 1 = tanh(x / 2) (exp(x) + 1), accurate for small x
         const std::string half = e.node("Tanh", {e.node("Mul", {x, e.number(0.5)})});
         return e.node("Mul", {half, e.node("Add", {e.node("Exp", {x}), e.number(1)})});
       }},
      {"log1p",
       [](E& e, Name& x, double, double) {
         return e.node("Log", {e.node("Add", {x, e.number(1)})});
       }},
      {"log2",
       [](E& e, Name& x, double, double) {
         return e.node("Div", {e.node("Log", {x}), e.number(std::log(2.0))});
       }},
      {"log10",
       [](E& e, Name& x, double, double) {
         return e.node("Div", {e.node("Log", {x}), e.number(std::log(10.0))});
       }},
      {"rsqrt", [](E& e, Name& x, double, double) { return e.node("Reciprocal", {e.node("Sqrt", {x})}); }},
      {"clamp",
       [](E& e, Name& x, double a, double b) {
         return e.node("Clip", {x, e.bound(a), e.bound(b)});
       }},
      {"hardtanh",
       [](E& e, Name& x, double a, double b) {
         return e.node("Clip", {x, e.bound(a), e.bound(b)});
       }},
      {"leaky_relu",
       [](E& e, Name& x, double a, double) {
         if (e.is_attribute(a)) return e.node("LeakyRelu", {x}, {{"alpha", a}});
         return e.above_zero(x, e.node("Mul", {x, e.number(a)}));
       }},
      {"elu",
       [](E& e, Name& x, double a, double b) {  // a (exp(b x) - 1) below 0; celu has b = 1 / a
         if (b == 1 && e.is_attribute(a)) return e.node("Elu", {x}, {{"alpha", a}});
         if (a > 0 && b == 1 / a && e.type_ == DType::f32) return e.node("Celu", {x}, {{"alpha", a}});
         const std::string power = e.node("Exp", {e.node("Mul", {x, e.number(b)})});
         return e.above_zero(x, e.node("Mul", {e.node("Sub", {power, e.number(1)}), e.number(a)}));
       }},
      {"gelu",
       [](E& e, Name& x, double, double) {
         const std::string erf = e.node("Erf", {e.node("Div", {x, e.number(std::sqrt(2.0))})});
         return e.node("Mul", {e.node("Mul", {x, e.number(0.5)}), e.node("Add", {erf, e.number(1)})});
       }},
      {"gelu_tanh",
       [](E& e, Name& x, double, double) {  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³)))
         const std::string cube = e.node("Mul", {e.node("Mul", {x, x}), e.node("Mul", {x, e.number(0.044715)})});
         const std::string inner = e.node("Mul", {e.node("Add", {x, cube}), e.number(std::sqrt(2 / kPi))});
         const std::string factor = e.node("Add", {e.node("Tanh", {inner}), e.number(1)});
         return e.node("Mul", {e.node("Mul", {x, e.number(0.5)}), factor});
       }},
      {"silu",
       [](E& e, Name& x, double, double) {
         return e.node("Mul", {x, e.node("Sigmoid", {x})});
       }},
      {"softplus",
       [](E& e, Name& x, double a, double b) {  // x where a x > b
         const std::string scaled = e.node("Mul", {x, e.number(a)});
         const std::string y = e.node("Div", {e.node("Softplus", {scaled}), e.number(a)});
         if (b >= 20 && e.type_ != DType::f64) return y;  // equals x there, up to rounding
         return e.node("Where", {e.node("Greater", {scaled, e.number(b)}), x, y});
       }},
      {"mish",
       [](E& e, Name& x, double, double) {
         return e.node("Mul", {x, e.node("Tanh", {e.node("Softplus", {x})})});
       }},
      {"log_sigmoid",
       [](E& e, Name& x, double, double) { return e.node("Neg", {e.node("Softplus", {e.node("Neg", {x})})}); }},
      {"logical_not",
       [](E& e, Name& x, double, double) { return e.node("Not", {e.cast(x, e.type_, DType::boolean)}); }},
      {"isnan", [](E& e, Name& x, double, double) { return e.node("IsNaN", {e.as_real(x)}); }},
      {"isinf", [](E& e, Name& x, double, double) { return e.node("IsInf", {e.as_real(x)}); }},
      {"isfinite",
       [](E& e, Name& x, double, double) {
         const std::string real = e.as_real(x);
         return e.node("Not", {e.node("Or", {e.node("IsNaN", {real}), e.node("IsInf", {real})})});
       }},
  };
  return formulas;
}

const std::map<std::string_view, Exporter::BinaryFormula>& Exporter::binary_formulas() {
  using E = Exporter;
  using Name = const std::string;
  static const auto bitwise = [](E& e, const char* op, Name& a, Name& b) {
    if (e.type_ != DType::boolean) e.unsupported("an operator on bits");
    return e.node(op, {a, b});
  };
  static const std::map<std::string_view, BinaryFormula> formulas = {
      {"fmod",
       [](E& e, Name& a, Name& b) {
         return e.node("Mod", {a, b}, {{"fmod", int64_t{1}}});
       }},
      {"remainder",
       [](E& e, Name& a, Name& b) {
         if (!is_floating(e.type_)) return e.node("Mod", {a, b});
         return e.node("Sub", {a, e.node("Mul", {b, e.node("Floor", {e.node("Div", {a, b})})})});
       }},
      {"atan2",
       [](E& e, Name& a, Name& b) {  // adds or subtracts pi if b < 0; 0 if a and b are 0
         const std::string zero = e.number(0),
                           divisor = e.node("Where", {e.node("Equal", {b, zero}), zero, b});  // -0 becomes 0
         const std::string half_turn = e.node("Where", {e.node("Less", {a, zero}), e.number(-kPi), e.number(kPi)});
         const std::string turn = e.node("Where", {e.node("Less", {b, zero}), half_turn, zero});
         const std::string angle = e.node("Add", {e.node("Atan", {e.node("Div", {a, divisor})}), turn});
         const std::string is_zero = e.node("And", {e.node("Equal", {a, zero}), e.node("GreaterOrEqual", {b, zero})});
         return e.node("Where", {is_zero, a, angle});
       }},
      {"ne",
       [](E& e, Name& a, Name& b) {
         return e.node("Not", {e.node("Equal", {a, b})});
       }},
      {"bitwise_and", [](E& e, Name& a, Name& b) { return bitwise(e, "And", a, b); }},
      {"bitwise_or", [](E& e, Name& a, Name& b) { return bitwise(e, "Or", a, b); }},
      {"bitwise_xor", [](E& e, Name& a, Name& b) { return bitwise(e, "Xor", a, b); }},
      {"logical_and", [](E& e, Name& a, Name& b) { return e.logical("And", a, b); }},
      {"logical_or", [](E& e, Name& a, Name& b) { return e.logical("Or", a, b); }},
      {"logical_xor", [](E& e, Name& a, Name& b) { return e.logical("Xor", a, b); }},
  };
  return formulas;
}

std::string Exporter::unary(UnaryOp op, const std::string& x, double a, double b) {
  if (const auto found = kUnaryNodes.find(name(op)); found != kUnaryNodes.end()) return node(found->second, {x});
  const auto formula = unary_formulas().find(name(op));
  if (formula == unary_formulas().end()) unsupported(name(op));
  return formula->second(*this, x, a, b);
}

std::string Exporter::binary(BinaryOp op, const std::string& a, const std::string& b) {
  if (const auto formula = binary_formulas().find(name(op)); formula != binary_formulas().end())
    return formula->second(*this, a, b);
  const auto found = kBinaryNodes.find(name(op));
  if (found == kBinaryNodes.end()) unsupported(name(op));
  if (type_ != DType::boolean || op == BinaryOp::eq) return node(found->second, {a, b});
  const std::string y = node(found->second, {cast(a, type_, DType::i32), cast(b, type_, DType::i32)});
  return is_predicate(op) ? y : cast(y, DType::i32, type_);
}

}  // namespace gradus::graph::onnx
