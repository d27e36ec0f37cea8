#include <gradus/layers/norm.h>

#include <gradus/autograd/ops/creation.h>
#include <gradus/layers/module/init.h>

namespace gradus::nn {

namespace detail {

namespace {

void reset_affine(const Tensor& weight, const Tensor& bias) {
  if (!weight.defined()) return;
  init::ones_(weight);
  init::zeros_(bias);
}

}  // namespace

template <class Options>
void NormBase<Options>::register_tensors() {
  const int64_t features = options.num_features();
  GRADUS_CHECK(features > 0, ValueError, "normalisation of ", features, " features");
  const bool affine = options.affine(), tracks = options.track_running_stats();
  weight = register_parameter("weight", affine ? empty({features}) : Tensor());
  bias = register_parameter("bias", affine ? empty({features}) : Tensor());
  running_mean = register_buffer("running_mean", tracks ? zeros({features}) : Tensor());
  running_var = register_buffer("running_var", tracks ? ones({features}) : Tensor());
  num_batches_tracked = register_buffer("num_batches_tracked", tracks ? zeros({}, kLong) : Tensor());
  reset_parameters();
}

template <class Options>
void NormBase<Options>::reset_parameters() {
  reset_running_stats();
  reset_affine(weight, bias);
}

template <class Options>
void NormBase<Options>::reset_running_stats() {
  if (!running_mean.defined()) return;
  init::zeros_(running_mean);
  init::ones_(running_var);
  init::zeros_(num_batches_tracked);
}

template <class Options>
double NormBase<Options>::next_momentum() const {
  if (options.momentum() || !is_training() || !running_mean.defined()) return options.momentum().value_or(0);
  return 1.0 / static_cast<double>(num_batches_tracked.template item<int64_t>() + 1);
}

template <class Options>
Tensor NormBase<Options>::instance_normalized(const Tensor& x) {
  GRADUS_CHECK(x.size(1) == options.num_features(), ShapeError, "x of shape ", x.sizes(), " has ", x.size(1),
               " channels, expected ", options.num_features());
  return instance_norm(x, running_mean, running_var, weight, bias, uses_batch(), next_momentum(), options.eps(),
                       num_batches_tracked);
}

template <class Options>
void NormBase<Options>::print(std::ostream& stream, const std::string& name) const {
  LayerPrinter printer(stream, name);
  printer.value(options.num_features())("eps", options.eps());
  printer("momentum", options.momentum() ? OptionText(*options.momentum()) : "None");
  printer("affine", options.affine())("track_running_stats", options.track_running_stats());
}

template struct NormBase<BatchNormOptions>;
template struct NormBase<InstanceNormOptions>;

Tensor BatchNormBase::batch_normalized(const Tensor& x) {
  if (synchronized && is_training()) return synchronized(x, *this, next_momentum());
  return batch_norm(x, running_mean, running_var, weight, bias, uses_batch(), next_momentum(), options.eps(),
                    num_batches_tracked);
}

void BatchNormBase::print(std::ostream& stream, const std::string& name) const {
  NormBase::print(stream, synchronized ? "SyncBatchNorm" : name);
}

}  // namespace detail

Tensor BatchNorm1dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  GRADUS_CHECK(x.dim() == 2 || x.dim() == 3, ShapeError, "BatchNorm1d needs x of shape (N, C) or (N, C, L), got ",
               x.sizes());
  return batch_normalized(x);
}

Tensor BatchNorm2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  GRADUS_CHECK(x.dim() == 4, ShapeError, "BatchNorm2d needs x of shape (N, C, H, W), got ", x.sizes());
  return batch_normalized(x);
}

Tensor BNReLU2dImpl::forward(const Tensor& x, const Tensor& residual) {
  const auto frame = enter();
  GRADUS_CHECK(x.dim() == 4, ShapeError, "BNReLU2d needs x of shape (N, C, H, W), got ", x.sizes());
  if (synchronized && is_training())
    return (residual.defined() ? batch_normalized(x) + residual : batch_normalized(x)).relu();
  return batch_norm_relu(x, running_mean, running_var, weight, bias, uses_batch(), next_momentum(), options.eps(),
                         residual, num_batches_tracked);
}

Tensor InstanceNorm1dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  GRADUS_CHECK(x.dim() == 2 || x.dim() == 3, ShapeError, "InstanceNorm1d needs x of shape (N, C, L) or (C, L), got ",
               x.sizes());
  return x.dim() == 3 ? instance_normalized(x) : instance_normalized(x.unsqueeze(0)).squeeze(0);
}

Tensor InstanceNorm2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  GRADUS_CHECK(x.dim() == 3 || x.dim() == 4, ShapeError,
               "InstanceNorm2d needs x of shape (N, C, H, W) or (C, H, W), got ", x.sizes());
  return x.dim() == 4 ? instance_normalized(x) : instance_normalized(x.unsqueeze(0)).squeeze(0);
}

void LayerNormImpl::reset() {
  const bool affine = options.elementwise_affine();
  const Shape shape = options.normalized_shape();
  GRADUS_CHECK(shape.size() > 0, ValueError, "LayerNorm needs a normalized_shape of at least one dimension");
  weight = register_parameter("weight", affine ? empty(shape) : Tensor());
  bias = register_parameter("bias", affine ? empty(shape) : Tensor());
  reset_parameters();
}
void LayerNormImpl::reset_parameters() { detail::reset_affine(weight, bias); }
Tensor LayerNormImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return layer_norm(x, options.normalized_shape(), weight, bias, options.eps());
}

void GroupNormImpl::reset() {
  const int64_t groups = options.num_groups(), channels = options.num_channels();
  GRADUS_CHECK(groups > 0 && channels > 0 && channels % groups == 0, ValueError, channels,
               " channels cannot be divided into ", groups, " groups");
  weight = register_parameter("weight", options.affine() ? empty({channels}) : Tensor());
  bias = register_parameter("bias", options.affine() ? empty({channels}) : Tensor());
  reset_parameters();
}
void GroupNormImpl::reset_parameters() { detail::reset_affine(weight, bias); }
Tensor GroupNormImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return group_norm(x, options.num_groups(), weight, bias, options.eps());
}

}  // namespace gradus::nn
