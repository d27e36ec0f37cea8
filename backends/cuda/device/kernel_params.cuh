// Small tables from the host as kernel parameters: the copy waits for nothing, needs no pinned memory, and is part of a
// captured graph with the contents that the table had then.
#pragma once

#include <cstring>
#include <vector>

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

struct KernelParamTable {
  static constexpr uint32_t kWords = 960;  // with the other parameters below the limit of 4 KiB
  uint32_t words[kWords];
};

static __global__ void __launch_bounds__(kThreads)
    copy_params_kernel(KernelParamTable table, uint32_t count, uint32_t* to) {
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) to[i] = table.words[i];
}

/// A table of plain values on the device.
template <class T>
class DeviceTable {
 public:
  DeviceTable(const Launch& launch, Device device, const std::vector<T>& host)
      : memory_(std::max<size_t>(sizeof(T) * host.size(), 1), device) {
    static_assert(sizeof(T) % sizeof(uint32_t) == 0);
    const size_t words = host.size() * (sizeof(T) / sizeof(uint32_t));
    for (size_t begin = 0; begin < words; begin += KernelParamTable::kWords) {
      KernelParamTable table;
      const size_t count = std::min<size_t>(KernelParamTable::kWords, words - begin);
      std::memcpy(table.words, reinterpret_cast<const char*>(host.data()) + begin * sizeof(uint32_t),
                  count * sizeof(uint32_t));
      launch(copy_params_kernel, 1, kThreads, table, static_cast<uint32_t>(count), memory_.as<uint32_t>() + begin);
    }
  }
  const T* data() const { return memory_.as<T>(); }

 private:
  Scratch memory_;
};

}  // namespace gradus::cuda_detail
