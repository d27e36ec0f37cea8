// The arguments of operators: operands of binary operators, axis numbers, and sets of axes as bit masks (core's
// axis_mask).
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Converts a possibly negative axis to 0 … x.dim() - 1. Throws an IndexError if there is no such dimension.
inline int axis_of(const Tensor& x, int64_t dim) { return normalize_axis(dim, static_cast<int>(x.dim())); }

/// Restores the axes of `mask`, over which y was reduced, with size 1.
inline Tensor restore_axes(const Tensor& y, const Shape& x_shape, uint32_t mask) {
  return y.reshape(reduced_shape(x_shape, mask, true));
}

/// The axes of `mask` as a list.
inline Dims axes_of(uint32_t mask) {
  Dims axes;
  for (int i = 0; i < kMaxDims; ++i)
    if (mask >> i & 1) axes.push_back(i);
  return axes;
}

/// Indices, in row-major order, of the elements where a boolean mask is true.
inline Tensor places_of(const Tensor& mask) { return mask.reshape({-1}, Loc{}).nonzero(Loc{}).select(1, 0, Loc{}); }

/// Source line of the call, which binary operators receive through their operands.
inline Loc line_of(const Operand& a, const Operand& b) { return a.where.line ? a.where : b.where; }

/// Throws a ValueError if an operand is an undefined tensor.
void check_operands(const Operand& a, const Operand& b);

/// Converts a number to `dtype` as PyTorch does, which drops the fraction for integers. A number out of range is a
/// ValueError (ops::check_fits).
Scalar number_of(const Scalar& number, DType dtype);

/// Returns x if it is a tensor. A number becomes a scalar tensor of the other operand's type, unless the number is of a
/// higher category, as a float next to an integer tensor (torch.result_type). Next to another number it keeps its own
/// type.
Tensor as_tensor(const Operand& x, const Operand& other, Device device = {});

}  // namespace gradus
