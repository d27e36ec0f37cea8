// Devices: a type (cpu, cuda) and an index.
#pragma once

#include <string>
#include <string_view>

#include <gradus/core/error.h>

namespace gradus {

enum class DeviceType : uint8_t { cpu = 0, cuda = 1 };
inline constexpr int kDeviceTypeCount = 2;

/// LibTorch's names.
inline constexpr DeviceType kCPU = DeviceType::cpu, kCUDA = DeviceType::cuda;

/// One device of this machine. "cuda" without an index, here -1, is the device that is current on the thread that
/// allocates or moves there (settled() in core/runtime.h); a tensor's device always has its index.
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;

  Device() = default;
  Device(DeviceType type) : Device(type, type == DeviceType::cpu ? 0 : -1) {}            // NOLINT
  Device(DeviceType type, int index) : type(type), index(static_cast<int8_t>(index)) {}  // NOLINT
  /// Parses "cpu", "cuda" or "cuda:1"; anything else is a ValueError.
  Device(std::string_view text);                                       // NOLINT
  Device(const char* text) : Device(std::string_view(text)) {}         // NOLINT
  Device(const std::string& text) : Device(std::string_view(text)) {}  // NOLINT

  bool is_cpu() const { return type == DeviceType::cpu; }
  bool is_cuda() const { return type == DeviceType::cuda; }
  std::string str() const;
  friend bool operator==(Device a, Device b) { return a.type == b.type && a.index == b.index; }
};

std::string_view name(DeviceType type);
inline detail::Message& operator<<(detail::Message& message, Device device) { return message << device.str(); }

}  // namespace gradus
