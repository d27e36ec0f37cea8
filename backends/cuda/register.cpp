// Registers the backend "cuda" in programs that link this room (core/registry.h).
#include <gradus/backends/cuda/cuda.h>
#include <gradus/core/registry.h>

namespace gradus {
namespace {

void add_cuda() {
  std::string why_not;
  if (std::unique_ptr<DeviceRuntime> runtime = make_cuda_runtime(&why_not)) {
    register_runtime(std::move(runtime));
    register_backend(make_cuda_backend());
  } else {
    explain_missing_runtime(DeviceType::cuda, why_not);
  }
}

}  // namespace
}  // namespace gradus

extern "C" const bool gradus_cuda_is_registered =
    gradus::detail::add_builtin_backend(gradus::BuiltinBackend::cuda, gradus::add_cuda);
