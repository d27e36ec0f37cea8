#include <gradus/layers/functional_layer.h>

#include <ostream>

namespace gradus::nn {

Tensor FunctionalImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return function_(x);
}

void FunctionalImpl::pretty_print(std::ostream& stream) const { stream << "gradus::nn::Functional()"; }

}  // namespace gradus::nn
