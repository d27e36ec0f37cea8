#include <gradus/tests/compare.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <gradus/core/registry.h>

namespace gradus::test {
namespace {

double scale_of(const std::vector<double>& expected) {
  double largest = 1e-3;
  for (double value : expected)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return largest;
}

double distance(double actual, double expected) {
  if (actual == expected || (std::isnan(actual) && std::isnan(expected))) return 0;
  const double size = std::abs(actual - expected);
  return std::isnan(size) ? INFINITY : size;
}

std::vector<std::byte> bytes(const Array& x) {
  const Array host = x.device().is_cpu() ? x : copy_to(x, {}), dense = Array::empty(x.shape(), x.dtype());
  backend("naive").copy(host, dense);
  const auto* data = static_cast<const std::byte*>(dense.data());
  return {data, data + dense.nbytes()};
}

size_t worst_element(const std::vector<double>& actual, const std::vector<double>& expected) {
  size_t worst = 0;
  for (size_t i = 1; i < expected.size(); ++i)
    if (distance(actual[i], expected[i]) > distance(actual[worst], expected[worst])) worst = i;
  return worst;
}

}  // namespace

double error(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  if (expected.empty()) return 0;
  const size_t worst = worst_element(actual, expected);
  return distance(actual[worst], expected[worst]) / scale_of(expected);
}

double error(const Array& actual, const Array& expected) {
  if (actual.shape() != expected.shape()) return INFINITY;
  const double size = error(values(actual), values(expected));
  if (size > 0 || actual.dtype() != DType::i64 || expected.dtype() != DType::i64) return size;
  return bytes(actual) == bytes(expected) ? 0 : 0x1p-53;  // int64 has more digits than double
}

double error(const Tensor& actual, const Tensor& expected) { return error(actual.array(), expected.array()); }

std::string difference(const Tensor& actual, const Tensor& expected, double tolerance) {
  if (!(actual.sizes() == expected.sizes()))
    return "shape " + to_string(actual.sizes()) + " instead of " + to_string(expected.sizes());
  const double size = error(actual, expected);
  if (size <= tolerance) return "";
  const std::vector<double> a = values(actual.array()), e = values(expected.array());
  const size_t worst = worst_element(a, e);
  return "element " + std::to_string(worst) + " is " + std::to_string(a[worst]) + " instead of " +
         std::to_string(e[worst]) + ": an error of " + std::to_string(size) + ", not " + std::to_string(tolerance);
}

Array copy_to(const Array& x, Device device) {
  const Storage storage = Storage::allocate(x.storage().bytes(), device);
  // The runtime that knows both sides: the host's knows only itself.
  DeviceRuntime& copier = runtime(device.is_cpu() ? x.device().type() : device.type());
  if (storage.bytes()) copier.copy(storage.data(), device, x.storage().data(), x.device(), storage.bytes(), false);
  return Array(storage, x.offset(), x.shape(), x.strides(), x.dtype());
}

std::vector<double> values(const Array& x) {
  const Array host = x.device().is_cpu() ? x : copy_to(x, {});
  const Array dense = Array::empty(x.shape(), DType::f64);
  backend("naive").copy(host, dense);
  const double* data = dense.data<double>();
  return std::vector<double>(data, data + dense.numel());
}

}  // namespace gradus::test
