// Printing tensors as LibTorch does.
#pragma once

#include <iosfwd>

#include <gradus/autograd/tensor.h>

namespace gradus {

std::ostream& operator<<(std::ostream& stream, const Tensor& tensor);
std::ostream& operator<<(std::ostream& stream, const Dims& dims);
std::ostream& operator<<(std::ostream& stream, DType dtype);
std::ostream& operator<<(std::ostream& stream, Device device);

}  // namespace gradus
