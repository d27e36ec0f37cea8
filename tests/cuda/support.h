// What the tests of CUDA share. They build everywhere and run where there is a device.
#pragma once

#include <cstdint>
#include <vector>

#include <gradus/core/cuda.h>
#include <gradus/core/registry.h>
#include <gradus/tests/catch.h>

namespace gradus::test {

/// True, and says so, on a machine without a device:  if (no_cuda_device()) return;
inline bool no_cuda_device() {
  if (cuda::is_available()) return false;
  WARN("skipped: no CUDA device");
  return true;
}

inline Device cuda_device() { return Device(DeviceType::cuda, cuda::current_device()); }
inline DeviceRuntime& cuda_runtime() { return runtime(DeviceType::cuda); }

/// The elements of a dense device array, in memory order, after the work that is queued.
template <class T>
std::vector<T> to_host(const Array& x) {
  std::vector<T> values(static_cast<size_t>(x.numel()));
  cuda_runtime().copy(values.data(), Device(), x.data(), x.device(), x.nbytes(), /*non_blocking=*/false);
  return values;
}

/// A one-dimensional device array of these elements.
template <class T>
Array to_device(const std::vector<T>& values) {
  Array x = Array::empty({static_cast<int64_t>(values.size())}, dtype_of<T>, cuda_device());
  cuda_runtime().copy(x.data(), x.device(), values.data(), Device(), x.nbytes(), /*non_blocking=*/false);
  return x;
}

}  // namespace gradus::test
