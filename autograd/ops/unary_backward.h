// Gradients of element-wise functions, themselves differentiable.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/backend.h>

namespace gradus {

/// dy * op'(saved), saved being y or x as saves_output(op) tells. One kernel, or, where its own gradient will be wanted,
/// differentiable operators.
Tensor unary_backward(UnaryOp op, const Tensor& dy, const Tensor& saved, const UnaryArgs& args = {});

}  // namespace gradus
