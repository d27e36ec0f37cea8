#include <gradus/tests/backends/openmp_compare.h>

#include <algorithm>
#include <cmath>

namespace gradus::test {

// The instruction sets of this processor. ThreadSanitizer makes every test ten times slower, and memory accesses of
// threads are the same for all sets, so there only the best one is tested.
std::vector<CpuIsa> instruction_sets() {
#ifdef GRADUS_THREAD_SANITIZER
  return {best_cpu_isa()};
#else
  std::vector<CpuIsa> sets;
  for (CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512})
    if (isa <= best_cpu_isa()) sets.push_back(isa);
  return sets;
#endif
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

bool same_bits(const Array& a, const Array& b) {
  return a.nbytes() == b.nbytes() && (a.nbytes() == 0 || std::memcmp(a.data(), b.data(), a.nbytes()) == 0);
}

}  // namespace gradus::test
