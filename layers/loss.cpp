#include <gradus/layers/loss.h>

#include <ostream>

#include <gradus/autograd/ops/loss.h>

namespace gradus::nn {

Tensor CrossEntropyLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return cross_entropy(x, target, options.weight(), options.reduction(), options.ignore_index());
}
void CrossEntropyLossImpl::pretty_print(std::ostream& stream) const { stream << "gradus::nn::CrossEntropyLoss()"; }

Tensor NLLLossImpl::forward(const Tensor& x, const Tensor& target) {
  const auto frame = enter();
  return nll_loss(x, target, options.weight(), options.reduction(), options.ignore_index());
}
void NLLLossImpl::pretty_print(std::ostream& stream) const { stream << "gradus::nn::NLLLoss()"; }

}  // namespace gradus::nn
