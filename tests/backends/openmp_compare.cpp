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

// Drawing a number for each element took a third of the tests' time. Instead, arrays are parts of one sequence, each
// from a random position. The sequence's length is prime, so that no two rows of an array are equal.
Array random(const Shape& shape, DType dtype, MemoryFormat format) {
  static const std::vector<double> sequence = [] {
    std::vector<double> numbers(65'537);
    std::generate(numbers.begin(), numbers.end(),
                  [e = std::mt19937(1), normal = std::normal_distribution<double>()]() mutable { return normal(e); });
    return numbers;
  }();
  Array x = Array::empty(shape, DType::f64, {}, format), y = Array::empty(shape, dtype, {}, format);
  size_t position = engine()() % sequence.size();
  std::generate_n(x.data<double>(), x.numel(), [&] {
    position = position + 1 < sequence.size() ? position + 1 : 0;
    return sequence[position];
  });
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
