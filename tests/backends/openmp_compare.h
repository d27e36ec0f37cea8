// Compares the openmp backend with naive on random operands, for every instruction set and with one and two threads.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include <gradus/backends/openmp/openmp.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/registry.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

namespace gradus::test {

inline Backend& naive() { return backend("naive"); }
inline Backend& openmp() { return backend("openmp"); }

/// The instruction sets of this processor; under ThreadSanitizer only the best one.
std::vector<CpuIsa> instruction_sets();

/// An array of standard normal numbers.
Array random(const Shape& shape, DType dtype = DType::f32, MemoryFormat format = MemoryFormat::contiguous);
/// x as contiguous doubles in logical order.
Array dense(const Array& x);
bool same_bits(const Array& a, const Array& b);

// Runs f(backend) on naive and on openmp (every instruction set, one and two threads), with outputs like `out`.
template <class F>
void compare(const Array& out, double allowed, F&& f) {
  const auto fresh = [&] {
    Array y = Array::empty_like(out);
    if (y.nbytes()) std::memcpy(y.data(), out.data(), out.nbytes());
    return y;
  };
  const Array expected = fresh();
  f(naive(), expected);
  REQUIRE(allowed < 0.25);
  const CpuIsa before = cpu_isa();
  for (CpuIsa isa : instruction_sets()) {
    set_cpu_isa(isa);
    INFO(name(isa));
    set_num_threads(2);
    const Array two = fresh(), one = fresh();
    f(openmp(), two);
    CHECK(error(two, expected) <= allowed);
    set_num_threads(1);
    f(openmp(), one);
    CHECK(same_bits(one, two));
  }
  set_cpu_isa(before);
  set_num_threads(2);
}

}  // namespace gradus::test
