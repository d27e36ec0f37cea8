// Shared by the tests of select functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/tests/decisions.h>

namespace gradus::test {

/// The tables of all x86-64 instruction sets. Plans only read sizes from them, so any processor can use them.
inline std::vector<std::pair<std::string, const openmp_detail::KernelTable*>> all_instruction_sets() {
#if defined(__x86_64__)
  return {{"baseline", &openmp_detail::baseline::kernels()},
          {"avx2", &openmp_detail::avx2::kernels()},
          {"avx512", &openmp_detail::avx512::kernels()}};
#else
  return {};
#endif
}

}  // namespace gradus::test
