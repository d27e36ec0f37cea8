// The operators of the backend "openmp", grouped by the files that implement them (README.md). Operators that are not
// overridden here come from NaiveBackend or are composed of other operators (core/composites).
#pragma once

#include <gradus/backends/naive/naive.h>

namespace gradus {

class OpenmpBackend final : public NaiveBackend {
 public:
  std::string_view name() const override { return "openmp"; }

  // elementwise/memory.cpp
  void fill(const MutableView& y, const Scalar& value) override;
  void copy(const View& x, const MutableView& y) override;

  // elementwise/elementwise.cpp
  void unary(UnaryOp op, const View& x, const MutableView& y, const UnaryArgs& args) override;
  void unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                      const UnaryArgs& args) override;
  void binary(BinaryOp op, const View& a, const View& b, const MutableView& y) override;
  void binary_scalar(BinaryOp op, const View& a, const Scalar& scalar, bool scalar_first,
                     const MutableView& y) override;
  void where(const View& condition, const View& a, const View& b, const MutableView& y) override;

  // reduce/reduce.cpp
  void reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) override;
  void arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                  const MutableView& indices) override;
  void scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) override;

  // index/sort.cpp
  void sort(const View& x, int axis, bool descending, const MutableView& values, const MutableView& indices) override;
  void topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices) override;

  // gemm/matmul.cpp
  void matmul(const View& a, const View& b, const MutableView& y, bool accumulate) override;
  void linear(const View& x, const View& w, const View& bias, const MutableView& y) override;

  // conv2d/conv2d.cpp
  void conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) override;
  void conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                            const Conv2dGeometry& geometry) override;
  void conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                              const Conv2dGeometry& geometry) override;
  void conv2d_bias_relu(const Conv2dArgs& args) override;
  void conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) override;

  // pool/pool2d.cpp
  void max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                  const Pool2dGeometry& geometry) override;
  void max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                           const Pool2dGeometry& geometry) override;

  // loss/cross_entropy.cpp
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) override;

  // norm/softmax.cpp
  void softmax(const View& x, int axis, SoftmaxKind kind, const MutableView& y) override;
  void softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) override;

  // index/index.cpp
  void gather(const View& x, int axis, const View& index, const MutableView& y) override;
  void scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) override;
  void nonzero(const View& x, const MutableView& positions) override;

  // image/resample2d.cpp
  void resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) override;

  // norm/norm.cpp, norm/norm_backward.cpp
  void normalize(const NormalizeArgs& args) override;
  void normalize_backward(const NormalizeBackwardArgs& args) override;

  // sequence/recurrent.cpp
  void recurrent_cell(RecurrentCell cell, const MutableView& gates, const View& c_before, const MutableView& c,
                      const MutableView& h) override;
  void recurrent_cell_backward(RecurrentCell cell, const View& dh, const View& gates, const View& c_before,
                               const View& c, const MutableView& dc, const MutableView& dgates) override;

  // random/random.cpp
  void uniform(const MutableView& y, const RandomState& state, double low, double high) override;
  void normal(const MutableView& y, const RandomState& state, double mean, double deviation) override;
  void dropout(const View& x, double p, const RandomState& state, const MutableView& mask,
               const MutableView& y) override;
  void dropout_backward(const View& dy, const View& mask, double p, const MutableView& dx) override;

  // optim/optimizer.cpp
  void optimizer_step(std::span<const ParameterViews> parameters, const View& block,
                      const OptimizerRule& rule) override;
};

}  // namespace gradus
