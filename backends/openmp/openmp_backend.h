// The kernels of the openmp backend, by file. What is not overridden here is NaiveBackend's.
#pragma once

#include <gradus/backends/naive/naive.h>

namespace gradus {

class OpenmpBackend final : public NaiveBackend {
 public:
  std::string_view name() const override { return "openmp"; }

  // matmul.cpp
  void matmul(const View& a, const View& b, const MutableView& y, bool accumulate) override;
  void linear(const View& x, const View& w, const View* bias, const MutableView& y) override;

  // conv2d.cpp
  void conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) override;
  void conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                            const Conv2dGeometry& geometry) override;
  void conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                              const Conv2dGeometry& geometry) override;
  void conv2d_bias_relu(const View& x, const View& w, const View* bias, bool relu, const MutableView& y,
                        const Conv2dGeometry& geometry) override;
  void conv2d_bias_relu_backward(const View& dy, const View& x, const View& w, const View* y_if_relu,
                                 const MutableView* dx, const MutableView* dw, const MutableView* dbias,
                                 const Conv2dGeometry& geometry) override;
};

}  // namespace gradus
