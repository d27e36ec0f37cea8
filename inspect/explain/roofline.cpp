// Measures the limits of a device with kernels of its backend.
#include <algorithm>
#include <cmath>

#include <gradus/core/binary_ops.h>
#include <gradus/core/ops/creation.h>
#include <gradus/inspect/explain/explain_parts.h>

namespace gradus::training {

double Roofline::seconds_at_least(int64_t bytes, int64_t flops) const {
  const auto fits =
      std::find_if(levels.begin(), levels.end(), [&](const Level& level) { return bytes <= level.bytes; });
  const double bandwidth = levels.empty() ? INFINITY : fits == levels.end() ? levels.back().bandwidth : fits->bandwidth;
  return std::max(static_cast<double>(bytes) / bandwidth, peak > 0 ? static_cast<double>(flops) / peak : 0);
}

Roofline measure_roofline(Device device) {
  constexpr int64_t kMegabyte = 1 << 20;
  const bool on_gpu = device.is_cuda();
  Backend& backend = gradus::backend(on_gpu ? "cuda" : has_backend("openmp") ? "openmp" : "naive");
  const auto filled = [&](const Shape& shape) {
    const Array array = Array::empty(shape, DType::f32, device);
    ops::fill(array, 1);
    return array;
  };
  const auto rate = [&](int64_t amount, const std::function<void()>& work) {
    if (!on_gpu) return static_cast<double>(amount) / detail::least_seconds(30, work);
    constexpr int kTimes = 8;  // several in one graph, so that its launch does not count
    work();
    return static_cast<double>(amount) * kTimes / detail::least_captured_seconds(10, [&] {
             for (int i = 0; i < kTimes; ++i) work();
           });
  };
  Roofline roofline;
  const int64_t side = on_gpu ? 4096 : 384;
  const Array a = filled({side, side}), b = filled({side, side}), c = filled({side, side});
  roofline.peak = rate(2 * side * side * side, [&] { backend.matmul(a, b, c, false); });
  const std::vector<int64_t> sizes =
      on_gpu ? std::vector<int64_t>{2 * kMegabyte, 24 * kMegabyte, 768 * kMegabyte}
             : std::vector<int64_t>{kMegabyte / 4, 2 * kMegabyte, 16 * kMegabyte, 64 * kMegabyte};
  for (const int64_t bytes : sizes) {
    const Array x = filled({bytes / 4}), sum = filled({1});
    const Array left = filled({bytes / 12}), right = filled({bytes / 12}), y = filled({bytes / 12});
    const double read = rate(bytes, [&] { backend.reduce(ReduceOp::sum, x, 1, sum); });
    const double added = rate(bytes / 12 * 12, [&] { backend.binary(BinaryOp::add, left, right, y); });
    roofline.levels.push_back({bytes, std::max(read, added)});
  }
  return roofline;
}

}  // namespace gradus::training
