#include <gradus/layers/linear.h>

#include <cmath>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/layers/module/init.h>

namespace gradus::nn {

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

void BilinearImpl::reset() {
  const int64_t in1 = options.in1_features(), in2 = options.in2_features(), out = options.out_features();
  GRADUS_CHECK(in1 > 0 && in2 > 0 && out > 0, ValueError, "Bilinear from ", in1, " and ", in2, " to ", out,
               " features");
  weight = register_parameter("weight", empty({out, in1, in2}));
  bias = register_parameter("bias", options.bias() ? empty({out}) : Tensor());
  reset_parameters();
}

void BilinearImpl::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(weight.size(1)));
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

Tensor BilinearImpl::forward(const Tensor& a, const Tensor& b) {
  const auto frame = enter();
  const OpScope op("bilinear", Loc{});
  const int64_t in1 = options.in1_features(), in2 = options.in2_features(), out = options.out_features();
  GRADUS_CHECK(a.dim() > 0 && b.dim() > 0 && a.size(-1) == in1 && b.size(-1) == in2, ShapeError, "inputs of shape (…, ",
               in1, ") and (…, ", in2, ") are needed, got ", a.sizes(), " and ", b.sizes());
  Shape lead = a.sizes(), other = b.sizes();
  lead.resize(lead.size() - 1);
  other.resize(other.size() - 1);
  GRADUS_CHECK(lead == other, ShapeError, "the inputs have different leading sizes: ", a.sizes(), " and ", b.sizes());
  const int64_t rows = numel_of(lead);
  lead.push_back(out);
  const auto product = [&](const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias) {
    const Tensor left = a.reshape({rows, in1}).matmul(weight.permute({1, 0, 2}).reshape({in1, out * in2}));
    const Tensor y = left.view({rows, out, in2}).matmul(b.reshape({rows, in2, 1})).squeeze(-1);  // (rows, out)
    return (bias.defined() ? y + bias : y).reshape(lead);
  };
  return composed(op, product, a, b, weight, bias);
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

void UnflattenOptions::print(detail::LayerPrinter& printer) const {
  const std::string list = detail::OptionText(sizes_).text;
  printer("dim", dim_)("unflattened_size", "{" + list.substr(1, list.size() - 2) + "}");
}

}  // namespace gradus::nn
