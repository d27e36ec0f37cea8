// Element-wise operators with broadcasting and type promotion (torch.result_type).
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

Tensor add(const Operand& a, const Operand& b, const Scalar& alpha = 1);
Tensor sub(const Operand& a, const Operand& b, const Scalar& alpha = 1);
Tensor mul(const Operand& a, const Operand& b);
/// True division: integers become float32.
Tensor div(const Operand& a, const Operand& b);
Tensor pow(const Operand& base, const Operand& exponent);
Tensor maximum(const Operand& a, const Operand& b);
Tensor minimum(const Operand& a, const Operand& b);

Tensor neg(const Tensor& x, Loc where = Loc::current());
Tensor abs(const Tensor& x, Loc where = Loc::current());
Tensor exp(const Tensor& x, Loc where = Loc::current());
Tensor log(const Tensor& x, Loc where = Loc::current());
Tensor sqrt(const Tensor& x, Loc where = Loc::current());
Tensor reciprocal(const Tensor& x, Loc where = Loc::current());
Tensor relu(const Tensor& x, Loc where = Loc::current());
Tensor sigmoid(const Tensor& x, Loc where = Loc::current());
Tensor tanh(const Tensor& x, Loc where = Loc::current());
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {}, Loc where = Loc::current());

/// Comparisons give booleans and have no gradient.
Tensor eq(const Operand& a, const Operand& b);
Tensor ne(const Operand& a, const Operand& b);
Tensor lt(const Operand& a, const Operand& b);
Tensor le(const Operand& a, const Operand& b);
Tensor gt(const Operand& a, const Operand& b);
Tensor ge(const Operand& a, const Operand& b);
Tensor logical_and(const Operand& a, const Operand& b);
Tensor logical_or(const Operand& a, const Operand& b);
Tensor logical_not(const Tensor& x, Loc where = Loc::current());
Tensor isfinite(const Tensor& x, Loc where = Loc::current());
/// condition ? a : b, element by element; condition is boolean.
Tensor where(const Tensor& condition, const Operand& a, const Operand& b);

}  // namespace gradus
