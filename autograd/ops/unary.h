// Element-wise functions of one argument, selected by a UnaryOp. The operators of elementwise.h and activation.h are
// built on them. Rarely used functions are declared here; torch.h exports them, gradus.h does not.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/backend.h>

namespace gradus {

/// y = op(x). `name` is the operator's name in messages.
Tensor unary(const char* name, UnaryOp op, const Tensor& x, Loc where, const UnaryArgs& args = {});
/// x = op(x)
const Tensor& unary_(const char* name, UnaryOp op, const Tensor& x, Loc where, const UnaryArgs& args = {});
/// dy * op'(saved), where saved is y if saves_output(op) is true, else x. Runs as one kernel, or, if its own gradient
/// is needed, as differentiable operators.
Tensor unary_backward(UnaryOp op, const Tensor& dy, const Tensor& saved, const UnaryArgs& args = {});

}  // namespace gradus
