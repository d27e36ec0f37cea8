// The reference backend: every kernel is plain loops over strided views, single-threaded, and accumulates in double
// (int64 for integers). The other backends are compared with it, and it is the one to read first.
#pragma once

#include <gradus/core/backend.h>

namespace gradus {

class NaiveBackend : public Backend {
 public:
  std::string_view name() const override { return "naive"; }
  DeviceType device_type() const override { return DeviceType::cpu; }

  // memory.cpp
  void fill(const MutableView& y, const Scalar& value) override;
  void copy(const View& x, const MutableView& y) override;
  void arange(const MutableView& y, const Scalar& start, const Scalar& step) override;

  // elementwise.cpp
  void unary(UnaryOp op, const View& x, const MutableView& y, const UnaryArgs& args) override;
  void unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                      const UnaryArgs& args) override;
  void binary(BinaryOp op, const View& a, const View& b, const MutableView& y) override;
  void binary_scalar(BinaryOp op, const View& a, const Scalar& scalar, bool scalar_first,
                     const MutableView& y) override;
  void where(const View& condition, const View& a, const View& b, const MutableView& y) override;
  void recurrent_cell(RecurrentCell kind, const MutableView& gates, const View& c_before, const MutableView& c,
                      const MutableView& h) override;
  void recurrent_cell_backward(RecurrentCell kind, const View& dh, const View& gates, const View& c_before,
                               const View& c, const MutableView& dc, const MutableView& dgates) override;

  // reduce.cpp
  void reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) override;
  void arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                  const MutableView& indices) override;
  void scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) override;
  void linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y) override;
  void sort(const View& x, int axis, bool descending, const MutableView& values, const MutableView& indices) override;

  // matmul.cpp
  void matmul(const View& a, const View& b, const MutableView& y, bool accumulate) override;

  // conv2d.cpp
  void conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) override;
  void conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                            const Conv2dGeometry& geometry) override;
  void conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                              const Conv2dGeometry& geometry) override;

  // image.cpp
  void max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                  const Pool2dGeometry& geometry) override;
  void max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                           const Pool2dGeometry& geometry) override;
  void resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) override;

  // loss.cpp
  void pick(const View& x, const View& target, int64_t ignore_index, const MutableView& y) override;
  void pick_backward(const View& dy, const View& target, int64_t ignore_index, const MutableView& dx) override;
  void softmax(const View& x, int axis, SoftmaxKind kind, const MutableView& y) override;
  void softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) override;
  void cross_entropy(const CrossEntropyArgs& args) override;
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) override;

  // index.cpp
  void gather(const View& x, int axis, const View& index, const MutableView& y) override;
  void scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) override;
  void nonzero(const View& x, const MutableView& positions) override;

  // norm.cpp
  void normalize(const NormalizeArgs& args) override;
  void normalize_backward(const NormalizeBackwardArgs& args) override;

  // random.cpp
  void uniform(const MutableView& y, const RandomState& state, double low, double high) override;
  void normal(const MutableView& y, const RandomState& state, double mean, double deviation) override;
  void bernoulli(const MutableView& y, const RandomState& state, double p) override;
  void randint(const MutableView& y, const RandomState& state, int64_t low, int64_t high) override;
  void randperm(const MutableView& y, const RandomState& state) override;

  // optimizer.cpp
  void optimizer_step(std::span<const ParameterViews> parameters, const View& block,
                      const OptimizerRule& rule) override;
  void unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) override;
  void update_scale(const MutableView& block, const ScaleRule& rule) override;
};

}  // namespace gradus
