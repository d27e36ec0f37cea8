// The properties of a device on which the choice of kernels depends, and functions that determine which devices can run
// the machine code of a build. Compiles without CUDA, so that the choices can be tested on machines without a GPU.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradus/core/error.h>

namespace gradus::cuda_detail {

// A compute capability is stored as the number 10 major + minor: 90 for Hopper.

struct DeviceProperties {
  /// The capability that kernels may use: the minimum of the device's capability, the limit GRADUS_CUDA_MAX_CAPABILITY,
  /// and the capability for which the kernels that the device runs were compiled.
  int compute_capability;
  int multiprocessors;
  size_t shared_memory;                  ///< the maximum of shared memory that a block may request, in bytes
  bool wgmma = false;                    ///< the instructions of sm_90a, which only devices of capability 9.0 have
  double multiply_adds_per_us = 33.5e6;  ///< peak of float32 multiply-adds
  double bytes_per_us = 4.8e6;           ///< peak bandwidth of the device's memory

  bool operator==(const DeviceProperties&) const = default;
  bool has_tensor_cores() const { return compute_capability >= 80; }  ///< including bfloat16 and TF32
  bool has_async_copies() const { return compute_capability >= 80; }  ///< cp.async, from global to shared memory
  bool has_clusters() const { return compute_capability >= 90; }      ///< and programmatic dependent launches
};

/// The properties of an H200, which tests of the choices use.
inline constexpr DeviceProperties kH200 = {
    .compute_capability = 90, .multiprocessors = 132, .shared_memory = 227 << 10, .wgmma = true};

/// The maximum of shared memory that a block may request on a device of this capability, in bytes ("Technical
/// Specifications per Compute Capability" in the CUDA Programming Guide).
constexpr size_t shared_memory_of_capability(int capability) {
  constexpr std::pair<int, size_t> kibibytes[] = {{120, 99}, {90, 227}, {89, 99}, {87, 163}, {86, 99}, {80, 163}};
  for (const auto& [from, size] : kibibytes)
    if (capability >= from) return size << 10;
  return size_t{64} << 10;
}

/// float32 multiply-adds that a multiprocessor of this capability does per clock.
constexpr int fma_units_of_capability(int capability) { return capability < 86 ? 64 : 128; }

/// The device with the peaks that follow from its clocks in kHz and from the width of its memory bus in bits. Numbers
/// that the driver does not know are 0, as on some virtual GPUs; the device then has the peak of an H200.
constexpr DeviceProperties with_peaks(DeviceProperties device, int clock, int memory_clock, int bus_width) {
  const double multiply_adds = 1e-3 * clock * device.multiprocessors;
  const double bytes = 2e-3 * memory_clock * bus_width / 8;  // two transfers per clock
  if (multiply_adds > 0)
    device.multiply_adds_per_us = multiply_adds * fma_units_of_capability(device.compute_capability);
  if (bytes > 0) device.bytes_per_us = bytes;
  return device;
}

/// The lowest capability for which CUDA 13 can compile.
inline constexpr int kOldestCapability = 75;

/// Parses the value of GRADUS_CUDA_MAX_CAPABILITY: 80 for "8.0" and for "80". Throws ValueError for other texts.
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

// ---- the architectures of a build ----

/// One entry of CMAKE_CUDA_ARCHITECTURES: "80-real" is machine code, "80-virtual" PTX that the driver compiles, "80"
/// both. Code with a letter after the number ("90a") runs only on devices of exactly that capability.
struct Architecture {
  int number = 0;
  std::string_view kind;  ///< the text after the number

  bool runs_on(int device) const {
    if (!kind.empty() && kind.front() != '-') return number == device;
    return number <= device && (kind != "-real" || number / 10 == device / 10);
  }
};

/// The entries of a list separated by spaces. Empty if an entry is not a number ("native"), because the architectures
/// are then unknown.
inline std::vector<Architecture> parse_architectures(std::string_view text) {
  std::vector<Architecture> all;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    Architecture architecture;
    const auto [rest, error] = std::from_chars(entry.data(), entry.data() + entry.size(), architecture.number);
    if (error != std::errc()) return {};
    architecture.kind = entry.substr(static_cast<size_t>(rest - entry.data()));
    all.push_back(architecture);
  }
  return all;
}

/// The newest architecture whose code the device runs, or 0 if it runs none; the device's own capability if the list
/// cannot be parsed. In kernels, __CUDA_ARCH__ is ten times this number.
inline int code_for(std::string_view architectures, int device) {
  const std::vector<Architecture> all = parse_architectures(architectures);
  int newest = 0;
  for (const Architecture& architecture : all)
    if (architecture.runs_on(device)) newest = std::max(newest, architecture.number);
  return all.empty() ? device : newest;
}

/// The error message for a device that cannot run the code.
inline std::string wrong_architecture(std::string_view architectures, int device) {
  std::string compiled;
  for (const Architecture& architecture : parse_architectures(architectures))
    compiled += (compiled.empty() ? "sm_" : ", sm_") + std::to_string(architecture.number);
  const std::string number = std::to_string(device);
  return "gradus was compiled for " + (compiled.empty() ? std::string(architectures) : compiled) +
         ", the device is sm_" + number + ": rebuild with -DCMAKE_CUDA_ARCHITECTURES=" + number;
}

}  // namespace gradus::cuda_detail
