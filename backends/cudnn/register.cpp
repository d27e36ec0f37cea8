// Registers the backend "cudnn" in programs that link the target gradus_cudnn (core/registry.h).
#include <gradus/backends/cudnn/cudnn_backend.h>
#include <gradus/core/registry.h>

extern "C" const bool gradus_cudnn_is_registered =
    gradus::detail::add_builtin_backend(gradus::BuiltinBackend::cudnn, [] {
      if (gradus::is_registered(gradus::DeviceType::cuda))
        gradus::register_backend(std::make_unique<gradus::CudnnBackend>());
    });
