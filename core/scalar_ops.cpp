#include <gradus/core/scalar_ops.h>

namespace gradus {

const char* name(UnaryOp op) {
  static constexpr const char* names[] = {"neg",  "abs",     "exp",  "log",   "sqrt",        "reciprocal",
                                          "relu", "sigmoid", "tanh", "clamp", "logical_not", "isfinite"};
  return names[static_cast<int>(op)];
}

const char* name(BinaryOp op) {
  static constexpr const char* names[] = {"add", "sub", "mul", "div", "pow", "maximum",     "minimum",   "eq",
                                          "ne",  "lt",  "le",  "gt",  "ge",  "logical_and", "logical_or"};
  return names[static_cast<int>(op)];
}

}  // namespace gradus
