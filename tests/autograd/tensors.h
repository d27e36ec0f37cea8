// Tensors with a few given elements.
#pragma once

#include <vector>

#include <gradus/autograd/autograd.h>

namespace gradus::test {

inline Tensor numbers(const std::vector<double>& values) { return tensor(values, kDouble); }
inline Tensor leaf(const std::vector<double>& values) { return tensor(values, dtype(kDouble).requires_grad(true)); }

}  // namespace gradus::test
