// Element access to a CPU tensor without bounds checks.
#pragma once

#include <gradus/autograd/tensor.h>

namespace gradus {

/// Gives access to an element of a CPU tensor as a[i][j], as fast as a pointer does. It does not keep the tensor alive.
template <class T, int N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const int64_t* sizes, const int64_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  decltype(auto) operator[](int64_t i) const {
    if constexpr (N == 1) return static_cast<T&>(data_[i * strides_[0]]);
    else return TensorAccessor<T, N - 1>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }
  int64_t size(int dim) const { return sizes_[dim]; }
  int64_t stride(int dim) const { return strides_[dim]; }
  T* data() const { return data_; }

 private:
  T* data_;
  const int64_t* sizes_;
  const int64_t* strides_;
};

template <class T, int N>
TensorAccessor<T, N> Tensor::accessor() const {
  GRADUS_CHECK(dim() == N, ShapeError, "accessor of ", N, " dimensions for a tensor of shape ", sizes());
  GRADUS_CHECK(device().is_cpu(), DeviceError, "accessor needs a cpu tensor, got one on ", device(),
               ": call .cpu() first");
  return TensorAccessor<T, N>(data_ptr<T>(), sizes().data(), strides().data());
}

}  // namespace gradus
