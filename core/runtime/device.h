// Devices: a type (cpu, cuda) and an index.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <gradus/core/error.h>

namespace gradus {

/// The upper-case names are LibTorch's.
enum class DeviceType : uint8_t { cpu = 0, cuda = 1, CPU = cpu, CUDA = cuda };
inline constexpr int kDeviceTypeCount = 2;

/// LibTorch's names.
inline constexpr DeviceType kCPU = DeviceType::cpu, kCUDA = DeviceType::cuda;

/// One device of this machine. Without an index (here -1), "cuda" means the current device of the thread that allocates
/// on it or copies to it (settled() in core/runtime/runtime.h). A tensor's device always has an index.
class Device {
 public:
  Device() = default;
  Device(DeviceType type) : Device(type, type == DeviceType::cpu ? 0 : -1) {}              // NOLINT
  Device(DeviceType type, int index) : type_(type), index_(static_cast<int8_t>(index)) {}  // NOLINT
  /// Parses "cpu", "cuda" or "cuda:1"; anything else is a ValueError.
  Device(std::string_view text);                                       // NOLINT
  Device(const char* text) : Device(std::string_view(text)) {}         // NOLINT
  Device(const std::string& text) : Device(std::string_view(text)) {}  // NOLINT

  DeviceType type() const { return type_; }       ///< cpu or cuda
  int index() const { return index_; }            ///< -1: the current device
  bool has_index() const { return index_ >= 0; }  ///< false if the index is -1
  bool is_cpu() const { return type_ == DeviceType::cpu; }
  bool is_cuda() const { return type_ == DeviceType::cuda; }
  std::string str() const;
  friend bool operator==(Device a, Device b) { return a.type_ == b.type_ && a.index_ == b.index_; }

 private:
  DeviceType type_ = DeviceType::cpu;
  int8_t index_ = 0;
};

inline std::string_view name(DeviceType type) { return type == DeviceType::cpu ? "cpu" : "cuda"; }
inline detail::Message& operator<<(detail::Message& message, Device device) { return message << device.str(); }

}  // namespace gradus
