// Helpers of the CUDA tests, which build everywhere and run on machines with a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

namespace gradus::test {

/// Returns true, and marks the test case as skipped, on a machine without a device:  if (no_cuda_device()) return;
inline bool no_cuda_device() { return !cuda::is_available() && skip("1 CUDA device"); }

inline Device cuda_device() { return Device(DeviceType::cuda, cuda::current_device()); }
inline DeviceRuntime& cuda_runtime() { return runtime(DeviceType::cuda); }

/// The number after the last `mark` in the text.
inline int number_behind(const std::string& text, const std::string& mark) {
  return std::stoi(text.substr(text.rfind(mark) + mark.size()));
}
/// The compute capability that kernels use, 10 major + minor: the device's, unless the build or
/// GRADUS_CUDA_MAX_CAPABILITY limits it ("sm_90 used as sm_80").
inline int cuda_capability() { return number_behind(cuda_runtime().description(cuda_device().index()), "sm_"); }
/// Returns true if a block has enough shared memory for the tiles of direct_wgrad. Devices of capability 8.6 and 8.9,
/// with 99 KiB for a block, use implicit_gemm_generic for most of the layers tested here.
inline bool has_room_for_direct_wgrad() {
  const std::string description = cuda_runtime().description(cuda_device().index());
  const int device = std::stoi(description.substr(description.find("sm_") + 3));
  const char* limit = std::getenv("GRADUS_CUDA_MAX_CAPABILITY");
  const int used = limit == nullptr ? device : std::min(device, cuda_detail::parse_max_capability(limit));
  return cuda_capability() >= 80 && cuda_detail::shared_memory_of_capability(used) >= size_t{163} << 10;
}

/// Copies the elements of a dense device array in memory order, after all queued work.
template <class T>
std::vector<T> to_host(const Array& x) {
  std::vector<T> values(static_cast<size_t>(x.numel()));
  cuda_runtime().copy(values.data(), Device(), x.data(), x.device(), x.nbytes(), /*non_blocking=*/false);
  return values;
}

/// A one-dimensional device array with these elements.
template <class T>
Array to_device(const std::vector<T>& values) {
  Array x = Array::empty({static_cast<int64_t>(values.size())}, dtype_of<T>, cuda_device());
  cuda_runtime().copy(x.data(), x.device(), values.data(), Device(), x.nbytes(), /*non_blocking=*/false);
  return x;
}

/// Records the kernels that run during its lifetime, as "backend/name/implementation".
class Kernels : public Observer {
 public:
  Kernels() { add_observer(this); }
  ~Kernels() override { remove_observer(this); }
  void on_end(const ObservedEvent& event) override {
    if (event.kind == ObservedEvent::Kind::kernel)
      ran_.push_back(std::string(event.backend) + "/" + event.name + "/" + event.implementation);
  }
  bool contain(const std::string& text) const {
    return std::any_of(ran_.begin(), ran_.end(), [&](const auto& kernel) { return kernel.find(text) == 0; });
  }
  size_t count() const { return ran_.size(); }
  /// The algorithms of the operators whose names begin with `name`, one for each kernel.
  std::vector<std::string> algorithms_of(const std::string& name) const {
    std::vector<std::string> algorithms;
    for (const std::string& kernel : ran_) {
      const size_t begin = kernel.find('/') + 1;
      if (kernel.compare(begin, name.size(), name) == 0) algorithms.push_back(kernel.substr(kernel.rfind('/') + 1));
    }
    return algorithms;
  }
  std::string all() const {
    std::string text;
    for (const std::string& kernel : ran_) text += kernel + " ";
    return text;
  }

 private:
  std::vector<std::string> ran_;
};

/// Restores cuDNN's switches at the end of the scope.
struct CudnnSwitches {
  const bool tf32 = cudnn::allow_tf32(), deterministic = cudnn::deterministic(), benchmark = cudnn::benchmark();
  const bool small = cudnn::small_convolutions();
  const size_t limit = cudnn::workspace_limit();
  ~CudnnSwitches() {
    cudnn::set_allow_tf32(tf32), cudnn::set_deterministic(deterministic), cudnn::set_benchmark(benchmark);
    cudnn::set_small_convolutions(small), cudnn::set_workspace_limit(limit);
  }
};

}  // namespace gradus::test
