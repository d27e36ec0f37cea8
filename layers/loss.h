// Losses as modules. Formulas and broadcasting rules are in autograd/ops/losses.h and loss.h. The reduction is kMean,
// kSum or kNone.
#pragma once

#include <gradus/autograd/ops/losses.h>
#include <gradus/core/options.h>
#include <gradus/layers/module/module.h>

namespace gradus {

/// LibTorch's names for the reduction of a loss over a batch.
inline constexpr Reduction kNone = Reduction::none, kMean = Reduction::mean, kSum = Reduction::sum;

namespace nn {

struct MSELossOptions {
  MSELossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(Reduction, reduction);
};
/// (x - target)².
struct MSELossImpl : detail::PlainLayer<MSELossImpl, MSELossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(MSELoss);

struct L1LossOptions {
  L1LossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(Reduction, reduction);
};
/// |x - target|.
struct L1LossImpl : detail::PlainLayer<L1LossImpl, L1LossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(L1Loss);

struct SmoothL1LossOptions {
  SmoothL1LossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(Reduction, reduction);
  GRADUS_ARG(double, beta) = 1;
};
/// With d = |x - target|: d² / (2 beta) where d < beta, else d - beta / 2.
struct SmoothL1LossImpl : detail::PlainLayer<SmoothL1LossImpl, SmoothL1LossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(SmoothL1Loss);

struct HuberLossOptions {
  HuberLossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(Reduction, reduction);
  GRADUS_ARG(double, delta) = 1;
};
/// d² / 2 where d = |x - target| <= delta, else delta (d - delta / 2).
struct HuberLossImpl : detail::PlainLayer<HuberLossImpl, HuberLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(HuberLoss);

struct PoissonNLLLossOptions {
  GRADUS_ARG(bool, log_input) = true;
  GRADUS_ARG(bool, full) = false;
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(Reduction, reduction) = kMean;
};
/// exp(x) - target x, or x - target log(x + eps) without log_input. full adds Stirling's approximation of log(target!).
struct PoissonNLLLossImpl : detail::PlainLayer<PoissonNLLLossImpl, PoissonNLLLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(PoissonNLLLoss);

struct BCELossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(Reduction, reduction) = kMean;
};
/// -weight (target log x + (1 - target) log(1 - x)) for probabilities x.
struct BCELossImpl : detail::PlainLayer<BCELossImpl, BCELossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(BCELoss);

struct BCEWithLogitsLossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(Reduction, reduction) = kMean;
  GRADUS_ARG(Tensor, pos_weight);
};
/// BCELoss of sigmoid(x), computed without overflow for large x. pos_weight multiplies the term with target.
struct BCEWithLogitsLossImpl : detail::PlainLayer<BCEWithLogitsLossImpl, BCEWithLogitsLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(BCEWithLogitsLoss);

struct KLDivLossOptions {
  KLDivLossOptions(KLDivReduction reduction = kMean) : reduction_(reduction) {}  // NOLINT(google-explicit-constructor)
  KLDivLossOptions(Reduction reduction) : reduction_(reduction) {}               // NOLINT(google-explicit-constructor)
  KLDivLossOptions(BatchMean reduction) : reduction_(reduction) {}               // NOLINT(google-explicit-constructor)
  GRADUS_ARG(KLDivReduction, reduction);
  GRADUS_ARG(bool, log_target) = false;
};
/// target (log target - x) for log-probabilities x. With log_target, target already is a logarithm.
struct KLDivLossImpl : detail::PlainLayer<KLDivLossImpl, KLDivLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(KLDivLoss);

struct SoftMarginLossOptions {
  SoftMarginLossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT(google-explicit-constructor)
  GRADUS_ARG(Reduction, reduction);
};
/// log(1 + exp(-target x)), where target is 1 or -1.
struct SoftMarginLossImpl : detail::PlainLayer<SoftMarginLossImpl, SoftMarginLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(SoftMarginLoss);

struct MultiLabelSoftMarginLossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(Reduction, reduction) = kMean;
};
/// Mean over the classes of weight times BCEWithLogitsLoss, for x (…, C).
struct MultiLabelSoftMarginLossImpl
    : detail::PlainLayer<MultiLabelSoftMarginLossImpl, MultiLabelSoftMarginLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(MultiLabelSoftMarginLoss);

struct HingeEmbeddingLossOptions {
  GRADUS_ARG(double, margin) = 1;
  GRADUS_ARG(Reduction, reduction) = kMean;
};
/// x where target is 1, max(0, margin - x) where it is -1.
struct HingeEmbeddingLossImpl : detail::PlainLayer<HingeEmbeddingLossImpl, HingeEmbeddingLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(HingeEmbeddingLoss);

struct MarginRankingLossOptions {
  GRADUS_ARG(double, margin) = 0;
  GRADUS_ARG(Reduction, reduction) = kMean;
};
/// max(0, -target (x1 - x2) + margin).
struct MarginRankingLossImpl : detail::PlainLayer<MarginRankingLossImpl, MarginRankingLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x1, const Tensor& x2, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(MarginRankingLoss);

struct TripletMarginLossOptions {
  GRADUS_ARG(double, margin) = 1;
  GRADUS_ARG(double, p) = 2;
  GRADUS_ARG(double, eps) = 1e-6;
  GRADUS_ARG(bool, swap) = false;
  GRADUS_ARG(Reduction, reduction) = kMean;
};
/// max(0, |anchor - positive| - |anchor - negative| + margin) with the p-norm. swap uses the smaller of the distances
/// from the negative to anchor and to positive.
struct TripletMarginLossImpl : detail::PlainLayer<TripletMarginLossImpl, TripletMarginLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(TripletMarginLoss);

struct CosineEmbeddingLossOptions {
  GRADUS_ARG(double, margin) = 0;
  GRADUS_ARG(Reduction, reduction) = kMean;
};
/// 1 - cos(x1, x2) where target is 1, max(0, cos(x1, x2) - margin) where it is -1.
struct CosineEmbeddingLossImpl : detail::PlainLayer<CosineEmbeddingLossImpl, CosineEmbeddingLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x1, const Tensor& x2, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(CosineEmbeddingLoss);

struct MultiMarginLossOptions {
  GRADUS_ARG(int64_t, p) = 1;
  GRADUS_ARG(double, margin) = 1;
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(Reduction, reduction) = kMean;
};
/// Mean over the classes i that are not target of weight[target] max(0, margin - x[target] + x[i])^p.
struct MultiMarginLossImpl : detail::PlainLayer<MultiMarginLossImpl, MultiMarginLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(MultiMarginLoss);

struct NLLLossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(int64_t, ignore_index) = -100;
  GRADUS_ARG(Reduction, reduction) = kMean;
};
/// -x[target] for log-probabilities x (N, C, …) and int64 classes target (N, …). Targets equal to ignore_index are
/// skipped; weight (C), if set, weights the classes.
struct NLLLossImpl : detail::PlainLayer<NLLLossImpl, NLLLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(NLLLoss);

struct CrossEntropyLossOptions {
  GRADUS_ARG(Tensor, weight);
  GRADUS_ARG(int64_t, ignore_index) = -100;
  GRADUS_ARG(Reduction, reduction) = kMean;
  GRADUS_ARG(double, label_smoothing) = 0;
};
/// NLLLoss of log_softmax(x). target may also contain class probabilities in x's shape. With label_smoothing e, the
/// target class has probability 1 - e + e / C and every other class e / C.
struct CrossEntropyLossImpl : detail::PlainLayer<CrossEntropyLossImpl, CrossEntropyLossOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& x, const Tensor& target);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(CrossEntropyLoss);

}  // namespace nn
}  // namespace gradus
