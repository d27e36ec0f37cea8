// The library to compare with. gloo.cpp or, where CMake finds none, no_peer.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace gradus::benchmarks {

/// Sums `count` floats of all ranks in place.
using AllReduce = std::function<void(float* x, int64_t count)>;

/// "gloo", or null: there is none.
const char* peer_name();
/// Meets the other ranks in a directory that all see.
AllReduce peer_all_reduce(int rank, int size, const std::string& directory);

}  // namespace gradus::benchmarks
