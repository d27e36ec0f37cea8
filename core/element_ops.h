// The element-wise operations as far as headers need them. Apart from core/backend.h, so that formulas and kernels of
// one instruction set need nothing else of the library; and without the lists, core/unary_ops.h and core/binary_ops.h,
// so that a line more in one of those compiles anew only what names an operation.
#pragma once

#include <cstdint>

namespace gradus {

enum class UnaryOp : uint8_t;
enum class BinaryOp : uint8_t;

/// Parameters of a unary op. clamp and hardtanh: [a, b]; leaky_relu: slope a; elu: x for x > 0, else a (exp(b x) - 1);
/// softplus: beta a, threshold b.
struct UnaryArgs {
  double a = 0, b = 0;
};

/// What an operation is defined for: all numbers; floating types, to which array ops promote integers first; integers.
enum class ElementTypes : uint8_t { any, floating, integral };

}  // namespace gradus
