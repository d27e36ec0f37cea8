// Registers the backend "cuda" in programs that link this room (core/registry.h).
#include <gradus/backends/cuda/cuda.h>
#include <gradus/core/registry.h>

extern "C" const bool gradus_cuda_is_registered = gradus::detail::add_builtin_backend(gradus::BuiltinBackend::cuda, [] {
  std::string why_not;
  std::unique_ptr<gradus::DeviceRuntime> runtime = gradus::make_cuda_runtime(&why_not);
  if (runtime) {
    gradus::register_runtime(std::move(runtime));
    gradus::register_backend(gradus::make_cuda_backend());
  } else {
    gradus::explain_missing_runtime(gradus::DeviceType::cuda, why_not);
  }
});
