#include <gradus/core/ops/ops.h>

#include <cmath>

#include <gradus/core/op_lists.h>

namespace gradus::ops {

using Wide = __int128;  // holds the sum or product of any two sizes

using enum BinaryOp;
namespace {

// Number of elements of the sequence first, first + by, first + 2 by, … up to but excluding `last`.
int64_t count_steps(double first, double last, double by) {
  GRADUS_CHECK(std::isfinite(first) && std::isfinite(last) && std::isfinite(by), ValueError,
               "bounds and step must be finite, got ", first, ", ", last, ", ", by);
  GRADUS_CHECK(by != 0, ValueError, "step must not be 0");
  GRADUS_CHECK((last - first) / by >= 0, ValueError, "step ", by, " does not lead from ", first, " to ", last);
  const double count = std::ceil((last - first) / by);
  GRADUS_CHECK(count < 0x1p62, ValueError, "range from ", first, " to ", last, " has too many elements");
  return static_cast<int64_t>(count);
}

// count_steps for integers: exact also where a double, with its 53 bits, is not.
int64_t count_whole(int64_t first, int64_t last, int64_t by) {
  GRADUS_CHECK(by != 0, ValueError, "step must not be 0");
  GRADUS_CHECK(first == last || (first < last) == (by > 0), ValueError, "step ", by, " does not lead from ", first,
               " to ", last);
  const auto magnitude = [](Wide x) { return x < 0 ? -x : x; };
  const Wide distance = magnitude(Wide(last) - first), length = magnitude(by);
  const Wide count = (distance + length - 1) / length;
  GRADUS_CHECK(count < Wide(1) << 62, ValueError, "range from ", first, " to ", last, " has too many elements");
  return static_cast<int64_t>(count);
}

}  // namespace

void check_fits(const Scalar& value, DType dtype) {
  const bool fits = visit(dtype, [&]<class T> { return value.fits<T>(); });
  if (value.is_floating()) GRADUS_CHECK(fits, ValueError, value.to_double(), " is outside the range of ", dtype);
  else GRADUS_CHECK(fits, ValueError, value.to_int64(), " is outside the range of ", dtype);
}

void fill(const Array& into, const Scalar& value) {
  check_fits(value, into.dtype());
  into.bump_version();
  if (into.numel() > 0) backend_of(into).fill(into, value);
}

Array full(const Shape& shape, const Scalar& value, DType dtype, Device device, MemoryFormat format) {
  check_fits(value, dtype);
  Array y = Array::empty(shape, dtype, device, format);
  if (y.numel() > 0) backend_of(y).fill(y, value);
  return y;
}

Array arange(const Scalar& start, const Scalar& end, const Scalar& step, DType dtype, Device device) {
  const bool integers = !start.is_floating() && !end.is_floating() && !step.is_floating();
  if (is_integral(dtype))
    for (const Scalar& number : {start, end, step}) check_fits(number, DType::i64);
  int64_t count = 0;
  if (dtype == DType::i64 || (integers && is_integral(dtype))) {
    count = count_whole(start.to_int64(), end.to_int64(), step.to_int64());
  } else {
    count = count_steps(start.to_double(), end.to_double(), step.to_double());
    GRADUS_CHECK(!is_integral(dtype) || step.to_int64() != 0, ValueError, "step must not be 0, but ", step.to_double(),
                 " is 0 in ", dtype);
  }
  Array y = Array::empty({count}, dtype, device);
  if (y.numel() > 0) backend_of(y).arange(y, start, step);
  return y;
}

// linspace for integer types, truncated: first + i step for the first half, last - (steps - 1 - i) step for the second.
// Each operation is its own kernel, so that no backend contracts a product and a sum into one that rounds to another
// integer.
static Array whole_linspace(double first, double last, int64_t steps, DType dtype, Device device) {
  const double step = (last - first) / static_cast<double>(steps - 1);
  const Array numbers = Array::empty({steps}, DType::f64, device);
  const auto set = [&](int64_t from, int64_t to, double begin, int64_t distance) {
    const Array part = numbers.slice(0, from, to);
    backend_of(part).arange(part, static_cast<double>(distance), 1.0);
    binary_scalar(mul, part, step, false, &part);
    binary_scalar(add, part, begin, false, &part);
  };
  set(0, steps / 2, first, 0);
  set(steps / 2, steps, last, steps / 2 - (steps - 1));
  return cast(numbers, dtype);
}

Array linspace(double start, double end, int64_t steps, DType dtype, Device device) {
  GRADUS_CHECK(steps >= 0, ValueError, "number of steps must not be negative, got ", steps);
  if (is_integral(dtype)) start = std::trunc(start), end = std::trunc(end);
  Array y = Array::empty({steps}, dtype, device);
  if (steps == 0) return y;
  if (steps == 1) {
    fill(y, start);
    return y;
  }
  if (is_integral(dtype)) {
    check_fits(start, dtype), check_fits(end, dtype);
    return whole_linspace(start, end, steps, dtype, device);
  }
  backend_of(y).arange(y, start, (end - start) / static_cast<double>(steps - 1));
  fill(y.select(0, steps - 1), end);  // exactly `end`, however the step was rounded
  return y;
}

// Fills `into` with the next draw of the generator by one of the backend's random kernels.
template <class Kernel, class... Args>
static void draw(const Array& into, Generator& generator, Kernel kernel, Args... args) {
  const RandomState state = generator.next();
  into.bump_version();
  if (into.numel() > 0) (backend_of(into).*kernel)(into, state, args...);
}

void uniform(const Array& into, double low, double high, Generator& generator) {
  check_floating(into, "the result");
  GRADUS_CHECK(low <= high && std::isfinite(high - low), ValueError, "uniform needs low <= high, both finite, got ",
               low, " and ", high);
  draw(into, generator, &Backend::uniform, low, high);
}

void normal(const Array& into, double mean, double deviation, Generator& generator) {
  check_floating(into, "the result");
  GRADUS_CHECK(deviation >= 0, ValueError, "standard deviation must not be negative, got ", deviation);
  draw(into, generator, &Backend::normal, mean, deviation);
}

void bernoulli(const Array& into, double p, Generator& generator) {
  GRADUS_CHECK(p >= 0 && p <= 1, ValueError, "probability must be in [0, 1], got ", p);
  draw(into, generator, &Backend::bernoulli, p);
}

void randint(const Array& into, int64_t low, int64_t high, Generator& generator) {
  GRADUS_CHECK(low < high, ValueError, "randint needs low < high, got ", low, " and ", high);
  const DType dtype = into.dtype();
  const bool is_unsigned = dtype == DType::u8 || dtype == DType::boolean;
  GRADUS_CHECK(!is_unsigned || (low >= 0 && high <= (dtype == DType::u8 ? 256 : 2)), ValueError, "numbers from ", low,
               " to ", high - 1, " are outside the range of ", dtype);
  check_fits(low, dtype), check_fits(high - 1, dtype);
  draw(into, generator, &Backend::randint, low, high);
}

Array randperm(int64_t n, Device device, Generator& generator) {
  GRADUS_CHECK(n >= 0, ValueError, "length must not be negative, got ", n);
  const RandomState state = generator.next();
  Array y = Array::empty({n}, DType::i64, device);
  if (n > 0) backend_of(y).randperm(y, state);
  return y;
}

}  // namespace gradus::ops
