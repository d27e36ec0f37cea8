// A second device for tests of operators: a GPU or, on a machine without one, a fake device with the host's memory and
// naive's kernels.
#pragma once

#include <gradus/core/backend_interceptor.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/tests/distributed/fake_device.h>

namespace gradus::test {

/// Runs naive's kernels on operands that are marked as being on the other device. Does not wait for queued copies, so
/// copies must not be asked for with non_blocking.
class HostKernels final : public BackendInterceptor<HostKernels> {
 public:
  std::string_view name() const override { return "host_kernels"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  template <class... Params>
  void call(const char*, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    (backend("naive").*method)(arguments...);
  }
};

/// The device that "cuda" stands for. Makes the fake one if there is no GPU.
inline Device other_device() {
  static const bool made = [] {
    if (cuda::is_available() || !use_fake_device()) return false;
    FakeStream::is_late() = false;
    register_backend(std::make_unique<HostKernels>());
    return true;
  }();
  return Device(kCUDA, made ? 0 : cuda::current_device());
}

}  // namespace gradus::test
