// What the kernels of this folder need from the runtime: the stream to launch on, and scratch memory.
#pragma once

#include <cstddef>

#include <gradus/backends/cuda/runtime/device_guard.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/runtime/device.h>

namespace gradus::cuda_detail {

/// This thread's stream on device `index`.
cudaStream_t current_stream(int index);
/// Of device `index`, limited by the environment variable GRADUS_CUDA_MAX_CAPABILITY and by the code that this build
/// has for it (device_properties.h). All decisions about kernels start here; asked of CUDA once.
const DeviceProperties& device_properties(int index);
/// The architecture that the kernels were compiled for which device `index` runs, 10 major + minor. device_properties()
/// derives it from CMAKE_CUDA_ARCHITECTURES, and a test compares the two: this one loads a kernel.
int loaded_code(int index);

/// Device memory for the duration of a kernel call; later work of the stream may reuse it.
class Scratch {
 public:
  Scratch(size_t bytes, Device device);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
};

}  // namespace gradus::cuda_detail
