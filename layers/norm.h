// Normalisation: options, functions of nn::functional, and layers. Formulas and references are in
// autograd/ops/nn/norm.h.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <gradus/autograd/ops/nn/norm.h>
#include <gradus/layers/layer.h>

namespace gradus::nn {

// ---- Options ----

/// Options of batch and instance normalisation. Without momentum (std::nullopt), the running statistics are the average
/// over all batches.
template <bool kByDefault>
struct NormOptions {
  NormOptions(int64_t num_features) : num_features_(num_features) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, num_features);
  GRADUS_ARG(double, eps) = 1e-5;
  GRADUS_ARG(std::optional<double>, momentum) = 0.1;
  /// If true, the layer has a weight and a bias.
  GRADUS_ARG(bool, affine) = kByDefault;
  /// If true, the layer keeps running statistics and uses them in evaluation. If false, evaluation uses the statistics
  /// of its batch.
  GRADUS_ARG(bool, track_running_stats) = kByDefault;
};
using BatchNormOptions = NormOptions<true>;
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BNReLU2dOptions = BatchNormOptions;
using InstanceNormOptions = NormOptions<false>;
using InstanceNorm1dOptions = InstanceNormOptions;
using InstanceNorm2dOptions = InstanceNormOptions;

struct LayerNormOptions {
  LayerNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const {
    printer.value(normalized_shape_)("eps", eps_)("elementwise_affine", elementwise_affine_);
  }
  GRADUS_ARG(std::vector<int64_t>, normalized_shape);
  GRADUS_ARG(double, eps) = 1e-5;
  GRADUS_ARG(bool, elementwise_affine) = true;
};

struct GroupNormOptions {
  GroupNormOptions(int64_t num_groups, int64_t num_channels) : num_groups_(num_groups), num_channels_(num_channels) {}
  void print(detail::LayerPrinter& printer) const {
    printer.value(num_groups_).value(num_channels_)("eps", eps_)("affine", affine_);
  }
  GRADUS_ARG(int64_t, num_groups);
  GRADUS_ARG(int64_t, num_channels);
  GRADUS_ARG(double, eps) = 1e-5;
  GRADUS_ARG(bool, affine) = true;
};

struct LocalResponseNormOptions {
  LocalResponseNormOptions(int64_t size) : size_(size) {}  // NOLINT(google-explicit-constructor)
  void print(detail::LayerPrinter& printer) const { printer.value(size_)("alpha", alpha_)("beta", beta_)("k", k_); }
  GRADUS_ARG(int64_t, size);
  GRADUS_ARG(double, alpha) = 1e-4;
  GRADUS_ARG(double, beta) = 0.75;
  GRADUS_ARG(double, k) = 1;
};

// ---- Functions ----

namespace functional {

/// Options that the functions of all normalisations share.
template <class Options>
struct NormFuncOptions {
  GRADUS_ARG_OF(Options, Tensor, weight) = {};
  GRADUS_ARG_OF(Options, Tensor, bias) = {};
  GRADUS_ARG_OF(Options, double, eps) = 1e-5;
};

struct BatchNormFuncOptions : NormFuncOptions<BatchNormFuncOptions> {
  GRADUS_ARG(bool, training) = false;
  GRADUS_ARG(std::optional<double>, momentum) = 0.1;
};
inline Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                         const BatchNormFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::batch_norm(x, running_mean, running_var, options.weight(), options.bias(), options.training(),
                            options.momentum().value_or(0), options.eps(), {}, where);
}
struct InstanceNormFuncOptions : NormFuncOptions<InstanceNormFuncOptions> {
  GRADUS_ARG(Tensor, running_mean) = {};
  GRADUS_ARG(Tensor, running_var) = {};
  GRADUS_ARG(bool, use_input_stats) = true;
  GRADUS_ARG(double, momentum) = 0.1;
};
inline Tensor instance_norm(const Tensor& x, const InstanceNormFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::instance_norm(x, options.running_mean(), options.running_var(), options.weight(), options.bias(),
                               options.use_input_stats(), options.momentum(), options.eps(), {}, where);
}
struct LayerNormFuncOptions : NormFuncOptions<LayerNormFuncOptions> {
  LayerNormFuncOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(std::vector<int64_t>, normalized_shape);
};
inline Tensor layer_norm(const Tensor& x, const LayerNormFuncOptions& options, Loc where = Loc::current()) {
  return gradus::layer_norm(x, options.normalized_shape(), options.weight(), options.bias(), options.eps(), where);
}
struct GroupNormFuncOptions : NormFuncOptions<GroupNormFuncOptions> {
  GroupNormFuncOptions(int64_t num_groups) : num_groups_(num_groups) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, num_groups);
};
inline Tensor group_norm(const Tensor& x, const GroupNormFuncOptions& options, Loc where = Loc::current()) {
  return gradus::group_norm(x, options.num_groups(), options.weight(), options.bias(), options.eps(), where);
}
using LocalResponseNormFuncOptions = LocalResponseNormOptions;
inline Tensor local_response_norm(const Tensor& x, const LocalResponseNormFuncOptions& options,
                                  Loc where = Loc::current()) {
  return gradus::local_response_norm(x, options.size(), options.alpha(), options.beta(), options.k(), where);
}
struct NormalizeFuncOptions {
  GRADUS_ARG(double, p) = 2;
  GRADUS_ARG(int64_t, dim) = 1;
  GRADUS_ARG(double, eps) = 1e-12;
};
inline Tensor normalize(const Tensor& x, const NormalizeFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::normalize(x, options.p(), options.dim(), options.eps(), where);
}

}  // namespace functional

// ---- Layers ----

namespace detail {

/// Parameters `weight` (ones) and `bias` (zeros) if affine. Buffers `running_mean` (zeros), `running_var` (ones) and
/// `num_batches_tracked` (int64 scalar) if statistics are tracked. All except num_batches_tracked have shape
/// (num_features).
template <class Options>
struct NormBase : Module {
  explicit NormBase(const Options& options_) : options(options_) { register_tensors(); }
  void reset_parameters();
  void reset_running_stats();

  Options options;
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 protected:
  void register_tensors();
  /// The factor with which the statistics of the current batch enter the running statistics.
  double next_momentum() const;
  /// True if x is normalised by its own statistics, false if by the running statistics.
  bool uses_batch() const { return is_training() || !running_mean.defined(); }
  Tensor instance_normalized(const Tensor& x);
  void print(std::ostream& stream, const std::string& name) const;
};

/// Base of BatchNorm1d, BatchNorm2d and BNReLU2d.
struct BatchNormBase : NormBase<BatchNormOptions> {
  using NormBase::NormBase;
  /// If set, is called in training instead of batch_norm, and must then also update the running statistics with the
  /// factor `momentum`. nn::convert_sync_batchnorm sets it to use the statistics of all ranks.
  std::function<Tensor(const Tensor& x, const BatchNormBase& norm, double momentum)> synchronized;

 protected:
  Tensor batch_normalized(const Tensor& x);
  void print(std::ostream& stream, const std::string& name) const;
};

}  // namespace detail

/// x (N, C) or (N, C, L), normalised for each channel over the batch.
struct BatchNorm1dImpl : detail::LayerOf<BatchNorm1dImpl, detail::BatchNormBase> {
  using LayerOf::LayerOf;
  Tensor forward(const Tensor& x);
};
GRADUS_MODULE(BatchNorm1d);

/// x (N, C, H, W), normalised for each channel over the batch.
struct BatchNorm2dImpl : detail::LayerOf<BatchNorm2dImpl, detail::BatchNormBase> {
  using LayerOf::LayerOf;
  Tensor forward(const Tensor& x);
};
GRADUS_MODULE(BatchNorm2d);

/// relu(BatchNorm2d(x)), or relu(BatchNorm2d(x) + residual) for the end of a residual block, in one kernel forward and
/// one kernel backward if the backend has them. Parameters and buffers as in BatchNorm2d. (torch.nn.intrinsic.BNReLU2d)
struct BNReLU2dImpl : detail::LayerOf<BNReLU2dImpl, detail::BatchNormBase> {
  using LayerOf::LayerOf;
  /// residual is undefined or has the shape and type of x.
  Tensor forward(const Tensor& x, const Tensor& residual = {});
};
GRADUS_MODULE(BNReLU2d);

/// x (N, C, L) or (C, L), normalised for each channel of each sample.
struct InstanceNorm1dImpl : detail::LayerOf<InstanceNorm1dImpl, detail::NormBase<InstanceNormOptions>> {
  using LayerOf::LayerOf;
  Tensor forward(const Tensor& x);
};
GRADUS_MODULE(InstanceNorm1d);

/// x (N, C, H, W) or (C, H, W), normalised for each channel of each sample.
struct InstanceNorm2dImpl : detail::LayerOf<InstanceNorm2dImpl, detail::NormBase<InstanceNormOptions>> {
  using LayerOf::LayerOf;
  Tensor forward(const Tensor& x);
};
GRADUS_MODULE(InstanceNorm2d);

/// x (…, normalized_shape), normalised for each sample over the dimensions of normalized_shape. Parameters `weight`
/// (ones) and `bias` (zeros) of that shape.
struct LayerNormImpl : detail::Layer<LayerNormImpl, LayerNormOptions> {
  explicit LayerNormImpl(std::vector<int64_t> normalized_shape)
      : LayerNormImpl(LayerNormOptions(std::move(normalized_shape))) {}
  explicit LayerNormImpl(const LayerNormOptions& options_) : Layer(options_) { LayerNormImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x);

  Tensor weight, bias;
};
GRADUS_MODULE(LayerNorm);

/// x (N, C, …), normalised for each group of channels of each sample. Parameters `weight` (ones) and `bias` (zeros) of
/// shape (C).
struct GroupNormImpl : detail::Layer<GroupNormImpl, GroupNormOptions> {
  GroupNormImpl(int64_t num_groups, int64_t num_channels) : GroupNormImpl(GroupNormOptions(num_groups, num_channels)) {}
  explicit GroupNormImpl(const GroupNormOptions& options_) : Layer(options_) { GroupNormImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x);

  Tensor weight, bias;
};
GRADUS_MODULE(GroupNorm);

/// x / (k + alpha avg(x²))^beta, where avg is the average over `size` neighbouring channels.
GRADUS_LAYER(LocalResponseNorm, FunctionLayer, functional::local_response_norm);

}  // namespace gradus::nn
