#include <gradus/layers/resize.h>

#include <gradus/layers/layer_printer.h>

namespace gradus::nn {

Tensor ConstantPad1dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return pad(x, options.padding().sizes, kConstant, options.value());
}
void ConstantPad1dImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "ConstantPad1d")("padding", options.padding().sizes)("value", options.value());
}

Tensor ConstantPad2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return pad(x, options.padding().sizes, kConstant, options.value());
}
void ConstantPad2dImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "ConstantPad2d")("padding", options.padding().sizes)("value", options.value());
}

Tensor ZeroPad2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return pad(x, options.padding().sizes, kConstant);
}
void ZeroPad2dImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "ZeroPad2d")("padding", options.padding().sizes);
}

Tensor ReflectionPad1dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return pad(x, options.padding().sizes, kReflect);
}
void ReflectionPad1dImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "ReflectionPad1d")("padding", options.padding().sizes);
}

Tensor ReflectionPad2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return pad(x, options.padding().sizes, kReflect);
}
void ReflectionPad2dImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "ReflectionPad2d")("padding", options.padding().sizes);
}

Tensor ReplicationPad1dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return pad(x, options.padding().sizes, kReplicate);
}
void ReplicationPad1dImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "ReplicationPad1d")("padding", options.padding().sizes);
}

Tensor ReplicationPad2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  return pad(x, options.padding().sizes, kReplicate);
}
void ReplicationPad2dImpl::pretty_print(std::ostream& stream) const {
  detail::LayerPrinter(stream, "ReplicationPad2d")("padding", options.padding().sizes);
}

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
