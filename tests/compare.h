// How tests compare numbers: one table of tolerances and one measure of the error.
#pragma once

#include <string>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::test {

/// Largest errors of a result by its element type, relative to its largest element. The defaults are the table of all
/// tests: what a short computation in that type may be off.
struct Tolerance {
  double f64 = 1e-12, f32 = 1e-5, f16 = 4e-3, bf16 = 2e-2;
  /// 0 for integers and booleans.
  constexpr double of(DType dtype) const {
    switch (dtype) {
      case DType::f64: return f64;
      case DType::f32: return f32;
      case DType::f16: return f16;
      case DType::bf16: return bf16;
      default: return 0;
    }
  }
};
/// The table's.
constexpr double tolerance_of(DType dtype) { return Tolerance().of(dtype); }

/// The largest |actual - expected|, relative to the largest finite |expected| (to 1/1000 where that is less, so that
/// zeros have errors too). Infinity if the sizes differ, or if NaNs and infinities are not the same in the same places.
double error(const std::vector<double>& actual, const std::vector<double>& expected);
/// Of arrays of equal shapes, of any types and on any devices.
double error(const Array& actual, const Array& expected);
double error(const Tensor& actual, const Tensor& expected);

/// What is wrong with `actual` if its error is more than `tolerance`, else "".
std::string difference(const Tensor& actual, const Tensor& expected, double tolerance);

/// Elements in logical order.
std::vector<double> values(const Array& x);
/// An array like x on `device` with storage, offset and strides of its own, all bytes copied.
Array copy_to(const Array& x, Device device);

}  // namespace gradus::test
