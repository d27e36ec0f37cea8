// The openmp backend against naive on random operands: at every instruction set, with one and with two threads.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gradus/backends/openmp/openmp.h>
#include <gradus/core/parallel.h>
#include <gradus/core/registry.h>
#include <gradus/tests/catch.h>

namespace gradus::test {

inline Backend& naive() { return backend("naive"); }
inline Backend& openmp() { return backend("openmp"); }

// Those of this processor. ThreadSanitizer makes every test ten times slower, and sees the same threads read and write the
// same memory at each: the best one alone there.
inline std::vector<CpuIsa> instruction_sets() {
#if defined(__SANITIZE_THREAD__)
  return {best_cpu_isa()};
#else
  std::vector<CpuIsa> sets;
  for (CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512})
    if (isa <= best_cpu_isa()) sets.push_back(isa);
  return sets;
#endif
}

inline std::mt19937& engine() {
  static std::mt19937 e(1);
  return e;
}

inline Array random(const Shape& shape, DType dtype = DType::f32, MemoryFormat format = MemoryFormat::contiguous) {
  Array x = Array::empty(shape, DType::f64, {}, format), y = Array::empty(shape, dtype, {}, format);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = normal(engine());
  naive().copy(x, y);
  return y;
}

inline Array dense(const Array& x) {
  Array y = Array::empty(x.shape(), DType::f64);
  naive().copy(x, y);
  return y;
}

// Largest difference, relative to the largest element where that is above 1.
inline double difference(const Array& a, const Array& b) {
  const Array x = dense(a), y = dense(b);
  double most = 0, scale = 1;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double u = x.data<double>()[i], v = y.data<double>()[i];
    if (std::isnan(u) || std::isnan(v)) {
      if (std::isnan(u) != std::isnan(v)) return INFINITY;
      continue;
    }
    if (u == v) continue;
    most = std::max(most, std::abs(u - v)), scale = std::max(scale, std::abs(v));
  }
  return most / scale;
}

inline bool same_bits(const Array& a, const Array& b) {
  return a.nbytes() == b.nbytes() && (a.nbytes() == 0 || std::memcmp(a.data(), b.data(), a.nbytes()) == 0);
}

inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-12;
    case DType::f16: return 2e-3;
    case DType::bf16: return 1.6e-2;
    default: return 2e-5;
  }
}

// Runs f(backend) into arrays like `out` on naive and on openmp at every instruction set and at one and two threads.
template <class F>
void compare(const Array& out, double allowed, F&& f) {
  const auto fresh = [&] {
    Array y = Array::empty_like(out);
    if (y.nbytes()) std::memcpy(y.data(), out.data(), out.nbytes());
    return y;
  };
  const Array expected = fresh();
  f(naive(), expected);
  const CpuIsa before = cpu_isa();
  for (CpuIsa isa : instruction_sets()) {
    set_cpu_isa(isa);
    INFO(name(isa));
    set_num_threads(2);
    const Array two = fresh(), one = fresh();
    f(openmp(), two);
    CHECK(difference(two, expected) <= allowed);
    set_num_threads(1);
    f(openmp(), one);
    CHECK(same_bits(one, two));
  }
  set_cpu_isa(before);
  set_num_threads(2);
}

}  // namespace gradus::test
