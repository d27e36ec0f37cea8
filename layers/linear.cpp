#include <gradus/layers/linear.h>

#include <ostream>
#include <utility>

#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/matmul.h>
#include <gradus/layers/module/init.h>

namespace gradus::nn {

LinearImpl::LinearImpl(const LinearOptions& options) : options(options) { LinearImpl::reset(); }

void LinearImpl::reset() {
  GRADUS_CHECK(options.in_features() >= 0 && options.out_features() >= 0, ValueError, "Linear from ",
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

void IdentityImpl::pretty_print(std::ostream& stream) const { stream << "gradus::nn::Identity()"; }

Tensor FlattenImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return x.flatten(options.start_dim(), options.end_dim());
}

void FlattenImpl::pretty_print(std::ostream& stream) const {
  stream << "gradus::nn::Flatten(start_dim=" << options.start_dim() << ", end_dim=" << options.end_dim() << ")";
}

Tensor UnflattenImpl::forward(const Tensor& x) {
  const auto frame = enter();
  Shape shape = x.sizes();
  const int dim = normalize_axis(options.dim(), shape.size());
  const Shape part = infer_shape(options.sizes(), shape[dim], Shape{shape[dim]});
  shape.erase(dim);
  for (int i = 0; i < part.size(); ++i) shape.insert(dim + i, part[i]);
  return x.view(shape);
}

void UnflattenImpl::pretty_print(std::ostream& stream) const {
  stream << "gradus::nn::Unflatten(dim=" << options.dim() << ", unflattened_size={";
  const char* separator = "";
  for (int64_t size : options.sizes()) stream << std::exchange(separator, ", ") << size;
  stream << "})";
}

}  // namespace gradus::nn
