#include <gradus/backends/cudnn/handle.h>

#include <optional>

#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/backends/cuda/runtime/handle_pool.h>
#include <gradus/backends/cudnn/cudnn_backend.h>

namespace gradus::cudnn_detail {
namespace {

Context* make_context() {
  auto context = std::make_unique<Context>();
  GRADUS_CUDNN_CHECK(cudnnCreate(&context->handle));
  return context.release();
}

}  // namespace

Context& context_of(int index) {
  thread_local std::optional<cuda_detail::Pooled<Context*, make_context>> contexts[cuda_detail::kMaxDevices];
  if (!contexts[index]) contexts[index].emplace(index);
  Context* const context = *contexts[index];
  return *context;
}

cudnnHandle_t handle_of(int index) {
  const cudnnHandle_t handle = context_of(index).handle;
  GRADUS_CUDNN_CHECK(cudnnSetStream(handle, cuda_detail::current_stream(index)));
  return handle;
}

}  // namespace gradus::cudnn_detail

// cuDNN encodes its version in one number: 91300 is 9.13.0.
std::string gradus::CudnnBackend::libraries() const {
  const size_t version = cudnnGetVersion();
  return CudaBackend::libraries() + ", cuDNN " + std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}
