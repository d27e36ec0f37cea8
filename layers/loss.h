// Losses, and distances and similarities of vectors: options, functions of nn::functional, and layers. The comment of a
// layer has the formula for one element or sample. The option `reduction` (kMean, kSum or kNone) says how the losses of
// all elements or samples are combined.
#pragma once

#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/autograd/ops/nn/loss.h>
#include <gradus/layers/layer.h>

namespace gradus {

/// LibTorch's names for the reduction of a loss over a batch.
inline constexpr Reduction kNone = Reduction::none, kMean = Reduction::mean, kSum = Reduction::sum;

namespace nn {

// ---- Options of layers. Functions use the same structs, under names that end in FuncOptions. ----

struct CosineSimilarityOptions {
  void print(detail::LayerPrinter& printer) const { printer("dim", dim_)("eps", eps_); }
  GRADUS_ARG(int64_t, dim) = 1;
  GRADUS_ARG(double, eps) = 1e-8;
};

struct PairwiseDistanceOptions {
  void print(detail::LayerPrinter& printer) const { printer("p", p_)("eps", eps_)("keepdim", keepdim_); }
  GRADUS_ARG(double, p) = 2;
  GRADUS_ARG(double, eps) = 1e-6;
  GRADUS_ARG(bool, keepdim) = false;
};

struct MSELossOptions {
  MSELossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(Reduction, reduction);
};
using L1LossOptions = MSELossOptions;
using SoftMarginLossOptions = MSELossOptions;

struct SmoothL1LossOptions {
  SmoothL1LossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(Reduction, reduction);
  GRADUS_ARG(double, beta) = 1;
};

struct HuberLossOptions {
  HuberLossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(Reduction, reduction);
  GRADUS_ARG(double, delta) = 1;
};

struct PoissonNLLLossOptions {
  GRADUS_ARG(bool, log_input) = true;
  GRADUS_ARG(bool, full) = false;
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(Reduction, reduction) = kMean;
};

struct BCELossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(Reduction, reduction) = kMean;
};
using MultiLabelSoftMarginLossOptions = BCELossOptions;

struct BCEWithLogitsLossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(Reduction, reduction) = kMean;
  GRADUS_ARG(Tensor, pos_weight);
};

struct KLDivLossOptions {
  KLDivLossOptions(KLDivReduction reduction = kMean) : reduction_(reduction) {}  // NOLINT(google-explicit-constructor)
  KLDivLossOptions(Reduction reduction) : reduction_(reduction) {}               // NOLINT(google-explicit-constructor)
  KLDivLossOptions(BatchMean reduction) : reduction_(reduction) {}               // NOLINT(google-explicit-constructor)
  GRADUS_ARG(KLDivReduction, reduction);
  GRADUS_ARG(bool, log_target) = false;
};

struct HingeEmbeddingLossOptions {
  void print(detail::LayerPrinter& printer) const { printer("margin", margin_); }
  GRADUS_ARG(double, margin) = 1;
  GRADUS_ARG(Reduction, reduction) = kMean;
};

struct MarginRankingLossOptions {
  GRADUS_ARG(double, margin) = 0;
  GRADUS_ARG(Reduction, reduction) = kMean;
};

struct TripletMarginLossOptions {
  void print(detail::LayerPrinter& printer) const { printer("margin", margin_)("p", p_)("eps", eps_)("swap", swap_); }
  GRADUS_ARG(double, margin) = 1;
  GRADUS_ARG(double, p) = 2;
  GRADUS_ARG(double, eps) = 1e-6;
  GRADUS_ARG(bool, swap) = false;
  GRADUS_ARG(Reduction, reduction) = kMean;
};

struct CosineEmbeddingLossOptions {
  void print(detail::LayerPrinter& printer) const { printer("margin", margin_); }
  GRADUS_ARG(double, margin) = 0;
  GRADUS_ARG(Reduction, reduction) = kMean;
};

struct MultiMarginLossOptions {
  void print(detail::LayerPrinter& printer) const { printer("p", p_)("margin", margin_); }
  GRADUS_ARG(int64_t, p) = 1;
  GRADUS_ARG(double, margin) = 1;
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(Reduction, reduction) = kMean;
};

struct NLLLossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(int64_t, ignore_index) = -100;
  GRADUS_ARG(Reduction, reduction) = kMean;
};

struct CrossEntropyLossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(int64_t, ignore_index) = -100;
  GRADUS_ARG(Reduction, reduction) = kMean;
  GRADUS_ARG(double, label_smoothing) = 0;
};

// ---- Functions ----

namespace functional {

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

}  // namespace functional

// ---- Layers ----

/// y = a · b / (max(|a|, eps) max(|b|, eps)) along `dim`.
GRADUS_LAYER(CosineSimilarity, FunctionLayer, functional::cosine_similarity);

/// y = the p-norm of a - b + eps along the last dimension.
GRADUS_LAYER(PairwiseDistance, FunctionLayer, functional::pairwise_distance);

/// loss = (x - target)².
GRADUS_LAYER(MSELoss, FunctionLayer, functional::mse_loss);

/// loss = |x - target|.
GRADUS_LAYER(L1Loss, FunctionLayer, functional::l1_loss);

/// With d = |x - target|: loss = d² / (2 beta) where d < beta, else d - beta / 2.
GRADUS_LAYER(SmoothL1Loss, FunctionLayer, functional::smooth_l1_loss);

/// With d = |x - target|: loss = d² / 2 where d <= delta, else delta (d - delta / 2).
GRADUS_LAYER(HuberLoss, FunctionLayer, functional::huber_loss);

/// loss = exp(x) - target x with log_input, else x - target log(x + eps). The option `full` adds Stirling's
/// approximation of log(target!).
GRADUS_LAYER(PoissonNLLLoss, FunctionLayer, functional::poisson_nll_loss);

/// loss = -weight (target log x + (1 - target) log(1 - x)) for probabilities x.
GRADUS_LAYER(BCELoss, FunctionLayer, functional::binary_cross_entropy);

/// The BCELoss of sigmoid(x), computed without overflow for large x. pos_weight multiplies the term target
/// log(sigmoid(x)).
GRADUS_LAYER(BCEWithLogitsLoss, FunctionLayer, functional::binary_cross_entropy_with_logits);

/// loss = target (log target - x) for log-probabilities x. With log_target, target contains logarithms of probabilities
/// too.
GRADUS_LAYER(KLDivLoss, FunctionLayer, functional::kl_div);

/// loss = log(1 + exp(-target x)), where target is 1 or -1.
GRADUS_LAYER(SoftMarginLoss, FunctionLayer, functional::soft_margin_loss);

/// loss = mean over the C classes of weight times BCEWithLogitsLoss, for x (…, C).
GRADUS_LAYER(MultiLabelSoftMarginLoss, FunctionLayer, functional::multilabel_soft_margin_loss);

/// loss = x where target is 1, max(0, margin - x) where target is -1.
GRADUS_LAYER(HingeEmbeddingLoss, FunctionLayer, functional::hinge_embedding_loss);

/// loss = max(0, -target (x1 - x2) + margin), where target is 1 or -1.
GRADUS_LAYER(MarginRankingLoss, FunctionLayer, functional::margin_ranking_loss);

/// loss = max(0, |anchor - positive| - |anchor - negative| + margin) with the p-norm. With swap, |positive - negative|
/// replaces |anchor - negative| where it is smaller.
GRADUS_LAYER(TripletMarginLoss, FunctionLayer, functional::triplet_margin_loss);

/// loss = 1 - cos(x1, x2) where target is 1, max(0, cos(x1, x2) - margin) where target is -1.
GRADUS_LAYER(CosineEmbeddingLoss, FunctionLayer, functional::cosine_embedding_loss);

/// loss = weight[target] max(0, margin - x[target] + x[i])^p, summed over all classes i except target and divided by
/// the number of classes.
GRADUS_LAYER(MultiMarginLoss, FunctionLayer, functional::multi_margin_loss);

/// loss = -x[target] for log-probabilities x (N, C, …) and int64 classes target (N, …). Targets equal to ignore_index
/// are skipped. If weight (C) is set, each loss is multiplied by weight[target].
GRADUS_LAYER(NLLLoss, FunctionLayer, functional::nll_loss);

/// The NLLLoss of log_softmax(x). target may also contain class probabilities in x's shape. With label_smoothing e, the
/// target class has probability 1 - e + e / C and every other class e / C.
GRADUS_LAYER(CrossEntropyLoss, FunctionLayer, functional::cross_entropy);

}  // namespace nn
}  // namespace gradus
