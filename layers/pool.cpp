#include <gradus/layers/pool.h>

#include <ostream>

#include <gradus/autograd/ops/pool.h>

namespace gradus::nn {

Tensor MaxPool2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return max_pool2d(x, options.kernel_size(), options.stride(), options.padding(), options.dilation(),
                    options.ceil_mode());
}

void MaxPool2dImpl::pretty_print(std::ostream& stream) const {
  const char* separator = "gradus::nn::MaxPool2d(";
  auto pair = [&](const char* label, Pair value) {
    stream << separator << label << "=[" << value.h << ", " << value.w << "]";
    separator = ", ";
  };
  pair("kernel_size", options.kernel_size());
  pair("stride", options.stride());
  pair("padding", options.padding());
  pair("dilation", options.dilation());
  stream << ", ceil_mode=" << (options.ceil_mode() ? "true" : "false") << ")";
}

}  // namespace gradus::nn
