#include <gradus/layers/activation.h>

#include <ostream>

#include <gradus/autograd/ops/dropout.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/loss.h>

namespace gradus::nn {

Tensor ReLUImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? x.relu_() : relu(x);
}
void ReLUImpl::pretty_print(std::ostream& stream) const {
  stream << "gradus::nn::ReLU(" << (options.inplace() ? "inplace" : "") << ")";
}

Tensor SigmoidImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return sigmoid(x);
}
void SigmoidImpl::pretty_print(std::ostream& stream) const { stream << "gradus::nn::Sigmoid()"; }

Tensor TanhImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return tanh(x);
}
void TanhImpl::pretty_print(std::ostream& stream) const { stream << "gradus::nn::Tanh()"; }

Tensor SoftmaxImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return softmax(x, options.dim());
}
void SoftmaxImpl::pretty_print(std::ostream& stream) const {
  stream << "gradus::nn::Softmax(dim=" << options.dim() << ")";
}

Tensor LogSoftmaxImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return log_softmax(x, options.dim());
}
void LogSoftmaxImpl::pretty_print(std::ostream& stream) const {
  stream << "gradus::nn::LogSoftmax(dim=" << options.dim() << ")";
}

DropoutImpl::DropoutImpl(const DropoutOptions& options) : options(options) {
  GRADUS_CHECK(options.p() >= 0 && options.p() <= 1, ValueError, "dropout probability must be in [0, 1], got ",
               options.p());
}
Tensor DropoutImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return dropout(x, options.p(), is_training());
}
void DropoutImpl::pretty_print(std::ostream& stream) const {
  stream << "gradus::nn::Dropout(p=" << options.p() << ", inplace=false)";
}

}  // namespace gradus::nn
