#include <gradus/layers/conv.h>

#include <algorithm>

#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/layers/module/init.h>
#include <gradus/layers/module/layer_printer.h>

namespace gradus::nn {

namespace {

/// Converts a size of one or two dimensions to a list.
Dims dims_of(int64_t size) { return {size}; }
Dims dims_of(Pair size) { return {size.h, size.w}; }
int64_t size_from(const Dims& dims, int64_t) { return dims[0]; }
Pair size_from(const Dims& dims, Pair) { return {dims[0], dims[1]}; }

bool all_are(const Dims& dims, int64_t value) {
  return std::all_of(dims.begin(), dims.end(), [value](int64_t size) { return size == value; });
}

template <class Options>
constexpr bool is_transposed = requires(const Options& options) {
  options.output_padding();
};

/// Computes the output_padding for which the last sizes of a transposed convolution's result are `wanted`.
template <size_t D>
auto output_padding_for(const ConvTransposeOptions<D>& options, const Tensor& x, const IntArrayRef& wanted) {
  const Dims kernel = dims_of(options.kernel_size()), stride = dims_of(options.stride());
  const Dims padding = dims_of(options.padding()), dilation = dims_of(options.dilation());
  const int count = kernel.size();
  GRADUS_CHECK(wanted.size() >= count && x.dim() > count, ShapeError, "an output_size of ", count,
               " numbers is needed for x of shape ", x.sizes(), ", got ", wanted);
  Dims chosen;
  for (int i = 0; i < count; ++i) {
    const int64_t least = (x.size(i - count) - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[i] - 1) + 1;
    const int64_t size = wanted[wanted.size() - count + i], most = least + std::max(stride[i], dilation[i]) - 1;
    GRADUS_CHECK(size >= least && size <= most, ValueError, "output_size ", wanted, " is not between ", least, " and ",
                 most, " in dimension ", i, " for x of shape ", x.sizes());
    chosen.push_back(size - least);
  }
  return size_from(chosen, options.output_padding());
}

const char* mode_name(PadMode mode) {
  switch (mode) {
    case PadMode::constant: return "kZeros";
    case PadMode::reflect: return "kReflect";
    case PadMode::replicate: return "kReplicate";
    case PadMode::circular: return "kCircular";
  }
  return "?";
}

}  // namespace

namespace detail {

template <class Options>
void ConvBase<Options>::register_parameters() {
  const int64_t in = options.in_channels(), out = options.out_channels(), groups = options.groups();
  GRADUS_CHECK(in > 0 && out > 0, ValueError, "convolution from ", in, " to ", out, " channels");
  GRADUS_CHECK(groups > 0 && in % groups == 0 && out % groups == 0, ValueError, in, " input and ", out,
               " output channels must both be divisible by groups = ", groups);
  Shape shape = dims_of(options.kernel_size());
  for (int64_t size : shape) GRADUS_CHECK(size > 0, ValueError, "kernel_size must be positive, got ", shape);
  if constexpr (!is_transposed<Options>)
    for (int64_t stride : dims_of(options.stride()))
      GRADUS_CHECK(stride == 1 || options.padding().name != AutoPadding::same, ValueError,
                   "padding 'same' needs stride 1, got ", stride);
  shape.insert(0, is_transposed<Options> ? out / groups : in / groups);
  shape.insert(0, is_transposed<Options> ? in : out);
  weight = register_parameter("weight", empty(shape));
  bias = register_parameter("bias", options.bias() ? empty({out}) : Tensor());
  reset_parameters();
}

template <class Options>
void ConvBase<Options>::reset_parameters() {
  init::reset_weight_and_bias(weight, bias);
}

template <class Options>
Tensor ConvBase<Options>::padded(const Tensor& x) const {
  if constexpr (is_transposed<Options>) {
    return x;
  } else {
    const Dims kernel = dims_of(options.kernel_size()), dilation = dims_of(options.dilation());
    const Dims size = dims_of(options.padding().size);
    Dims sides;  // starting with the last dimension
    for (int i = kernel.size() - 1; i >= 0; --i) {
      const int64_t total = options.padding().name == AutoPadding::same ? dilation[i] * (kernel[i] - 1) : 2 * size[i];
      sides.push_back(total / 2);
      sides.push_back(total - total / 2);
    }
    return pad(x, sides, options.padding_mode());
  }
}

template <class Options>
void ConvBase<Options>::print(std::ostream& stream, const char* name) const {
  LayerPrinter printer(stream, name);
  printer.value(options.in_channels()).value(options.out_channels());
  printer("kernel_size", options.kernel_size())("stride", options.stride());
  if constexpr (is_transposed<Options>) {
    printer("padding", options.padding(), !all_are(dims_of(options.padding()), 0));
  } else {
    if (options.padding().name) printer("padding", *options.padding().name == AutoPadding::same ? "'same'" : "'valid'");
    else printer("padding", options.padding().size, !all_are(dims_of(options.padding().size), 0));
  }
  printer("dilation", options.dilation(), !all_are(dims_of(options.dilation()), 1));
  if constexpr (is_transposed<Options>)
    printer("output_padding", options.output_padding(), !all_are(dims_of(options.output_padding()), 0));
  printer("groups", options.groups(), options.groups() != 1)("bias", false, !options.bias());
  if constexpr (!is_transposed<Options>)
    printer("padding_mode", mode_name(options.padding_mode()), options.padding_mode() != kZeros);
}

template struct ConvBase<Conv1dOptions>;
template struct ConvBase<Conv2dOptions>;
template struct ConvBase<ConvTranspose1dOptions>;
template struct ConvBase<ConvTranspose2dOptions>;

}  // namespace detail

Tensor Conv1dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  const auto& padding = options.padding();
  if (options.padding_mode() != kZeros)
    return conv1d(padded(x), weight, bias, options.stride(), 0, options.dilation(), options.groups());
  if (padding.name)
    return conv1d(x, weight, bias, options.stride(), *padding.name, options.dilation(), options.groups());
  return conv1d(x, weight, bias, options.stride(), padding.size, options.dilation(), options.groups());
}

Tensor Conv2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  const auto& padding = options.padding();
  if (options.padding_mode() != kZeros)
    return conv2d(padded(x), weight, bias, options.stride(), 0, options.dilation(), options.groups());
  if (padding.name)
    return conv2d(x, weight, bias, options.stride(), *padding.name, options.dilation(), options.groups());
  return conv2d(x, weight, bias, options.stride(), padding.size, options.dilation(), options.groups());
}

Tensor ConvReLU2dImpl::forward(const Tensor& x) {
  const auto frame = enter();
  const auto& padding = options.padding();
  if (options.padding_mode() != kZeros)
    return conv2d_relu(padded(x), weight, bias, options.stride(), 0, options.dilation(), options.groups());
  if (padding.name)
    return relu(conv2d(x, weight, bias, options.stride(), *padding.name, options.dilation(), options.groups()));
  return conv2d_relu(x, weight, bias, options.stride(), padding.size, options.dilation(), options.groups());
}

Tensor ConvTranspose1dImpl::forward(const Tensor& x, const std::optional<IntArrayRef>& output_size) {
  const auto frame = enter();
  const int64_t extra = output_size ? output_padding_for(options, x, *output_size) : options.output_padding();
  return conv_transpose1d(x, weight, bias, options.stride(), options.padding(), extra, options.groups(),
                          options.dilation());
}

Tensor ConvTranspose2dImpl::forward(const Tensor& x, const std::optional<IntArrayRef>& output_size) {
  const auto frame = enter();
  const Pair extra = output_size ? output_padding_for(options, x, *output_size) : options.output_padding();
  return conv_transpose2d(x, weight, bias, options.stride(), options.padding(), extra, options.groups(),
                          options.dilation());
}

}  // namespace gradus::nn
