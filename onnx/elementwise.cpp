// Translates element-wise operators to ONNX. An operator of core/op_lists.h becomes one node or a
// formula of several nodes, which tables find by the operator's name.
#include <gradus/onnx/exporter.h>

#include <cmath>

#include <gradus/core/formulas/recurrent_cell.h>
#include <gradus/core/op_lists.h>

namespace gradus::graph::onnx {
namespace {

constexpr double kPi = 3.14159265358979323846;

/// A value of the model, or a number, in a formula such as x * op("Sigmoid", x). The function op() and the arithmetic
/// operators add a node to the model.
struct Term {
  Term(Exporter* exporter_, std::string name_) : exporter(exporter_), name(std::move(name_)) {}
  Term(double number_ = 0) : number(number_) {}  // NOLINT(google-explicit-constructor)
  /// The name of the value. A number becomes a constant of the model.
  std::string name_in(Exporter& model) const { return exporter ? name : model.number(number); }

  Exporter* exporter = nullptr;  // null for a number
  std::string name;
  double number = 0;
};

DType type_of(const Term& x) { return x.exporter->type(); }

/// Adds a node. The first term must be a value.
template <class... Terms>
Term op(const char* name, const Term& x, const Terms&... others) {
  return {x.exporter, x.exporter->node(name, {x.name, Term(others).name_in(*x.exporter)...})};
}
Term operator+(const Term& a, const Term& b) { return op("Add", a, b); }
Term operator-(const Term& a, const Term& b) { return op("Sub", a, b); }
Term operator*(const Term& a, const Term& b) { return op("Mul", a, b); }
Term operator/(const Term& a, const Term& b) { return op("Div", a, b); }

Term relu(const Term& x) { return op("Relu", x); }
Term tanh(const Term& x) { return op("Tanh", x); }
Term logistic(const Term& x) { return op("Sigmoid", x); }

Term cast(const Term& x, DType to) { return {x.exporter, x.exporter->cast(x.name, type_of(x), to)}; }
/// x as float32 or float64, the types for which runtimes implement IsNaN and IsInf.
Term as_real(const Term& x) { return cast(x, type_of(x) == DType::f64 ? DType::f64 : DType::f32); }
/// Applies a rounding operator such as "Floor" to floating-point numbers; returns integers unchanged.
Term rounded(const char* name, const Term& x) { return is_floating(type_of(x)) ? op(name, x) : x; }
/// x where x > 0, and `below` where it is not.
Term above_zero(const Term& x, const Term& below) { return op("Where", op("Greater", x, 0.0), x, below); }

Term clip(const Term& x, double low, double high) {
  const auto bound = [&](double number) {  // omits an infinite bound, which integers cannot represent
    return std::isinf(number) && !is_floating(type_of(x)) ? Term(x.exporter, "") : Term(number);
  };
  return op("Clip", x, bound(low), bound(high));
}

/// Returns true if float32, the type of attributes, has enough precision for a number in a computation with x.
bool is_attribute(const Term& x, double number) {
  return type_of(x) != DType::f64 || static_cast<float>(number) == number;
}
Term with_alpha(const char* name, const Term& x, double alpha) {
  return {x.exporter, x.exporter->node(name, {x.name}, {{"alpha", alpha}})};
}

const std::map<std::string_view, const char*> kUnaryNodes = {
    {"abs", "Abs"}, {"cos", "Cos"},   {"erf", "Erf"},   {"exp", "Exp"},         {"hardswish", "HardSwish"},
    {"log", "Log"}, {"neg", "Neg"},   {"relu", "Relu"}, {"sigmoid", "Sigmoid"}, {"reciprocal", "Reciprocal"},
    {"sin", "Sin"}, {"sign", "Sign"}, {"sqrt", "Sqrt"}, {"tanh", "Tanh"},
};
const std::map<std::string_view, const char*> kBinaryNodes = {
    {"add", "Add"},        {"sub", "Sub"},     {"mul", "Mul"},     {"div", "Div"},
    {"pow", "Pow"},        {"maximum", "Max"}, {"minimum", "Min"}, {"lt", "Less"},
    {"le", "LessOrEqual"}, {"eq", "Equal"},    {"gt", "Greater"},  {"ge", "GreaterOrEqual"},
};
/// Nodes that ONNX defines only for booleans.
const std::map<std::string_view, const char*> kLogicalNodes = {
    {"bitwise_and", "And"}, {"bitwise_or", "Or"}, {"bitwise_xor", "Xor"},
    {"logical_and", "And"}, {"logical_or", "Or"}, {"logical_xor", "Xor"},
};

using X = const Term&;
const std::map<std::string_view, Term (*)(X x, double a, double b)> kUnaryFormulas = {
    {"trunc",
     [](X x, double, double) { return is_floating(type_of(x)) ? op("Sign", x) * op("Floor", op("Abs", x)) : x; }},
    {"ceil", [](X x, double, double) { return rounded("Ceil", x); }},
    {"floor", [](X x, double, double) { return rounded("Floor", x); }},
    {"round", [](X x, double, double) { return rounded("Round", x); }},
    {"square", [](X x, double, double) { return x * x; }},
    // exp(x) - 1 = tanh(x / 2) (exp(x) + 1), accurate for small x
    {"expm1", [](X x, double, double) { return op("Tanh", x * 0.5) * (op("Exp", x) + 1.0); }},
    {"log1p", [](X x, double, double) { return op("Log", x + 1.0); }},
    {"log2", [](X x, double, double) { return op("Log", x) / std::log(2.0); }},
    {"log10", [](X x, double, double) { return op("Log", x) / std::log(10.0); }},
    {"rsqrt", [](X x, double, double) { return op("Reciprocal", op("Sqrt", x)); }},
    {"clamp", &clip},
    {"hardtanh", &clip},
    {"leaky_relu",
     [](X x, double a, double) { return is_attribute(x, a) ? with_alpha("LeakyRelu", x, a) : above_zero(x, x * a); }},
    {"elu",
     [](X x, double a, double b) {  // a (exp(b x) - 1) where x < 0; celu has b = 1 / a
       if (b == 1 && is_attribute(x, a)) return with_alpha("Elu", x, a);
       if (a > 0 && b == 1 / a && type_of(x) == DType::f32) return with_alpha("Celu", x, a);
       return above_zero(x, (op("Exp", x * b) - 1.0) * a);
     }},
    {"gelu", [](X x, double, double) { return x * 0.5 * (op("Erf", x / std::sqrt(2.0)) + 1.0); }},
    {"gelu_tanh",
     [](X x, double, double) {
       const Term inner = (x + x * x * (x * 0.044715)) * std::sqrt(2 / kPi);
       return x * 0.5 * (op("Tanh", inner) + 1.0);
     }},
    {"silu", [](X x, double, double) { return x * op("Sigmoid", x); }},
    {"softplus",
     [](X x, double a, double b) {  // ln(1 + exp(a x)) / a, but x where a x > b
       const Term scaled = x * a, y = op("Softplus", scaled) / a;
       if (b >= 20 && type_of(x) != DType::f64) return y;  // in float32, softplus(a x) / a is x where a x > 20
       return op("Where", op("Greater", scaled, b), x, y);
     }},
    {"mish", [](X x, double, double) { return x * op("Tanh", op("Softplus", x)); }},
    {"log_sigmoid", [](X x, double, double) { return op("Neg", op("Softplus", op("Neg", x))); }},
    {"logical_not", [](X x, double, double) { return op("Not", cast(x, DType::boolean)); }},
    {"isnan", [](X x, double, double) { return op("IsNaN", as_real(x)); }},
    {"isinf", [](X x, double, double) { return op("IsInf", as_real(x)); }},
    {"isfinite",
     [](X x, double, double) {
       const Term real = as_real(x);
       return op("Not", op("Or", op("IsNaN", real), op("IsInf", real)));
     }},
};
const std::map<std::string_view, Term (*)(X a, X b)> kBinaryFormulas = {
    {"fmod",
     [](X a, X b) {
       return Term(a.exporter, a.exporter->node("Mod", {a.name, b.name}, {{"fmod", 1}}));
     }},
    {"remainder", [](X a, X b) { return is_floating(type_of(a)) ? a - b * op("Floor", a / b) : op("Mod", a, b); }},
    {"atan2",
     [](X a, X b) {  // atan(a / b), plus or minus pi if b < 0; a if a is 0 and b >= 0
       const Term zero(a.exporter, a.exporter->number(0));
       const Term divisor = op("Where", op("Equal", b, zero), zero, b);  // -0 becomes 0
       const Term half_turn = op("Where", op("Less", a, zero), -kPi, kPi);
       const Term angle = op("Atan", a / divisor) + op("Where", op("Less", b, zero), half_turn, zero);
       return op("Where", op("And", op("Equal", a, zero), op("GreaterOrEqual", b, zero)), a, angle);
     }},
    {"ne", [](X a, X b) { return op("Not", op("Equal", a, b)); }},
};

}  // namespace

std::string Exporter::unary(UnaryOp op, const std::string& x, double a, double b) {
  if (const auto found = kUnaryNodes.find(name(op)); found != kUnaryNodes.end()) return node(found->second, {x});
  return kUnaryFormulas.at(name(op))(Term(this, x), a, b).name;
}

std::string Exporter::binary(BinaryOp op, const std::string& a, const std::string& b) {
  if (const auto formula = kBinaryFormulas.find(name(op)); formula != kBinaryFormulas.end())
    return formula->second(Term(this, a), Term(this, b)).name;
  if (const auto logical = kLogicalNodes.find(name(op)); logical != kLogicalNodes.end()) {
    if (logical->first.starts_with("bitwise") && type_ != DType::boolean) unsupported("an operator on bits");
    return node(logical->second, {cast(a, type_, DType::boolean), cast(b, type_, DType::boolean)});
  }
  const std::string operation = kBinaryNodes.at(name(op));
  if (type_ != DType::boolean || op == BinaryOp::eq) return node(operation, {a, b});
  const std::string y = node(operation, {cast(a, type_, DType::i32), cast(b, type_, DType::i32)});
  return is_predicate(op) ? y : cast(y, DType::i32, type_);
}

std::pair<std::string, std::string> Exporter::step_of(RecurrentCell kind, const Names& sums,
                                                      const std::string& c_before) {
  Term gates[4];
  return scalar::visit_cell(kind, [&]<RecurrentCell cell>() {
    for (int k = 0; k < sums_of(cell); ++k)
      gates[k] = scalar::recurrent_gate<cell>(k, Term(this, sums[static_cast<size_t>(k)]));
    const auto step = scalar::recurrent_cell<cell>(gates, Term(this, c_before));
    return std::pair(step.c.name, step.h.name);
  });
}

}  // namespace gradus::graph::onnx
