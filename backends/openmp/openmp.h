// The fast CPU backend: packed matrix products, convolution as an implicit GEMM, vectors of the processor's full width,
// and several threads. Results do not depend on the number of threads.
#pragma once

#include <memory>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/core/backend.h>

namespace gradus {

std::unique_ptr<Backend> make_openmp_backend();

const char* name(CpuIsa isa);

/// The best instruction set that this processor and this build support.
CpuIsa best_cpu_isa();
/// The instruction set in use: the best one, unless the environment variable GRADUS_ISA (baseline, avx2, avx512) or
/// set_cpu_isa selects a lower one.
CpuIsa cpu_isa();
/// Selects an instruction set, for tests and comparisons. Throws a ValueError if the processor does not support it.
/// Must not be called while kernels run.
void set_cpu_isa(CpuIsa isa);

}  // namespace gradus
