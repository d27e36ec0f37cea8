// The backend "cuda": gradus's own kernels, with a folder for each family of operators (README.md), and cuBLAS for
// matrix products. Its results are deterministic: there are no atomics on floating-point numbers, and the order of sums
// depends only on shapes and device. No operator waits for the device or copies from it, so every operator can be
// captured into a graph. The backend "cudnn" derives from this class.
#pragma once

#include <memory>
#include <span>
#include <string>

#include <gradus/core/backend.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus {

template <class Algorithm>
class KernelFamily;
namespace cuda_detail {
struct ConvAlgorithm;
}

class CudaBackend : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  std::string libraries() const override;  // register.cpp
  bool can(Fusion fusion) const override { return fusion == Fusion::sum_of_gradients; }

  // elementwise/memory.cu
  void fill(const MutableView& y, const Scalar& value) override;
  void copy(const View& x, const MutableView& y) override;
  void arange(const MutableView& y, const Scalar& start, const Scalar& step) override;

  // elementwise/unary.cu
  void unary(UnaryOp op, const View& x, const MutableView& y, const UnaryArgs& args) override;
  void unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                      const UnaryArgs& args) override;

  // elementwise/binary.cu
  void binary(BinaryOp op, const View& a, const View& b, const MutableView& y) override;
  void binary_scalar(BinaryOp op, const View& a, const Scalar& scalar, bool scalar_first,
                     const MutableView& y) override;
  void where(const View& condition, const View& a, const View& b, const MutableView& y) override;

  // reduce/reduce.cu, reduce/arg_reduce.cu
  void reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) override;
  void arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                  const MutableView& indices) override;

  // gemm/matmul.cpp
  void matmul(const View& a, const View& b, const MutableView& y, bool accumulate) override;
  void linear(const View& x, const View& w, const View& bias, const MutableView& y) override;

  // conv2d/conv2d.cu
  void conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) override;
  void conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                            const Conv2dGeometry& geometry) override;
  void conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                              const Conv2dGeometry& geometry) override;
  void conv2d_bias_relu(const Conv2dArgs& args) override;
  void conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) override;
  /// The algorithms from which select() chooses one for each convolution (conv2d/select.h).
  virtual const KernelFamily<cuda_detail::ConvAlgorithm>& conv_family() const;

  // pool/pool2d.cu
  void max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                  const Pool2dGeometry& geometry) override;
  void max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                           const Pool2dGeometry& geometry) override;

  // image/image.cu
  void resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) override;

  // loss/cross_entropy.cu
  void pick(const View& x, const View& target, int64_t ignore_index, const MutableView& y) override;
  void pick_backward(const View& dy, const View& target, int64_t ignore_index, const MutableView& dx) override;

  // norm/softmax.cu, loss/cross_entropy.cu
  void softmax(const View& x, int axis, SoftmaxKind kind, const MutableView& y) override;
  void softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) override;
  void cross_entropy(const CrossEntropyArgs& args) override;
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) override;

  // norm/normalize.cu
  void normalize(const NormalizeArgs& args) override;
  void normalize_backward(const NormalizeBackwardArgs& args) override;

  // sequence/recurrent.cu
  void recurrent_cell(RecurrentCell cell, const MutableView& gates, const View& c_before, const MutableView& c,
                      const MutableView& h) override;
  void recurrent_cell_backward(RecurrentCell cell, const View& dh, const View& gates, const View& c_before,
                               const View& c, const MutableView& dc, const MutableView& dgates) override;
  void recurrent_sequence(const RecurrentArgs& args) override;
  void recurrent_sequence_backward(const RecurrentBackwardArgs& args) override;

  // sequence/attention.cu
  void attention(const AttentionArgs& args) override;
  void attention_backward(const AttentionBackwardArgs& args) override;

  // index/index.cu, index/sort.cu, reduce/scan.cu
  void gather(const View& x, int axis, const View& index, const MutableView& y) override;
  void scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) override;
  void nonzero(const View& x, const MutableView& positions) override;
  void sort(const View& x, int axis, bool descending, const MutableView& values, const MutableView& indices) override;
  void topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices) override;
  void scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) override;
  void linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y) override;

  // random/random.cu
  void uniform(const MutableView& y, const RandomState& state, double low, double high) override;
  void normal(const MutableView& y, const RandomState& state, double mean, double deviation) override;
  void bernoulli(const MutableView& y, const RandomState& state, double p) override;
  void randint(const MutableView& y, const RandomState& state, int64_t low, int64_t high) override;
  void randperm(const MutableView& y, const RandomState& state) override;
  void dropout(const View& x, double p, const RandomState& state, const MutableView& mask,
               const MutableView& y) override;
  void dropout_backward(const View& dy, const View& mask, double p, const MutableView& dx) override;

  // image/image.cu
  void rgb_to_grayscale(const View& x, const MutableView& y) override;

  // optim/optimizer.cu
  void advance_step(const MutableView& block) override;
  void optimizer_step(std::span<const ParameterViews> parameters, const View& block,
                      const OptimizerRule& rule) override;
  void unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) override;
  void update_scale(const MutableView& block, const ScaleRule& rule) override;
};

/// The runtime of the CUDA devices: memory, streams, events and captured graphs. On a machine without a driver or a
/// device, returns null and sets *why_not to the reason. Throws ValueError if the environment variable
/// GRADUS_CUDA_MAX_CAPABILITY is invalid.
std::unique_ptr<DeviceRuntime> make_cuda_runtime(std::string* why_not);

}  // namespace gradus
