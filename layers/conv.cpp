#include <gradus/layers/conv.h>

#include <algorithm>

#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>

namespace gradus::nn {

namespace {

/// Converts a size of one or two dimensions to a list.
Dims dims_of(int64_t size) { return {size}; }
Dims dims_of(Pair size) { return {size.h, size.w}; }
Dims padding_of(const Conv1dOptions& options) { return {options.padding().w}; }
Dims padding_of(const Conv2dOptions& options) { return dims_of(options.padding()); }
template <size_t D>
Dims padding_of(const ConvTransposeOptions<D>& options) {
  return dims_of(options.padding());
}
int64_t size_from(const Dims& dims, int64_t) { return dims[0]; }
Pair size_from(const Dims& dims, Pair) { return {dims[0], dims[1]}; }

bool all_are(const Dims& dims, int64_t value) { return dims == Dims::filled(dims.size(), value); }

template <class Options>
constexpr bool is_transposed = requires(const Options& options) {
  options.output_padding();
};

constexpr const char* kModeNames[] = {"kZeros", "kReflect", "kReplicate", "kCircular"};  // indexed by PadMode

}  // namespace

namespace detail {

template <class Options>
void ConvBase<Options>::register_tensors() {
  const int64_t in = options.in_channels(), out = options.out_channels(), groups = options.groups();
  GRADUS_CHECK(in > 0 && out > 0, ValueError, "convolution from ", in, " to ", out, " channels");
  GRADUS_CHECK(groups > 0 && in % groups == 0 && out % groups == 0, ValueError, in, " input and ", out,
               " output channels must both be divisible by groups = ", groups);
  Shape shape = dims_of(options.kernel_size());
  for (int64_t size : shape) GRADUS_CHECK(size > 0, ValueError, "kernel_size must be positive, got ", shape);
  if constexpr (!is_transposed<Options>)
    for (int64_t stride : dims_of(options.stride()))
      GRADUS_CHECK(stride == 1 || !options.padding().is_same(), ValueError, "padding 'same' needs stride 1, got ",
                   stride);
  shape.insert(0, is_transposed<Options> ? out / groups : in / groups);
  shape.insert(0, is_transposed<Options> ? in : out);
  weight = register_parameter("weight", empty(shape));
  bias = register_parameter("bias", options.bias() ? empty({out}) : Tensor());
  reset_parameters();
}

template <size_t D>
Tensor padded(const Tensor& x, const ConvOptions<D>& options) {
  const Dims kernel = dims_of(options.kernel_size()), dilation = dims_of(options.dilation());
  const Dims padding = padding_of(options);
  Dims sides;  // padding at the start and at the end of each dimension, beginning with the last dimension
  for (int i = kernel.size() - 1; i >= 0; --i) {
    const int64_t total = options.padding().is_same() ? dilation[i] * (kernel[i] - 1) : 2 * padding[i];
    sides.push_back(total / 2);
    sides.push_back(total - total / 2);
  }
  return pad(x, sides, options.padding_mode());
}

template <size_t D>
ConvSize<D> output_padding_for(const ConvTransposeOptions<D>& options, const Tensor& x,
                               const std::optional<IntArrayRef>& output_size) {
  if (!output_size) return options.output_padding();
  const IntArrayRef& wanted = *output_size;
  const Dims kernel = dims_of(options.kernel_size()), stride = dims_of(options.stride());
  const Dims padding = padding_of(options), dilation = dims_of(options.dilation());
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

template <class Options>
void ConvBase<Options>::print(std::ostream& stream, const std::string& name) const {
  LayerPrinter printer(stream, name);
  printer.value(options.in_channels()).value(options.out_channels());
  printer("kernel_size", options.kernel_size())("stride", options.stride());
  const Dims padding = padding_of(options);
  const char* padding_name = nullptr;
  if constexpr (!is_transposed<Options>)
    if (options.padding().name) padding_name = options.padding().is_same() ? "'same'" : "'valid'";
  if (padding_name) printer("padding", padding_name);
  else printer("padding", size_from(padding, options.stride()), !all_are(padding, 0));
  printer("dilation", options.dilation(), !all_are(dims_of(options.dilation()), 1));
  if constexpr (is_transposed<Options>)
    printer("output_padding", options.output_padding(), !all_are(dims_of(options.output_padding()), 0));
  printer("groups", options.groups(), options.groups() != 1)("bias", false, !options.bias());
  if constexpr (!is_transposed<Options>)
    printer("padding_mode", kModeNames[static_cast<int>(options.padding_mode())], options.padding_mode() != kZeros);
}

template struct ConvBase<Conv1dOptions>;
template struct ConvBase<Conv2dOptions>;
template struct ConvBase<ConvTranspose1dOptions>;
template struct ConvBase<ConvTranspose2dOptions>;

template Tensor padded(const Tensor&, const Conv1dOptions&);
template Tensor padded(const Tensor&, const Conv2dOptions&);
template ConvSize<1> output_padding_for(const ConvTranspose1dOptions&, const Tensor&,
                                        const std::optional<IntArrayRef>&);
template ConvSize<2> output_padding_for(const ConvTranspose2dOptions&, const Tensor&,
                                        const std::optional<IntArrayRef>&);

}  // namespace detail
}  // namespace gradus::nn
