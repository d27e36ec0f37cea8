#include <gradus/layers/loss.h>

#include <gradus/autograd/ops/loss.h>
#include <gradus/layers/module/layer_printer.h>

namespace gradus::nn {

Tensor MSELossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return mse_loss(x, target, options.reduction());
}
void MSELossImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "MSELoss"); }

Tensor L1LossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return l1_loss(x, target, options.reduction());
}
void L1LossImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "L1Loss"); }

Tensor SmoothL1LossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return smooth_l1_loss(x, target, options.reduction(), options.beta());
}
void SmoothL1LossImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "SmoothL1Loss"); }

Tensor HuberLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return huber_loss(x, target, options.reduction(), options.delta());
}
void HuberLossImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "HuberLoss"); }

Tensor PoissonNLLLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return poisson_nll_loss(x, target, options.log_input(), options.full(), options.eps(), options.reduction());
}
void PoissonNLLLossImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "PoissonNLLLoss"); }

Tensor BCELossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return binary_cross_entropy(x, target, options.weight(), options.reduction());
}
void BCELossImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "BCELoss"); }

Tensor BCEWithLogitsLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return binary_cross_entropy_with_logits(x, target, options.weight(), options.pos_weight(), options.reduction());
}
void BCEWithLogitsLossImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "BCEWithLogitsLoss");
}

Tensor KLDivLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return kl_div(x, target, options.reduction(), options.log_target());
}
void KLDivLossImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "KLDivLoss"); }

Tensor SoftMarginLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return soft_margin_loss(x, target, options.reduction());
}
void SoftMarginLossImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "SoftMarginLoss"); }

Tensor MultiLabelSoftMarginLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return multilabel_soft_margin_loss(x, target, options.weight(), options.reduction());
}
void MultiLabelSoftMarginLossImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "MultiLabelSoftMarginLoss");
}

Tensor HingeEmbeddingLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return hinge_embedding_loss(x, target, options.margin(), options.reduction());
}
void HingeEmbeddingLossImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "HingeEmbeddingLoss")("margin", options.margin());
}

Tensor MarginRankingLossImpl::forward(const Tensor& x1, const Tensor& x2, const Tensor& target) {
  const auto frame = enter();
  return margin_ranking_loss(x1, x2, target, options.margin(), options.reduction());
}
void MarginRankingLossImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "MarginRankingLoss");
}

Tensor TripletMarginLossImpl::forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  const auto frame = enter();
  return triplet_margin_loss(anchor, positive, negative, options.margin(), options.p(), options.eps(), options.swap(),
                             options.reduction());
}
void TripletMarginLossImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "TripletMarginLoss")("margin", options.margin())("p", options.p())("eps", options.eps())(
      "swap", options.swap());
}

Tensor CosineEmbeddingLossImpl::forward(const Tensor& x1, const Tensor& x2, const Tensor& target) {
  const auto frame = enter();
  return cosine_embedding_loss(x1, x2, target, options.margin(), options.reduction());
}
void CosineEmbeddingLossImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "CosineEmbeddingLoss")("margin", options.margin());
}

Tensor MultiMarginLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return multi_margin_loss(x, target, options.p(), options.margin(), options.weight(), options.reduction());
}
void MultiMarginLossImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "MultiMarginLoss")("p", options.p())("margin", options.margin());
}

Tensor NLLLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return nll_loss(x, target, options.weight(), options.reduction(), options.ignore_index());
}
void NLLLossImpl::pretty_print(std::ostream& stream) const { detail::LayerPrinter(stream, "NLLLoss"); }

Tensor CrossEntropyLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return cross_entropy(x, target, options.weight(), options.reduction(), options.ignore_index(),
                       options.label_smoothing());
}
void CrossEntropyLossImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "CrossEntropyLoss");
}

}  // namespace gradus::nn
