// What decisions on the host depend on of a device. Without CUDA, so that they are tested and planned where there is no
// GPU.
#pragma once

#include <cstddef>

namespace gradus::cuda_detail {

struct DeviceProperties {
  int compute_capability;  // 10 major + minor: 90 for Hopper
  int multiprocessors;
  size_t shared_memory;   // bytes, the most that a block may ask for
  bool clusters = false;  // blocks can form them: on Hopper and later, by code compiled for these
};

/// One H200.
inline constexpr DeviceProperties kH200 = {
    .compute_capability = 90, .multiprocessors = 132, .shared_memory = 227 << 10, .clusters = true};

}  // namespace gradus::cuda_detail
