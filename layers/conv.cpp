#include <gradus/layers/conv.h>

#include <ostream>

#include <gradus/autograd/ops/creation.h>
#include <gradus/layers/init.h>

namespace gradus::nn {

namespace detail {

void Conv2dBase::register_parameters() {
  const int64_t in = options.in_channels(), out = options.out_channels(), groups = options.groups();
  const Pair kernel = options.kernel_size();
  GRADUS_CHECK(in > 0 && out > 0, ValueError, "convolution from ", in, " to ", out, " channels");
  GRADUS_CHECK(groups > 0 && in % groups == 0 && out % groups == 0, ValueError, in, " input and ", out,
               " output channels must both be divisible by groups = ", groups);
  GRADUS_CHECK(kernel.h > 0 && kernel.w > 0, ValueError, "kernel_size must be positive, got ", kernel.h, " x ",
               kernel.w);
  weight = register_parameter("weight", empty({out, in / groups, kernel.h, kernel.w}));
  bias = register_parameter("bias", options.bias() ? empty({out}) : Tensor());
  reset_parameters();
}

void Conv2dBase::reset_parameters() { init::reset_weight_and_bias(weight, bias); }

void Conv2dBase::print(std::ostream& stream, const char* name) const {
  auto pair = [&](const char* label, Pair value) {
    stream << ", " << label << "=[" << value.h << ", " << value.w << "]";
  };
  const Pair padding = options.padding(), dilation = options.dilation();
  stream << name << "(" << options.in_channels() << ", " << options.out_channels();
  pair("kernel_size", options.kernel_size());
  pair("stride", options.stride());
  if (padding.h != 0 || padding.w != 0) pair("padding", padding);
  if (dilation.h != 1 || dilation.w != 1) pair("dilation", dilation);
  if (options.groups() != 1) stream << ", groups=" << options.groups();
  if (!options.bias()) stream << ", bias=false";
  stream << ")";
}

}  // namespace detail

Tensor Conv2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return conv2d(x, weight, bias, options.stride(), options.padding(), options.dilation(), options.groups());
}

Tensor ConvReLU2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return conv2d_relu(x, weight, bias, options.stride(), options.padding(), options.dilation(), options.groups());
}

}  // namespace gradus::nn
