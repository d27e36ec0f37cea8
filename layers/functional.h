// nn::functional: layers as functions, with options structs (torch::nn::functional).
//
//   namespace F = gradus::nn::functional;
//   x = F::max_pool2d(F::relu(conv1(x)), F::MaxPool2dFuncOptions(2));
#pragma once

#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/index.h>
#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/autograd/ops/nn/activation.h>
#include <gradus/autograd/ops/nn/dropout.h>
#include <gradus/autograd/ops/nn/loss.h>
#include <gradus/autograd/ops/nn/norm.h>
#include <gradus/autograd/ops/nn/sequence.h>
#include <gradus/layers/activation.h>
#include <gradus/layers/conv.h>
#include <gradus/layers/distance.h>
#include <gradus/layers/embedding.h>
#include <gradus/layers/loss.h>
#include <gradus/layers/norm.h>
#include <gradus/layers/pool.h>
#include <gradus/layers/resize.h>

namespace gradus::nn::functional {

// ---- Activations ----

using ReLUFuncOptions = ReLUOptions;
inline Tensor relu(const Tensor& x, const ReLUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? x.relu_(where) : gradus::relu(x, where);
}
using ReLU6FuncOptions = ReLU6Options;
inline Tensor relu6(const Tensor& x, const ReLU6FuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::relu6_(x, where) : gradus::relu6(x, where);
}
using LeakyReLUFuncOptions = LeakyReLUOptions;
inline Tensor leaky_relu(const Tensor& x, const LeakyReLUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::leaky_relu_(x, options.negative_slope(), where)
                           : gradus::leaky_relu(x, options.negative_slope(), where);
}
using ELUFuncOptions = ELUOptions;
inline Tensor elu(const Tensor& x, const ELUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::elu_(x, options.alpha(), 1, 1, where)
                           : gradus::elu(x, options.alpha(), 1, 1, where);
}
using SELUFuncOptions = SELUOptions;
inline Tensor selu(const Tensor& x, const SELUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::selu_(x, where) : gradus::selu(x, where);
}
using CELUFuncOptions = CELUOptions;
inline Tensor celu(const Tensor& x, const CELUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::celu_(x, options.alpha(), where) : gradus::celu(x, options.alpha(), where);
}
using GELUFuncOptions = GELUOptions;
inline Tensor gelu(const Tensor& x, const GELUFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::gelu(x, options.approximate(), where);
}
using SoftplusFuncOptions = SoftplusOptions;
inline Tensor softplus(const Tensor& x, const SoftplusFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::softplus(x, options.beta(), options.threshold(), where);
}
using SoftshrinkFuncOptions = SoftshrinkOptions;
inline Tensor softshrink(const Tensor& x, const SoftshrinkFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::softshrink(x, options.lambda(), where);
}
using HardshrinkFuncOptions = HardshrinkOptions;
inline Tensor hardshrink(const Tensor& x, const HardshrinkFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::hardshrink(x, options.lambda(), where);
}
using HardtanhFuncOptions = HardtanhOptions;
inline Tensor hardtanh(const Tensor& x, const HardtanhFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::hardtanh_(x, options.min_val(), options.max_val(), where)
                           : gradus::hardtanh(x, options.min_val(), options.max_val(), where);
}
using ThresholdFuncOptions = ThresholdOptions;
inline Tensor threshold(const Tensor& x, const ThresholdFuncOptions& options, Loc where = Loc::current()) {
  return options.inplace() ? gradus::threshold_(x, options.threshold(), options.value(), where)
                           : gradus::threshold(x, options.threshold(), options.value(), where);
}
using GLUFuncOptions = GLUOptions;
inline Tensor glu(const Tensor& x, const GLUFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::glu(x, options.dim(), where);
}
struct SoftmaxFuncOptions {
  SoftmaxFuncOptions(int64_t dim) : dim_(dim) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, dim);
  /// If set, x is converted to this type first.
  GRADUS_ARG(std::optional<DType>, dtype) = absent<DType>();
};
inline Tensor softmax(const Tensor& x, const SoftmaxFuncOptions& options, Loc where = Loc::current()) {
  return gradus::softmax(x, options.dim(), options.dtype(), where);
}
using SoftminFuncOptions = SoftmaxFuncOptions;
inline Tensor softmin(const Tensor& x, const SoftminFuncOptions& options, Loc where = Loc::current()) {
  return gradus::softmin(options.dtype() ? x.to(*options.dtype()) : x, options.dim(), where);
}
using LogSoftmaxFuncOptions = SoftmaxFuncOptions;
inline Tensor log_softmax(const Tensor& x, const LogSoftmaxFuncOptions& options, Loc where = Loc::current()) {
  return gradus::log_softmax(x, options.dim(), options.dtype(), where);
}
struct RReLUFuncOptions {
  GRADUS_ARG(double, lower) = 1.0 / 8;
  GRADUS_ARG(double, upper) = 1.0 / 3;
  GRADUS_ARG(bool, training) = false;
  GRADUS_ARG(bool, inplace) = false;
};
inline Tensor rrelu(const Tensor& x, const RReLUFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::rrelu_(x, options.lower(), options.upper(), options.training(), where)
                           : gradus::rrelu(x, options.lower(), options.upper(), options.training(), where);
}
inline Tensor sigmoid(const Tensor& x, Loc where = Loc::current()) { return gradus::sigmoid(x, where); }
inline Tensor tanh(const Tensor& x, Loc where = Loc::current()) { return gradus::tanh(x, where); }
inline Tensor silu(const Tensor& x, Loc where = Loc::current()) { return gradus::silu(x, where); }
inline Tensor mish(const Tensor& x, Loc where = Loc::current()) { return gradus::mish(x, where); }
inline Tensor softsign(const Tensor& x, Loc where = Loc::current()) { return gradus::softsign(x, where); }
inline Tensor tanhshrink(const Tensor& x, Loc where = Loc::current()) { return gradus::tanhshrink(x, where); }
inline Tensor logsigmoid(const Tensor& x, Loc where = Loc::current()) { return gradus::log_sigmoid(x, where); }
inline Tensor hardsigmoid(const Tensor& x, Loc where = Loc::current()) { return gradus::hardsigmoid(x, where); }
inline Tensor hardswish(const Tensor& x, Loc where = Loc::current()) { return gradus::hardswish(x, where); }
inline Tensor prelu(const Tensor& x, const Tensor& weight, Loc where = Loc::current()) {
  return gradus::prelu(x, weight, where);
}

// ---- Linear layers and convolutions ----

inline Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Loc where = Loc::current()) {
  return gradus::linear(x, weight, bias, where);
}
inline Tensor one_hot(const Tensor& x, int64_t num_classes = -1, Loc where = Loc::current()) {
  return gradus::one_hot(x, num_classes, where);
}

/// The fields of EmbeddingOptions that apply to the function.
struct EmbeddingFuncOptions {
  GRADUS_ARG(std::optional<int64_t>, padding_idx) = absent<int64_t>();
  GRADUS_ARG(std::optional<double>, max_norm) = absent<double>();
  GRADUS_ARG(double, norm_type) = 2;
  GRADUS_ARG(bool, scale_grad_by_freq) = false;
  GRADUS_ARG(bool, sparse) = false;
};
inline Tensor embedding(const Tensor& indices, const Tensor& weight, const EmbeddingFuncOptions& options = {},
                        Loc where = Loc::current()) {
  const OpContext context("embedding", where);
  const int64_t padding = nn::detail::padding_row(options.padding_idx(), weight.size(0));
  if (options.max_norm()) embedding_renorm_(weight, indices, *options.max_norm(), options.norm_type(), where);
  return gradus::embedding(weight, indices, padding, options.scale_grad_by_freq(), options.sparse(), where);
}

/// Size is int64_t for sequences and Pair for images.
template <class Size>
struct ConvFuncOptions {
  GRADUS_ARG(Tensor, bias) = {};
  GRADUS_ARG(Size, stride) = 1;
  GRADUS_ARG(ConvPadding<Size>, padding) = 0;
  GRADUS_ARG(Size, dilation) = 1;
  GRADUS_ARG(int64_t, groups) = 1;
};
using Conv1dFuncOptions = ConvFuncOptions<int64_t>;
using Conv2dFuncOptions = ConvFuncOptions<Pair>;
inline Tensor conv1d(const Tensor& x, const Tensor& weight, const Conv1dFuncOptions& options = {},
                     Loc where = Loc::current()) {
  if (options.padding().name)
    return gradus::conv1d(x, weight, options.bias(), options.stride(), *options.padding().name, options.dilation(),
                          options.groups(), where);
  return gradus::conv1d(x, weight, options.bias(), options.stride(), options.padding().size, options.dilation(),
                        options.groups(), where);
}
inline Tensor conv2d(const Tensor& x, const Tensor& weight, const Conv2dFuncOptions& options = {},
                     Loc where = Loc::current()) {
  if (options.padding().name)
    return gradus::conv2d(x, weight, options.bias(), options.stride(), *options.padding().name, options.dilation(),
                          options.groups(), where);
  return gradus::conv2d(x, weight, options.bias(), options.stride(), options.padding().size, options.dilation(),
                        options.groups(), where);
}

template <class Size>
struct ConvTransposeFuncOptions {
  GRADUS_ARG(Tensor, bias) = {};
  GRADUS_ARG(Size, stride) = 1;
  GRADUS_ARG(Size, padding) = 0;
  GRADUS_ARG(Size, output_padding) = 0;
  GRADUS_ARG(int64_t, groups) = 1;
  GRADUS_ARG(Size, dilation) = 1;
};
using ConvTranspose1dFuncOptions = ConvTransposeFuncOptions<int64_t>;
using ConvTranspose2dFuncOptions = ConvTransposeFuncOptions<Pair>;
inline Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const ConvTranspose1dFuncOptions& options = {},
                               Loc where = Loc::current()) {
  return gradus::conv_transpose1d(x, weight, options.bias(), options.stride(), options.padding(),
                                  options.output_padding(), options.groups(), options.dilation(), where);
}
inline Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const ConvTranspose2dFuncOptions& options = {},
                               Loc where = Loc::current()) {
  return gradus::conv_transpose2d(x, weight, options.bias(), options.stride(), options.padding(),
                                  options.output_padding(), options.groups(), options.dilation(), where);
}

using UnfoldFuncOptions = UnfoldOptions;
inline Tensor unfold(const Tensor& x, const UnfoldFuncOptions& options, Loc where = Loc::current()) {
  return gradus::unfold(x, options.kernel_size(), options.dilation(), options.padding(), options.stride(), where);
}
using FoldFuncOptions = FoldOptions;
inline Tensor fold(const Tensor& x, const FoldFuncOptions& options, Loc where = Loc::current()) {
  return gradus::fold(x, options.output_size(), options.kernel_size(), options.dilation(), options.padding(),
                      options.stride(), where);
}

// ---- Pooling ----

using MaxPool1dFuncOptions = MaxPool1dOptions;
inline Tensor max_pool1d(const Tensor& x, const MaxPool1dFuncOptions& options, Loc where = Loc::current()) {
  return gradus::max_pool1d(x, options.kernel_size(), options.stride(), options.padding(), options.dilation(),
                            options.ceil_mode(), where);
}
using AdaptiveAvgPool1dFuncOptions = AdaptiveAvgPool1dOptions;
inline Tensor adaptive_avg_pool1d(const Tensor& x, const AdaptiveAvgPool1dFuncOptions& options,
                                  Loc where = Loc::current()) {
  return gradus::adaptive_avg_pool1d(x, options.output_size(), where);
}
using AdaptiveMaxPool1dFuncOptions = AdaptiveMaxPool1dOptions;
inline Tensor adaptive_max_pool1d(const Tensor& x, const AdaptiveMaxPool1dFuncOptions& options,
                                  Loc where = Loc::current()) {
  return gradus::adaptive_max_pool1d(x, options.output_size(), where);
}
using MaxPool2dFuncOptions = MaxPool2dOptions;
inline Tensor max_pool2d(const Tensor& x, const MaxPool2dFuncOptions& options, Loc where = Loc::current()) {
  return gradus::max_pool2d(x, options.kernel_size(), options.stride(), options.padding(), options.dilation(),
                            options.ceil_mode(), where);
}
inline std::tuple<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const MaxPool1dFuncOptions& options,
                                                          Loc where = Loc::current()) {
  return gradus::max_pool1d_with_indices(x, options.kernel_size(), options.stride(), options.padding(),
                                         options.dilation(), options.ceil_mode(), where);
}
inline std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const MaxPool2dFuncOptions& options,
                                                          Loc where = Loc::current()) {
  return gradus::max_pool2d_with_indices(x, options.kernel_size(), options.stride(), options.padding(),
                                         options.dilation(), options.ceil_mode(), where);
}
using AdaptiveAvgPool2dFuncOptions = AdaptiveAvgPool2dOptions;
inline Tensor adaptive_avg_pool2d(const Tensor& x, const AdaptiveAvgPool2dFuncOptions& options,
                                  Loc where = Loc::current()) {
  return gradus::adaptive_avg_pool2d(x, options.output_size(), where);
}
using AdaptiveMaxPool2dFuncOptions = AdaptiveMaxPool2dOptions;
inline Tensor adaptive_max_pool2d(const Tensor& x, const AdaptiveMaxPool2dFuncOptions& options,
                                  Loc where = Loc::current()) {
  return gradus::adaptive_max_pool2d(x, options.output_size(), where);
}
using AvgPool1dFuncOptions = AvgPool1dOptions;
inline Tensor avg_pool1d(const Tensor& x, const AvgPool1dFuncOptions& options, Loc where = Loc::current()) {
  return gradus::avg_pool1d(x, options.kernel_size(), options.stride(), options.padding(), options.ceil_mode(),
                            options.count_include_pad(), where);
}
using AvgPool2dFuncOptions = AvgPool2dOptions;
inline Tensor avg_pool2d(const Tensor& x, const AvgPool2dFuncOptions& options, Loc where = Loc::current()) {
  return gradus::avg_pool2d(x, options.kernel_size(), options.stride(), options.padding(), options.ceil_mode(),
                            options.count_include_pad(), options.divisor_override(), where);
}

// ---- Dropout ----

struct DropoutFuncOptions {
  GRADUS_ARG(double, p) = 0.5;
  GRADUS_ARG(bool, training) = true;
  GRADUS_ARG(bool, inplace) = false;
};
using Dropout2dFuncOptions = DropoutFuncOptions;
inline Tensor dropout(const Tensor& x, const DropoutFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::dropout_(x, options.p(), options.training(), where)
                           : gradus::dropout(x, options.p(), options.training(), where);
}
inline Tensor dropout2d(const Tensor& x, const Dropout2dFuncOptions& options = {}, Loc where = Loc::current()) {
  const Tensor y = gradus::dropout2d(x, options.p(), options.training(), where);
  return options.inplace() && options.training() ? x.copy_(y, false, where) : y;
}
struct AlphaDropoutFuncOptions {
  GRADUS_ARG(double, p) = 0.5;
  GRADUS_ARG(bool, training) = false;
  GRADUS_ARG(bool, inplace) = false;
};
using FeatureAlphaDropoutFuncOptions = AlphaDropoutFuncOptions;
inline Tensor alpha_dropout(const Tensor& x, const AlphaDropoutFuncOptions& options = {}, Loc where = Loc::current()) {
  return options.inplace() ? gradus::alpha_dropout_(x, options.p(), options.training(), where)
                           : gradus::alpha_dropout(x, options.p(), options.training(), where);
}
inline Tensor feature_alpha_dropout(const Tensor& x, const FeatureAlphaDropoutFuncOptions& options = {},
                                    Loc where = Loc::current()) {
  return options.inplace() ? gradus::feature_alpha_dropout_(x, options.p(), options.training(), where)
                           : gradus::feature_alpha_dropout(x, options.p(), options.training(), where);
}

// ---- Normalisation ----

struct BatchNormFuncOptions {
  GRADUS_ARG(Tensor, weight) = {};
  GRADUS_ARG(Tensor, bias) = {};
  GRADUS_ARG(bool, training) = false;
  GRADUS_ARG(std::optional<double>, momentum) = 0.1;
  GRADUS_ARG(double, eps) = 1e-5;
};
inline Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                         const BatchNormFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::batch_norm(x, running_mean, running_var, options.weight(), options.bias(), options.training(),
                            options.momentum().value_or(0), options.eps(), {}, where);
}
struct InstanceNormFuncOptions {
  GRADUS_ARG(Tensor, running_mean) = {};
  GRADUS_ARG(Tensor, running_var) = {};
  GRADUS_ARG(Tensor, weight) = {};
  GRADUS_ARG(Tensor, bias) = {};
  GRADUS_ARG(bool, use_input_stats) = true;
  GRADUS_ARG(double, momentum) = 0.1;
  GRADUS_ARG(double, eps) = 1e-5;
};
inline Tensor instance_norm(const Tensor& x, const InstanceNormFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::instance_norm(x, options.running_mean(), options.running_var(), options.weight(), options.bias(),
                               options.use_input_stats(), options.momentum(), options.eps(), {}, where);
}
struct LayerNormFuncOptions {
  LayerNormFuncOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(std::vector<int64_t>, normalized_shape);
  GRADUS_ARG(Tensor, weight) = {};
  GRADUS_ARG(Tensor, bias) = {};
  GRADUS_ARG(double, eps) = 1e-5;
};
inline Tensor layer_norm(const Tensor& x, const LayerNormFuncOptions& options, Loc where = Loc::current()) {
  return gradus::layer_norm(x, options.normalized_shape(), options.weight(), options.bias(), options.eps(), where);
}
struct GroupNormFuncOptions {
  GroupNormFuncOptions(int64_t num_groups) : num_groups_(num_groups) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(int64_t, num_groups);
  GRADUS_ARG(Tensor, weight) = {};
  GRADUS_ARG(Tensor, bias) = {};
  GRADUS_ARG(double, eps) = 1e-5;
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

// ---- Padding and resizing ----

struct PadFuncOptions {
  PadFuncOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(std::vector<int64_t>, pad);
  GRADUS_ARG(PadMode, mode) = kConstant;
  GRADUS_ARG(double, value) = 0;
};
inline Tensor pad(const Tensor& x, const PadFuncOptions& options, Loc where = Loc::current()) {
  return gradus::pad(x, options.pad(), options.mode(), options.value(), where);
}
struct InterpolateFuncOptions {
  GRADUS_ARG(std::optional<std::vector<int64_t>>, size);
  GRADUS_ARG(std::optional<std::vector<double>>, scale_factor);
  GRADUS_ARG(UpsampleMode, mode) = kNearest;
  GRADUS_ARG(std::optional<bool>, align_corners) = absent<bool>();
  GRADUS_ARG(std::optional<bool>, recompute_scale_factor) = absent<bool>();
};
inline Tensor interpolate(const Tensor& x, const InterpolateFuncOptions& options = {}, Loc where = Loc::current()) {
  std::optional<IntArrayRef> size;
  if (options.size()) size = *options.size();
  return gradus::interpolate(x, size, options.scale_factor(), options.mode().mode, options.align_corners(),
                             options.recompute_scale_factor(), where);
}
using PixelShuffleFuncOptions = PixelShuffleOptions;
inline Tensor pixel_shuffle(const Tensor& x, const PixelShuffleFuncOptions& options, Loc where = Loc::current()) {
  return gradus::pixel_shuffle(x, options.upscale_factor(), where);
}
using PixelUnshuffleFuncOptions = PixelUnshuffleOptions;
inline Tensor pixel_unshuffle(const Tensor& x, const PixelUnshuffleFuncOptions& options, Loc where = Loc::current()) {
  return gradus::pixel_unshuffle(x, options.downscale_factor(), where);
}

// ---- Distances and losses ----

using CosineSimilarityFuncOptions = CosineSimilarityOptions;
inline Tensor cosine_similarity(const Tensor& a, const Tensor& b, const CosineSimilarityFuncOptions& options = {},
                                Loc where = Loc::current()) {
  return gradus::cosine_similarity(a, b, options.dim(), options.eps(), where);
}
using PairwiseDistanceFuncOptions = PairwiseDistanceOptions;
inline Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceFuncOptions& options = {},
                                Loc where = Loc::current()) {
  return gradus::pairwise_distance(a, b, options.p(), options.eps(), options.keepdim(), where);
}
using MSELossFuncOptions = MSELossOptions;
inline Tensor mse_loss(const Tensor& x, const Tensor& target, const MSELossFuncOptions& options = {},
                       Loc where = Loc::current()) {
  return gradus::mse_loss(x, target, options.reduction(), where);
}
using L1LossFuncOptions = L1LossOptions;
inline Tensor l1_loss(const Tensor& x, const Tensor& target, const L1LossFuncOptions& options = {},
                      Loc where = Loc::current()) {
  return gradus::l1_loss(x, target, options.reduction(), where);
}
using SmoothL1LossFuncOptions = SmoothL1LossOptions;
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const SmoothL1LossFuncOptions& options = {},
                             Loc where = Loc::current()) {
  return gradus::smooth_l1_loss(x, target, options.reduction(), options.beta(), where);
}
using HuberLossFuncOptions = HuberLossOptions;
inline Tensor huber_loss(const Tensor& x, const Tensor& target, const HuberLossFuncOptions& options = {},
                         Loc where = Loc::current()) {
  return gradus::huber_loss(x, target, options.reduction(), options.delta(), where);
}
using PoissonNLLLossFuncOptions = PoissonNLLLossOptions;
inline Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, const PoissonNLLLossFuncOptions& options = {},
                               Loc where = Loc::current()) {
  return gradus::poisson_nll_loss(x, target, options.log_input(), options.full(), options.eps(), options.reduction(),
                                  where);
}
using BinaryCrossEntropyFuncOptions = BCELossOptions;
inline Tensor binary_cross_entropy(const Tensor& x, const Tensor& target,
                                   const BinaryCrossEntropyFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::binary_cross_entropy(x, target, options.weight(), options.reduction(), where);
}
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;
inline Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                               const BinaryCrossEntropyWithLogitsFuncOptions& options = {},
                                               Loc where = Loc::current()) {
  return gradus::binary_cross_entropy_with_logits(x, target, options.weight(), options.pos_weight(),
                                                  options.reduction(), where);
}
using KLDivFuncOptions = KLDivLossOptions;
inline Tensor kl_div(const Tensor& x, const Tensor& target, const KLDivFuncOptions& options = {},
                     Loc where = Loc::current()) {
  return gradus::kl_div(x, target, options.reduction(), options.log_target(), where);
}
using SoftMarginLossFuncOptions = SoftMarginLossOptions;
inline Tensor soft_margin_loss(const Tensor& x, const Tensor& target, const SoftMarginLossFuncOptions& options = {},
                               Loc where = Loc::current()) {
  return gradus::soft_margin_loss(x, target, options.reduction(), where);
}
using MultilabelSoftMarginLossFuncOptions = MultiLabelSoftMarginLossOptions;
inline Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target,
                                          const MultilabelSoftMarginLossFuncOptions& options = {},
                                          Loc where = Loc::current()) {
  return gradus::multilabel_soft_margin_loss(x, target, options.weight(), options.reduction(), where);
}
using HingeEmbeddingLossFuncOptions = HingeEmbeddingLossOptions;
inline Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target,
                                   const HingeEmbeddingLossFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::hinge_embedding_loss(x, target, options.margin(), options.reduction(), where);
}
using MarginRankingLossFuncOptions = MarginRankingLossOptions;
inline Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                                  const MarginRankingLossFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::margin_ranking_loss(x1, x2, target, options.margin(), options.reduction(), where);
}
using TripletMarginLossFuncOptions = TripletMarginLossOptions;
inline Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                  const TripletMarginLossFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::triplet_margin_loss(anchor, positive, negative, options.margin(), options.p(), options.eps(),
                                     options.swap(), options.reduction(), where);
}
using CosineEmbeddingLossFuncOptions = CosineEmbeddingLossOptions;
inline Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                                    const CosineEmbeddingLossFuncOptions& options = {}, Loc where = Loc::current()) {
  return gradus::cosine_embedding_loss(x1, x2, target, options.margin(), options.reduction(), where);
}
using MultiMarginLossFuncOptions = MultiMarginLossOptions;
inline Tensor multi_margin_loss(const Tensor& x, const Tensor& target, const MultiMarginLossFuncOptions& options = {},
                                Loc where = Loc::current()) {
  return gradus::multi_margin_loss(x, target, options.p(), options.margin(), options.weight(), options.reduction(),
                                   where);
}
using NLLLossFuncOptions = NLLLossOptions;
inline Tensor nll_loss(const Tensor& x, const Tensor& target, const NLLLossFuncOptions& options = {},
                       Loc where = Loc::current()) {
  return gradus::nll_loss(x, target, options.weight(), options.reduction(), options.ignore_index(), where);
}
using CrossEntropyFuncOptions = CrossEntropyLossOptions;
inline Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyFuncOptions& options = {},
                            Loc where = Loc::current()) {
  return gradus::cross_entropy(x, target, options.weight(), options.reduction(), options.ignore_index(),
                               options.label_smoothing(), where);
}

}  // namespace gradus::nn::functional
