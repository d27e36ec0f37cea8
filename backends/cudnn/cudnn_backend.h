// The backend "cudnn": the backend "cuda" with cuDNN's convolutions. The base class computes what cuDNN does not
// support, or computes more slowly; observers see in the implementation name which of the two ran. The switches are in
// core/runtime/cuda.h.
#pragma once

#include <gradus/backends/cuda/cuda_backend.h>

namespace gradus {

class CudnnBackend final : public CudaBackend {
 public:
  std::string_view name() const override { return "cudnn"; }
  std::string libraries() const override;  // handle.cpp

  // conv2d.cpp (conv2d itself is the fused form without bias and ReLU, as in the base class)
  void conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                            const Conv2dGeometry& geometry) override;
  void conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                              const Conv2dGeometry& geometry) override;
  void conv2d_bias_relu(const Conv2dArgs& args) override;
  void conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) override;
};

}  // namespace gradus
