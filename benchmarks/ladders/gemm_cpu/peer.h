// The library with which the benchmark compares. Implemented in openblas.cpp or, if CMake does not find OpenBLAS, in
// no_peer.cpp.
#pragma once

#include <cstdint>

namespace gradus::ladders {

/// Returns the name, such as "OpenBLAS (SkylakeX)", or null if there is no library.
const char* peer_name();
/// Computes C = A B for n x n row-major matrices, on `threads` threads.
void peer_gemm(int threads, int64_t n, const float* a, const float* b, float* c);

}  // namespace gradus::ladders
