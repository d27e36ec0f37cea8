// The backends of this build, in the order that decides the default: the last one registered for a device type.
#include <gradus/backends/naive/naive.h>
#include <gradus/backends/openmp/openmp.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cpu_runtime.h>
#if GRADUS_WITH_CUDA
#include <gradus/backends/cuda/cuda.h>
#endif
#if GRADUS_WITH_CUDNN
#include <gradus/backends/cudnn/cudnn.h>
#endif

void gradus::detail::register_builtin_backends() {
#if GRADUS_WITH_CUDA
  std::string why_not;
  std::unique_ptr<DeviceRuntime> cuda = make_cuda_runtime(&why_not);  // when it throws, nothing is registered yet
#endif
  register_runtime(make_cpu_runtime());
  register_backend(make_naive_backend());
  register_backend(make_openmp_backend());
#if GRADUS_WITH_CUDA
  if (cuda) {
    register_runtime(std::move(cuda));
    register_backend(make_cuda_backend());
#if GRADUS_WITH_CUDNN
    register_backend(make_cudnn_backend());
#endif
  } else {
    explain_missing_runtime(DeviceType::cuda, why_not);
  }
#endif
}
