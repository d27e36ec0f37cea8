// The runtime and the backend that this folder provides to the registry.
#pragma once

#include <memory>
#include <string>

#include <gradus/core/backend.h>
#include <gradus/core/runtime/runtime.h>

namespace gradus {

/// Memory, streams, events and captured graphs of the CUDA devices. Null, with the reason in `*why_not`, on a machine
/// without a driver or a device. Throws ValueError if the environment variable GRADUS_CUDA_MAX_CAPABILITY is invalid.
std::unique_ptr<DeviceRuntime> make_cuda_runtime(std::string* why_not);
/// The backend "cuda": our own kernels, and cuBLAS for matrix products. Needs the runtime to be registered.
std::unique_ptr<Backend> make_cuda_backend();

}  // namespace gradus
