// Registers the backend "cuda" in programs that link the target gradus_cuda (core/registry.h), and reports the versions
// of the libraries that it calls and the architecture of its kernels.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/runtime/check.h>
#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/core/registry.h>

namespace gradus {
namespace {

void add_cuda() {
  std::string why_not;
  if (std::unique_ptr<DeviceRuntime> runtime = make_cuda_runtime(&why_not)) {
    register_runtime(std::move(runtime));
    register_backend(std::make_unique<CudaBackend>());
  } else {
    explain_missing_runtime(DeviceType::cuda, why_not);
  }
}

// CUDA encodes a version in one number: 13020 is 13.2.
std::string release(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

}  // namespace

std::string CudaBackend::libraries() const {
  int toolkit = 0, driver = 0, cublas[3] = {};
  GRADUS_CUDA_CHECK(cudaRuntimeGetVersion(&toolkit));
  GRADUS_CUDA_CHECK(cudaDriverGetVersion(&driver));
  for (const auto part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL})
    GRADUS_CUDA_CHECK(cublasGetProperty(part, &cublas[part]));
  int device = 0;
  GRADUS_CUDA_CHECK(cudaGetDevice(&device));
  return "CUDA " + release(toolkit) + ", driver for CUDA " + release(driver) + ", cuBLAS " + std::to_string(cublas[0]) +
         "." + std::to_string(cublas[1]) + "." + std::to_string(cublas[2]) + ", kernels for sm_" +
         std::to_string(cuda_detail::loaded_code(device));
}

}  // namespace gradus

extern "C" const bool gradus_cuda_is_registered =
    gradus::detail::add_builtin_backend(gradus::BuiltinBackend::cuda, gradus::add_cuda);
