// The contributions of ranks to the collectives of tests, and the expected results.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include <gradus/core/array/array.h>
#include <gradus/distributed/comm/descriptor.h>

namespace gradus::test {

using dist::ReduceKind;

/// The contribution of rank r: small numbers, so that sums are exact in every type.
inline double element(int rank, int64_t i) {
  return static_cast<double>((i * 7 + rank * 3) % 5 + (rank == 1 ? -1 : 0));
}

template <class T>
Array contribution(int rank, int64_t count) {
  Array x = Array::empty({count}, dtype_of<T>);
  for (int64_t i = 0; i < count; ++i) x.data<T>()[i] = static_cast<T>(element(rank, i));
  return x;
}

/// The contributions of all ranks, reduced by `kind`.
inline double reduced(ReduceKind kind, int ranks, int64_t i) {
  double result = element(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double next = element(r, i);
    switch (kind) {
      case ReduceKind::sum:
      case ReduceKind::avg: result += next; break;
      case ReduceKind::min: result = std::min(result, next); break;
      case ReduceKind::max: result = std::max(result, next); break;
      case ReduceKind::prod: result *= next; break;
    }
  }
  return kind == ReduceKind::avg ? result / ranks : result;
}

/// True if x[begin + i] = expected(i), as a T, for all i below count.
template <class T, class F>
bool equals(const Array& x, int64_t begin, int64_t count, const F& expected) {
  for (int64_t i = 0; i < count; ++i)
    if (static_cast<double>(static_cast<compute_t<T>>(x.data<T>()[begin + i])) !=
        static_cast<double>(static_cast<compute_t<T>>(static_cast<T>(expected(i)))))
      return false;
  return true;
}

/// Checks a condition on the threads of ranks, because Catch's assertions must not be used in several threads.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace gradus::test
