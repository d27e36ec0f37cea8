// Helpers of binary operators, whose arguments are two Operands.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Source line of the call, which binary operators receive through their operands.
inline Loc line_of(const Operand& a, const Operand& b) { return a.where.line ? a.where : b.where; }

/// Throws a ValueError if an operand is an undefined tensor.
void check_operands(const Operand& a, const Operand& b);

/// Converts a number to a scalar tensor of the number's own type.
Tensor number_tensor(const Scalar& number);

/// Converts a number to `dtype` as PyTorch does, which drops the fraction for integers. A number out of range is a
/// ValueError (ops::check_fits).
Scalar number_of(const Scalar& number, DType dtype);

/// Returns x if it is a tensor. A number becomes a scalar tensor of the other operand's type, unless the number is of a
/// higher category, as a float next to an integer tensor (torch.result_type).
Tensor as_tensor(const Operand& x, const Operand& other, Device device = {});

}  // namespace gradus
