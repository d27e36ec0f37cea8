// The fast CPU backend: packed matrix products, convolution as an implicit product, vectors of the width that the
// processor has, several threads. Results do not depend on the number of threads.
#pragma once

#include <memory>

#include <gradus/core/backend.h>

namespace gradus {

std::unique_ptr<Backend> make_openmp_backend();

/// Instruction sets for which the kernels are compiled; baseline is what every processor of the architecture has.
enum class CpuIsa : uint8_t { baseline, avx2, avx512 };
const char* name(CpuIsa isa);

/// The best that this processor and build have.
CpuIsa best_cpu_isa();
/// The one in use: the best, unless the environment variable GRADUS_ISA (baseline, avx2, avx512) or set_cpu_isa asks
/// for less.
CpuIsa cpu_isa();
/// For tests and comparisons; a ValueError where the processor does not have it. Not while kernels run.
void set_cpu_isa(CpuIsa isa);

}  // namespace gradus
