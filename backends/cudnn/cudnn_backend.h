// The backend "cudnn": the backend "cuda" with cuDNN's convolutions. The base class computes the convolutions that
// cuDNN does not support or computes more slowly. The implementation name that observers see says which library ran.
// The switches (TF32, determinism, timed engines) are in core/runtime/cuda.h.
#pragma once

#include <gradus/backends/cuda/cuda_backend.h>

namespace gradus {

class CudnnBackend final : public CudaBackend {
 public:
  std::string_view name() const override { return "cudnn"; }
  std::string libraries() const override;  // library.cpp

  // conv2d.cpp
  void conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) override;
  const KernelFamily<cuda_detail::ConvAlgorithm>& conv_family() const override;
};

}  // namespace gradus
