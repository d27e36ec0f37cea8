#include <gradus/layers/dropout.h>

#include <gradus/autograd/ops/dropout.h>
#include <gradus/layers/module/layer_printer.h>

namespace gradus::nn {

namespace {
void print(std::ostream& stream, const char* name, const DropoutOptions& options) {
  detail::LayerPrinter(stream, name)("p", options.p())("inplace", options.inplace());
}
}  // namespace

Tensor DropoutImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? dropout_(x, options.p(), is_training()) : dropout(x, options.p(), is_training());
}
void DropoutImpl::pretty_print(std::ostream& stream) const { print(stream, "Dropout", options); }

Tensor Dropout2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  const Tensor y = dropout2d(x, options.p(), is_training());
  return options.inplace() && is_training() ? x.copy_(y) : y;
}
void Dropout2dImpl::pretty_print(std::ostream& stream) const { print(stream, "Dropout2d", options); }

Tensor AlphaDropoutImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? alpha_dropout_(x, options.p(), is_training())
                           : alpha_dropout(x, options.p(), is_training());
}
void AlphaDropoutImpl::pretty_print(std::ostream& stream) const { print(stream, "AlphaDropout", options); }

Tensor FeatureAlphaDropoutImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return options.inplace() ? feature_alpha_dropout_(x, options.p(), is_training())
                           : feature_alpha_dropout(x, options.p(), is_training());
}
void FeatureAlphaDropoutImpl::pretty_print(std::ostream& stream) const {
  print(stream, "FeatureAlphaDropout", options);
}

}  // namespace gradus::nn
