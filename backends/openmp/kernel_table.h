// The table of one instruction set. Each kernels_*.cpp defines GRADUS_ISA and includes this.
#pragma once

#include <gradus/backends/openmp/dot_kernel.h>
#include <gradus/backends/openmp/gemm_kernel.h>
#include <gradus/backends/openmp/vector_kernel.h>

namespace gradus::openmp::GRADUS_ISA {

template <class T>
constexpr Kernels<T> kernels() {
  return {kLanes<T>, kTileRows,    kTileColumns<T>, pack_a<T>, pack_b<T>, block<T>,
          dot<T>,    transpose<T>, adam<T>,         sum<T>,    exp_sum<T>};
}

}  // namespace gradus::openmp::GRADUS_ISA
