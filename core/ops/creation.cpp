#include <gradus/core/ops/creation.h>

#include <cmath>

namespace gradus::ops {

void fill(const Array& into, const Scalar& value) {
  into.bump_version();
  if (into.numel() > 0) backend_of(into).fill(into, value);
}

Array full(const Shape& shape, const Scalar& value, DType dtype, Device device, MemoryFormat format) {
  Array y = Array::empty(shape, dtype, device, format);
  if (y.numel() > 0) backend_of(y).fill(y, value);
  return y;
}

Array arange(const Scalar& start, const Scalar& end, const Scalar& step, DType dtype, Device device) {
  const double first = start.to_double(), last = end.to_double(), by = step.to_double();
  GRADUS_CHECK(std::isfinite(first) && std::isfinite(last) && std::isfinite(by), ValueError,
               "bounds and step must be finite, got ", first, ", ", last, ", ", by);
  GRADUS_CHECK(by != 0, ValueError, "step must not be 0");
  GRADUS_CHECK((last - first) / by >= 0, ValueError, "from ", first, " to ", last, " is not reached by step ", by);
  const double count = std::ceil((last - first) / by);
  GRADUS_CHECK(count < 0x1p62, ValueError, "range from ", first, " to ", last, " has too many elements");
  Array y = Array::empty({static_cast<int64_t>(count)}, dtype, device);
  if (y.numel() > 0) backend_of(y).arange(y, start, step);
  return y;
}

Array linspace(double start, double end, int64_t steps, DType dtype, Device device) {
  GRADUS_CHECK(steps >= 0, ValueError, "number of steps must not be negative, got ", steps);
  Array y = Array::empty({steps}, dtype, device);
  if (steps == 0) return y;
  if (steps == 1) {
    fill(y, start);
    return y;
  }
  backend_of(y).arange(y, start, (end - start) / static_cast<double>(steps - 1));
  fill(y.select(0, steps - 1), end);  // exactly the end, whatever the step was rounded to
  return y;
}

void uniform(const Array& into, double low, double high, Generator& generator) {
  check_floating(into, "the result");
  GRADUS_CHECK(low <= high && std::isfinite(high - low), ValueError, "uniform needs low <= high, both finite, got ",
               low, " and ", high);
  const RandomState state = generator.next();
  into.bump_version();
  if (into.numel() > 0) backend_of(into).uniform(into, state, low, high);
}

void normal(const Array& into, double mean, double deviation, Generator& generator) {
  check_floating(into, "the result");
  GRADUS_CHECK(deviation >= 0, ValueError, "standard deviation must not be negative, got ", deviation);
  const RandomState state = generator.next();
  into.bump_version();
  if (into.numel() > 0) backend_of(into).normal(into, state, mean, deviation);
}

void bernoulli(const Array& into, double p, Generator& generator) {
  GRADUS_CHECK(p >= 0 && p <= 1, ValueError, "probability must be in [0, 1], got ", p);
  const RandomState state = generator.next();
  into.bump_version();
  if (into.numel() > 0) backend_of(into).bernoulli(into, state, p);
}

void randint(const Array& into, int64_t low, int64_t high, Generator& generator) {
  GRADUS_CHECK(low < high, ValueError, "randint needs low < high, got ", low, " and ", high);
  const RandomState state = generator.next();
  into.bump_version();
  if (into.numel() > 0) backend_of(into).randint(into, state, low, high);
}

Array randperm(int64_t n, Device device, Generator& generator) {
  GRADUS_CHECK(n >= 0, ValueError, "length must not be negative, got ", n);
  const RandomState state = generator.next();
  Array y = Array::empty({n}, DType::i64, device);
  if (n > 0) backend_of(y).randperm(y, state);
  return y;
}

}  // namespace gradus::ops
