// What the processor can do, measured through the backend.
#include <algorithm>
#include <cmath>

#include <gradus/core/ops/creation.h>
#include <gradus/training/explain_parts.h>

namespace gradus::training {

double Roofline::seconds_at_least(int64_t bytes, int64_t flops) const {
  const auto fits =
      std::find_if(levels.begin(), levels.end(), [&](const Level& level) { return bytes <= level.bytes; });
  const double bandwidth = levels.empty() ? INFINITY : fits == levels.end() ? levels.back().bandwidth : fits->bandwidth;
  return std::max(static_cast<double>(bytes) / bandwidth, peak > 0 ? static_cast<double>(flops) / peak : 0);
}

Roofline measure_roofline() {
  constexpr int64_t kSide = 384, kMegabyte = 1 << 20;
  Backend& backend = gradus::backend(has_backend("openmp") ? "openmp" : "naive");
  const auto filled = [](const Shape& shape) {
    const Array array = Array::empty(shape, DType::f32);
    ops::fill(array, 1);
    return array;
  };
  const auto rate = [](int64_t amount, const std::function<void()>& work) {
    return static_cast<double>(amount) / detail::least_seconds(30, work);
  };
  Roofline roofline;
  const Array a = filled({kSide, kSide}), b = filled({kSide, kSide}), c = filled({kSide, kSide});
  roofline.peak = rate(2 * kSide * kSide * kSide, [&] { backend.matmul(a, b, c, false); });
  for (const int64_t bytes : {kMegabyte / 4, 2 * kMegabyte, 16 * kMegabyte, 64 * kMegabyte}) {
    const Array x = filled({bytes / 4}), sum = filled({1}), third = filled({bytes / 12});
    const double read = rate(bytes, [&] { backend.reduce(ReduceOp::sum, x, 1, sum); });
    const double added = rate(bytes / 12 * 12, [&] { backend.binary(BinaryOp::add, third, third, third); });
    roofline.levels.push_back({bytes, std::max(read, added)});
  }
  return roofline;
}

}  // namespace gradus::training
