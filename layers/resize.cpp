#include <gradus/layers/resize.h>

#include <gradus/layers/module/layer_printer.h>

namespace gradus::nn {

template <class Derived, class Options, PadMode kMode>
Tensor detail::PadLayer<Derived, Options, kMode>::forward(const Tensor& x) {
  const auto frame = this->enter();
  double value = 0;
  if constexpr (requires { this->options.value(); }) value = this->options.value();
  return pad(x, this->options.padding().sizes, kMode, value);
}

template <class Derived, class Options, PadMode kMode>
void detail::PadLayer<Derived, Options, kMode>::pretty_print(std::ostream& stream) const {
  LayerPrinter printer(stream, Derived::kName);
  printer("padding", this->options.padding().sizes);
  if constexpr (requires { this->options.value(); }) printer("value", this->options.value());
}

template struct detail::PadLayer<ConstantPad1dImpl, ConstantPad1dOptions, PadMode::constant>;
template struct detail::PadLayer<ConstantPad2dImpl, ConstantPad2dOptions, PadMode::constant>;
template struct detail::PadLayer<ZeroPad2dImpl, ZeroPad2dOptions, PadMode::constant>;
template struct detail::PadLayer<ReflectionPad1dImpl, ReflectionPad1dOptions, PadMode::reflect>;
template struct detail::PadLayer<ReflectionPad2dImpl, ReflectionPad2dOptions, PadMode::reflect>;
template struct detail::PadLayer<ReplicationPad1dImpl, ReplicationPad1dOptions, PadMode::replicate>;
template struct detail::PadLayer<ReplicationPad2dImpl, ReplicationPad2dOptions, PadMode::replicate>;

Tensor UpsampleImpl::forward(const Tensor& x) {
  const auto frame = enter();
  std::optional<IntArrayRef> size;
  if (options.size()) size = *options.size();
  return interpolate(x, size, options.scale_factor(), options.mode().mode, options.align_corners());
}
void UpsampleImpl::pretty_print(std::ostream& stream) const {
  const char* modes[] = {"kNearest", "kLinear", "kBilinear", "kBicubic", "kArea", "kNearestExact"};
  detail::LayerPrinter printer(stream, "Upsample");
  if (options.scale_factor()) printer("scale_factor", *options.scale_factor());
  else if (options.size()) printer("size", *options.size());
  printer("mode", modes[static_cast<int>(options.mode().mode)]);
}

Tensor PixelShuffleImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return pixel_shuffle(x, options.upscale_factor());
}
void PixelShuffleImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "PixelShuffle")("upscale_factor", options.upscale_factor());
}

Tensor PixelUnshuffleImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return pixel_unshuffle(x, options.downscale_factor());
}
void PixelUnshuffleImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "PixelUnshuffle")("downscale_factor", options.downscale_factor());
}

Tensor UnfoldImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return unfold(x, options.kernel_size(), options.dilation(), options.padding(), options.stride());
}
void UnfoldImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "Unfold")("kernel_size", options.kernel_size())("dilation", options.dilation())(
      "padding", options.padding())("stride", options.stride());
}

Tensor FoldImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return fold(x, options.output_size(), options.kernel_size(), options.dilation(), options.padding(), options.stride());
}
void FoldImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "Fold")("output_size", options.output_size())("kernel_size", options.kernel_size())(
      "dilation", options.dilation())("padding", options.padding())("stride", options.stride());
}

}  // namespace gradus::nn
