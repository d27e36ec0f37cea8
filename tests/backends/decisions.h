// Shared by the tests of select functions.
#pragma once

#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/core/kernel_choice.h>
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

/// Prints what an algorithm's estimate counts, with six digits: part 12, other part 3.5.
inline void print_work(std::ostream& out, const WorkParts& parts, const KernelWork& work) {
  std::ostringstream text;
  for (size_t i = 0; i < kMaxWorkParts && parts[i].name; ++i)
    text << (i > 0 ? ", " : "") << parts[i].name << ' ' << work[i];
  out << text.str();
}

}  // namespace gradus::test
