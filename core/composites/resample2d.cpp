// Average pooling and interpolation as products with matrices.
#include <gradus/core/composites/arithmetic.h>

#include <algorithm>
#include <limits>

#include <gradus/core/runtime/runtime.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

// Multiplies by the stencils as dense matrices, which are built on the host. Every element of x takes part in every
// product, and 0 times infinity is NaN. So infinities and NaN are replaced by 0, and further products count in which
// windows they occur.
void Backend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  if (y.numel() == 0) return;
  const Arithmetic math(*this);
  const DType wide = wide_type(x.dtype);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  using Entry = double (*)(double weight);

  // The dense matrix (in, out) with entry(weight) for each of the stencil's weights, on x's device.
  const auto dense = [&](const Stencil& stencil, Entry entry) {
    const Array host = Array::empty({stencil.size_in, stencil.size_out}, DType::f64);
    double* entries = host.data<double>();
    std::fill_n(entries, host.numel(), 0.0);
    for (size_t p = 0; p < static_cast<size_t>(stencil.size_out); ++p)
      for (auto k = static_cast<size_t>(stencil.begin[p]); k < static_cast<size_t>(stencil.begin[p + 1]); ++k)
        entries[stencil.source[k] * stencil.size_out + static_cast<int64_t>(p)] += entry(stencil.weight[k]);
    if (x.device.is_cpu()) return math.cast(host, wide);
    const Array here = Array::empty(host.shape(), DType::f64, x.device);
    runtime(x.device.type()).copy(here.data(), x.device, host.data(), Device(), host.nbytes(), /*non_blocking=*/false);
    return math.cast(here, wide);
  };
  // values (N, C, A, in) times that matrix; the result is (N, C, A, out).
  const auto product = [&](const View& values, const Stencil& stencil, Entry entry) {
    const Shape lead = {values.shape[0], values.shape[1]};
    const Array matrix = dense(stencil, entry);
    Array sums = Array::empty({lead[0], lead[1], values.shape[2], stencil.size_out}, wide, x.device);
    matmul(values, expanded(matrix, {lead[0], lead[1], stencil.size_in, stencil.size_out}), sums, /*accumulate=*/false);
    return sums;
  };
  const auto resampled = [&](const View& values, const Stencil& stencil) {
    const Array nothing = math.scalar(0, wide, x.device);
    const auto marked = [&](const Array& condition) { return math.cast(condition, wide); };
    const Array up = marked(math(eq, values, infinity)), down = marked(math(eq, values, -infinity));
    const Array nan = marked(math(UnaryOp::isnan, values));
    const Array finite = Array::empty(values.shape, wide, x.device);
    math.where(math(UnaryOp::isfinite, values), values, nothing, finite);

    // How often +inf, -inf and NaN occur in each window. A negative weight changes the sign of an infinity; a zero
    // weight turns it into NaN.
    constexpr Entry positive = [](double weight) { return weight > 0 ? 1.0 : 0.0; };
    Array ups = product(up, stencil, positive), downs = product(down, stencil, positive);
    Array nans = product(nan, stencil, [](double) { return 1.0; });
    if (std::any_of(stencil.weight.begin(), stencil.weight.end(), [](double weight) { return weight <= 0; })) {
      constexpr Entry negative = [](double weight) { return weight < 0 ? 1.0 : 0.0; };
      ups = math(add, ups, product(down, stencil, negative));
      downs = math(add, downs, product(up, stencil, negative));
      nans =
          math(add, nans, product(math(add, up, down), stencil, [](double weight) { return weight == 0 ? 1.0 : 0.0; }));
    }
    Array sums = product(finite, stencil, [](double weight) { return weight; });
    const auto add_where_met = [&](const Array& count, double value) {
      const Array part = Array::empty(sums.shape(), wide, x.device);
      math.where(math(gt, count, 0), math.scalar(value, wide, x.device), nothing, part);
      sums = math(add, sums, part);
    };
    add_where_met(ups, infinity);
    add_where_met(downs, -infinity);
    add_where_met(nans, std::numeric_limits<double>::quiet_NaN());
    return sums;
  };
  const Array by_columns = resampled(math.widen(x), columns);
  copy(resampled(by_columns.transpose(2, 3), rows).transpose(2, 3), y);
}

}  // namespace gradus
