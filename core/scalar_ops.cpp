#include <gradus/core/scalar_ops.h>

namespace gradus {

const char* name(UnaryOp op) {
  static constexpr const char* names[] = {
      "neg",         "abs",        "sign",        "floor",    "ceil",      "round",   "trunc",    "square",
      "exp",         "expm1",      "log",         "log1p",    "log2",      "log10",   "sqrt",     "rsqrt",
      "reciprocal",  "sin",        "cos",         "erf",      "relu",      "sigmoid", "tanh",     "clamp",
      "hardtanh",    "leaky_relu", "elu",         "gelu",     "gelu_tanh", "silu",    "softplus", "mish",
      "log_sigmoid", "hardswish",  "logical_not", "isfinite", "isnan",     "isinf"};
  static_assert(std::size(names) == kUnaryOps);
  return names[static_cast<int>(op)];
}

const char* name(BinaryOp op) {
  static constexpr const char* names[] = {
      "add",       "sub",   "mul",         "div",         "pow",         "maximum",    "minimum", "fmod",
      "remainder", "atan2", "bitwise_and", "bitwise_or",  "bitwise_xor", "eq",         "ne",      "lt",
      "le",        "gt",    "ge",          "logical_and", "logical_or",  "logical_xor"};
  static_assert(std::size(names) == kBinaryOps);
  return names[static_cast<int>(op)];
}

const char* name(ReduceOp op) {
  static constexpr const char* names[] = {"sum", "mean", "max", "min", "all", "any", "prod"};
  return names[static_cast<int>(op)];
}

}  // namespace gradus
