// The contributions of ranks to the collectives of tests, and the expected results.
#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include <gradus/core/array/array.h>
#include <gradus/distributed/comm/descriptor.h>

namespace gradus::test {

using dist::ReduceKind;

/// Element i of the contribution of rank r: small numbers, so that sums are exact in every type. They repeat after
/// kPeriod elements, and so do sums of them: tests compute one period, because their loops are not optimised, and
/// sanitizers make them slower still.
inline double element(int rank, int64_t i) {
  return static_cast<double>((i * 7 + rank * 3) % 5 + (rank == 1 ? -1 : 0));
}
constexpr int64_t kPeriod = 5;

/// Makes x the contribution of rank r.
template <class T>
void fill(const Array& x, int rank) {
  T* const to = x.data<T>();
  const int64_t count = x.numel();
  for (int64_t i = 0; i < std::min(count, kPeriod); ++i) to[i] = static_cast<T>(element(rank, i));
  for (int64_t done = kPeriod; done < count; done *= 2) std::copy_n(to, std::min(done, count - done), to + done);
}

template <class T>
Array contribution(int rank, int64_t count) {
  Array x = Array::empty({count}, dtype_of<T>);
  fill<T>(x, rank);
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

/// True if x[begin + i] = expected(i), as a T, for all i below count. The values of `expected` repeat after `period`.
template <class T, class F>
bool equals(const Array& x, int64_t begin, int64_t count, const F& expected, int64_t period = kPeriod) {
  const T* const values = x.data<T>() + begin;
  for (int64_t i = 0; i < std::min(count, period); ++i)
    if (static_cast<double>(static_cast<compute_t<T>>(values[i])) !=
        static_cast<double>(static_cast<compute_t<T>>(static_cast<T>(expected(i)))))
      return false;
  return count <= period || std::memcmp(values + period, values, static_cast<size_t>(count - period) * sizeof(T)) == 0;
}

/// Checks a condition on the threads of ranks, because Catch's assertions must not be used in several threads.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace gradus::test
