#include <gradus/data/transforms/transforms.h>

#include <cstring>

#include <gradus/core/io/array_bytes.h>

namespace gradus::data::transforms {

template class Normalize<>;
template class Stack<>;

}  // namespace gradus::data::transforms

namespace gradus::data::transforms::detail {

void check_normalize(const std::vector<double>& mean, const std::vector<double>& deviation) {
  GRADUS_CHECK(!mean.empty() && mean.size() == deviation.size(), ValueError,
               "Normalize needs as many means as deviations, got ", mean.size(), " and ", deviation.size());
  for (double value : deviation) GRADUS_CHECK(value > 0, ValueError, "Normalize needs deviations above 0, got ", value);
}

// Computes without operators: this runs for every sample, on threads that must leave the cores to the kernels.
Tensor normalize(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& deviation) {
  const Array x = io::contiguous_on_cpu(images.array());
  const size_t channels = mean.size();
  GRADUS_CHECK(x.dtype() == DType::f32, DTypeError, "Normalize needs float32 images, got ", x.dtype());
  GRADUS_CHECK(channels == 1 || (x.ndim() >= 3 && x.size(-3) == static_cast<int64_t>(channels)), ShapeError,
               "Normalize has ", channels, " means, got images of shape ", x.shape());
  const Array y = Array::empty(x.shape(), DType::f32);
  const int64_t plane = channels == 1 ? x.numel() : x.size(-1) * x.size(-2);
  const float* from = x.data<float>();
  float* to = y.data<float>();
  size_t c = 0;
  for (int64_t begin = 0; begin < x.numel(); begin += plane, c = (c + 1) % channels) {
    const float m = static_cast<float>(mean[c]), d = static_cast<float>(deviation[c]);
    for (int64_t i = begin; i < begin + plane; ++i) to[i] = (from[i] - m) / d;
  }
  return Tensor(y);
}

Tensor stack(const std::vector<const Tensor*>& tensors) {
  GRADUS_CHECK(!tensors.empty(), ShapeError, "Stack needs at least one example");
  const Array& first = tensors[0]->array();
  Shape shape = first.shape();
  shape.insert(0, static_cast<int64_t>(tensors.size()));
  const Array out = Array::empty(shape, first.dtype());
  char* to = static_cast<char*>(out.data());
  for (const Tensor* tensor : tensors) {
    GRADUS_CHECK(tensor->sizes() == first.shape(), ShapeError, "Stack needs examples of one shape, got ", first.shape(),
                 " and ", tensor->sizes());
    GRADUS_CHECK(tensor->dtype() == first.dtype(), DTypeError, "Stack needs examples of one dtype, got ", first.dtype(),
                 " and ", tensor->dtype());
    const Array x = io::contiguous_on_cpu(tensor->array());
    if (x.nbytes() > 0) std::memcpy(to, x.data(), x.nbytes());
    to += x.nbytes();
  }
  return Tensor(out);
}

}  // namespace gradus::data::transforms::detail
