#include <gradus/tests/backends/openmp_compare.h>

#include <algorithm>
#include <cmath>

namespace gradus::test {

// Those of this processor. ThreadSanitizer makes every test ten times slower, and sees the same threads read and write the
// same memory at each: the best one alone there.
std::vector<CpuIsa> instruction_sets() {
#if defined(__SANITIZE_THREAD__)
  return {best_cpu_isa()};
#else
  std::vector<CpuIsa> sets;
  for (CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512})
    if (isa <= best_cpu_isa()) sets.push_back(isa);
  return sets;
#endif
}

std::mt19937& engine() {
  static std::mt19937 e(1);
  return e;
}

Array random(const Shape& shape, DType dtype, MemoryFormat format) {
  Array x = Array::empty(shape, DType::f64, {}, format), y = Array::empty(shape, dtype, {}, format);
  std::normal_distribution<double> normal;
  std::generate_n(x.data<double>(), x.numel(), [&] { return normal(engine()); });
  naive().copy(x, y);
  return y;
}

Array dense(const Array& x) {
  Array y = Array::empty(x.shape(), DType::f64);
  naive().copy(x, y);
  return y;
}

double difference(const Array& a, const Array& b) {
  const Array x = dense(a), y = dense(b);
  const double *xs = x.data<double>(), *ys = y.data<double>();
  double most = 0, scale = 1;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double u = xs[i], v = ys[i];
    if (std::isnan(u) || std::isnan(v)) {
      if (std::isnan(u) != std::isnan(v)) return INFINITY;
      continue;
    }
    if (u == v) continue;
    most = std::max(most, std::abs(u - v)), scale = std::max(scale, std::abs(v));
  }
  return most / scale;
}

bool same_bits(const Array& a, const Array& b) {
  return a.nbytes() == b.nbytes() && (a.nbytes() == 0 || std::memcmp(a.data(), b.data(), a.nbytes()) == 0);
}

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-12;
    case DType::f16: return 2e-3;
    case DType::bf16: return 1.6e-2;
    default: return 2e-5;
  }
}

}  // namespace gradus::test
