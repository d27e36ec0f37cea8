#include <gradus/layers/linear.h>

#include <ostream>

#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/matmul.h>
#include <gradus/layers/init.h>

namespace gradus::nn {

LinearImpl::LinearImpl(const LinearOptions& options) : options(options) { LinearImpl::reset(); }

void LinearImpl::reset() {
  GRADUS_CHECK(options.in_features() >= 0 && options.out_features() > 0, ValueError, "Linear from ",
               options.in_features(), " to ", options.out_features(), " features");
  weight = register_parameter("weight", empty({options.out_features(), options.in_features()}));
  bias = register_parameter("bias", options.bias() ? empty({options.out_features()}) : Tensor());
  reset_parameters();
}

void LinearImpl::reset_parameters() { init::reset_weight_and_bias(weight, bias); }

Tensor LinearImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return linear(x, weight, bias);
}

void LinearImpl::pretty_print(std::ostream& stream) const {
  stream << "gradus::nn::Linear(in_features=" << options.in_features() << ", out_features=" << options.out_features()
         << ", bias=" << (options.bias() ? "true" : "false") << ")";
}

Tensor FlattenImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return x.flatten(options.start_dim(), options.end_dim());
}

void FlattenImpl::pretty_print(std::ostream& stream) const {
  stream << "gradus::nn::Flatten(start_dim=" << options.start_dim() << ", end_dim=" << options.end_dim() << ")";
}

}  // namespace gradus::nn
