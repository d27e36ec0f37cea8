// What operators of two Operands share.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// The line of the call: binary operators take it through their operands.
inline Loc line_of(const Operand& a, const Operand& b) { return a.where.line ? a.where : b.where; }

/// No operand is an undefined tensor; else a ValueError.
void check_operands(const Operand& a, const Operand& b);

/// A number as a scalar tensor of the type that it has alone.
Tensor number_tensor(const Scalar& number);

/// The number as PyTorch converts it to `dtype`: without its fraction for integers. One that does not fit is a
/// ValueError (ops::check_fits).
Scalar number_of(const Scalar& number, DType dtype);

/// x itself; a number becomes a scalar tensor of the type of the tensor on the other side, unless the number is of a
/// higher kind (torch.result_type).
Tensor as_tensor(const Operand& x, const Operand& other, Device device = {});

}  // namespace gradus
