// The properties of a device on which host decisions depend. Compiles without CUDA, so that decisions can be tested,
// and memory planned, on machines without a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include <gradus/core/error.h>

namespace gradus::cuda_detail {

// Compute capabilities are numbers, 10 major + minor: 90 for Hopper.

struct DeviceProperties {
  /// The capability that kernels may use: the lowest of the device's, of the user's limit and of the code's that the
  /// device runs.
  int compute_capability;
  int multiprocessors;
  size_t shared_memory;  ///< the most bytes of shared memory that a block may ask for
  bool wgmma = false;    ///< the instructions of sm_90a, which only devices of capability 9.0 have

  bool has_tensor_cores() const { return compute_capability >= 80; }  ///< for bfloat16 and TF32 too
  bool has_async_copies() const { return compute_capability >= 80; }  ///< cp.async, from global to shared memory
  bool has_clusters() const { return compute_capability >= 90; }      ///< also programmatic dependent launches
};

/// An H200.
inline constexpr DeviceProperties kH200 = {
    .compute_capability = 90, .multiprocessors = 132, .shared_memory = 227 << 10, .wgmma = true};

/// Bytes of shared memory that a block may ask for on a device of this capability ("Technical Specifications per
/// Compute Capability" in the CUDA Programming Guide).
constexpr size_t shared_memory_of_capability(int capability) {
  constexpr std::pair<int, size_t> kibibytes[] = {{120, 99}, {90, 227}, {89, 99}, {87, 163}, {86, 99}, {80, 163}};
  for (const auto& [from, size] : kibibytes)
    if (capability >= from) return size << 10;
  return size_t{64} << 10;
}

/// The oldest capability for which CUDA 13 compiles.
inline constexpr int kOldestCapability = 75;

/// The value of GRADUS_CUDA_MAX_CAPABILITY, "8.0" or "80". Throws ValueError.
inline int parse_max_capability(std::string_view text) {
  const size_t dot = text.find('.');
  const bool has_dot = dot != std::string_view::npos;
  int capability = 0;
  bool is_number = text.size() >= 2 && (!has_dot || dot + 2 == text.size());
  for (size_t i = 0; i < text.size() && is_number; ++i) {
    if (i == dot) continue;
    is_number = text[i] >= '0' && text[i] <= '9' && capability < 1000;
    capability = 10 * capability + (text[i] - '0');
  }
  GRADUS_CHECK(is_number && capability >= kOldestCapability && capability < 1000, ValueError,
               "the variable GRADUS_CUDA_MAX_CAPABILITY is '", text,
               "': it must be a compute capability of at least 7.5, such as 8.0 or 80");
  return capability;
}

/// The properties of `device` for kernels that are compiled for the capability `code` and limited to `limit`.
constexpr DeviceProperties limited(DeviceProperties device, int code, int limit) {
  const int real = device.compute_capability;
  if (limit < real) device.shared_memory = std::min(device.shared_memory, shared_memory_of_capability(limit));
  device.compute_capability = std::min({real, code, limit});
  device.wgmma = real == 90 && device.compute_capability == 90;
  return device;
}

}  // namespace gradus::cuda_detail
