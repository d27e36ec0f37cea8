#include <gradus/layers/pool.h>

#include <gradus/layers/module/layer_printer.h>

namespace gradus::nn {

namespace {

template <class Options>
void print_max_pool(std::ostream& stream, const char* name, const Options& options) {
  detail::LayerPrinter(stream, name)("kernel_size", options.kernel_size())("stride", options.stride())(
      "padding", options.padding())("dilation", options.dilation())("ceil_mode", options.ceil_mode());
}

template <class Options>
void print_avg_pool(std::ostream& stream, const char* name, const Options& options) {
  detail::LayerPrinter(stream, name)("kernel_size", options.kernel_size())("stride", options.stride())(
      "padding", options.padding());
}

void print_adaptive(std::ostream& stream, const char* name, int64_t size) {
  detail::LayerPrinter(stream, name)("output_size", size);
}
void print_adaptive(std::ostream& stream, const char* name, const OutputSize& size) {
  auto text = [](const std::optional<int64_t>& n) { return n ? std::to_string(*n) : std::string("None"); };
  detail::LayerPrinter(stream, name)("output_size", std::vector<std::string>{text(size.h), text(size.w)});
}

}  // namespace

Tensor MaxPool1dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return max_pool1d(x, options.kernel_size(), options.stride(), options.padding(), options.dilation(),
                    options.ceil_mode());
}
std::tuple<Tensor, Tensor> MaxPool1dImpl::forward_with_indices(const Tensor& x) {
  const auto frame = enter();
  return max_pool1d_with_indices(x, options.kernel_size(), options.stride(), options.padding(), options.dilation(),
                                 options.ceil_mode());
}
void MaxPool1dImpl::pretty_print(std::ostream& stream) const { print_max_pool(stream, "MaxPool1d", options); }

Tensor MaxPool2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return max_pool2d(x, options.kernel_size(), options.stride(), options.padding(), options.dilation(),
                    options.ceil_mode());
}
std::tuple<Tensor, Tensor> MaxPool2dImpl::forward_with_indices(const Tensor& x) {
  const auto frame = enter();
  return max_pool2d_with_indices(x, options.kernel_size(), options.stride(), options.padding(), options.dilation(),
                                 options.ceil_mode());
}
void MaxPool2dImpl::pretty_print(std::ostream& stream) const { print_max_pool(stream, "MaxPool2d", options); }

Tensor AvgPool1dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return avg_pool1d(x, options.kernel_size(), options.stride(), options.padding(), options.ceil_mode(),
                    options.count_include_pad());
}
void AvgPool1dImpl::pretty_print(std::ostream& stream) const { print_avg_pool(stream, "AvgPool1d", options); }

Tensor AvgPool2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return avg_pool2d(x, options.kernel_size(), options.stride(), options.padding(), options.ceil_mode(),
                    options.count_include_pad(), options.divisor_override());
}
void AvgPool2dImpl::pretty_print(std::ostream& stream) const { print_avg_pool(stream, "AvgPool2d", options); }

Tensor AdaptiveAvgPool1dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return adaptive_avg_pool1d(x, options.output_size());
}
void AdaptiveAvgPool1dImpl::pretty_print(std::ostream& stream) const {
  print_adaptive(stream, "AdaptiveAvgPool1d", options.output_size());
}

Tensor AdaptiveAvgPool2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return adaptive_avg_pool2d(x, options.output_size());
}
void AdaptiveAvgPool2dImpl::pretty_print(std::ostream& stream) const {
  print_adaptive(stream, "AdaptiveAvgPool2d", options.output_size());
}

Tensor AdaptiveMaxPool1dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return adaptive_max_pool1d(x, options.output_size());
}
void AdaptiveMaxPool1dImpl::pretty_print(std::ostream& stream) const {
  print_adaptive(stream, "AdaptiveMaxPool1d", options.output_size());
}

Tensor AdaptiveMaxPool2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return adaptive_max_pool2d(x, options.output_size());
}
void AdaptiveMaxPool2dImpl::pretty_print(std::ostream& stream) const {
  print_adaptive(stream, "AdaptiveMaxPool2d", options.output_size());
}

}  // namespace gradus::nn
