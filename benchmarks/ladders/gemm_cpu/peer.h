// The library to compare with. openblas.cpp or, where CMake finds none, no_peer.cpp.
#pragma once

#include <cstdint>

namespace gradus::ladders {

/// "OpenBLAS (SkylakeX)", or null: there is none.
const char* peer_name();
/// C = A B, n x n, row-major, on `threads` threads.
void peer_gemm(int threads, int64_t n, const float* a, const float* b, float* c);

}  // namespace gradus::ladders
