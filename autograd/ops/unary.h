// Element-wise functions of one argument by their UnaryOp: what the operators of elementwise.h and activation.h are
// made of. Those that are rarely called are declared here, where torch.h has them and gradus.h has not.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/backend.h>

namespace gradus {

/// y = op(x), an operator called `name`.
Tensor unary(const char* name, UnaryOp op, const Tensor& x, Loc where, const UnaryArgs& args = {});
/// x = op(x)
const Tensor& unary_(const char* name, UnaryOp op, const Tensor& x, Loc where, const UnaryArgs& args = {});
/// dy * op'(saved), saved being y or x as saves_output(op) tells. One kernel, or, where its own gradient will be
/// wanted, differentiable operators.
Tensor unary_backward(UnaryOp op, const Tensor& dy, const Tensor& saved, const UnaryArgs& args = {});

}  // namespace gradus
