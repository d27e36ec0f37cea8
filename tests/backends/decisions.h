// Tables of what a select function decides, as text that is read as a diff.
#pragma once

#include <utility>
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/tests/catch.h>

namespace gradus::test {

/// The instruction sets of x86-64, whatever the processor has: their tables are numbers.
inline std::vector<std::pair<std::string, const openmp::KernelTable*>> all_instruction_sets() {
#if defined(__x86_64__)
  return {{"baseline", &openmp::kernels_baseline()},
          {"avx2", &openmp::kernels_avx2()},
          {"avx512", &openmp::kernels_avx512()}};
#else
  return {};
#endif
}

/// Compares text with tests/backends/FILE line by line; with GRADUS_WRITE_DECISIONS in the environment it is written.
void check_decisions(const std::string& file, const std::string& text);

}  // namespace gradus::test
