// Which devices can run the machine code of a build. Compiles without CUDA, so that it can be tested everywhere.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::cuda_detail {

// Numbers are 10 major + minor of a compute capability: 90 for Hopper.

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

/// The architecture whose code the device runs, or 0 if it runs none; __CUDA_ARCH__ in kernels is ten times it.
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
