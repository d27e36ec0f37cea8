#include <gradus/backends/cudnn/library.h>

#include <optional>

#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/backends/cuda/runtime/handle_pool.h>
#include <gradus/backends/cudnn/cudnn_backend.h>

namespace gradus::cudnn_detail {
namespace {

// What the user can do about an error, or "" if that is not known.
const char* remedy(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
    case CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH:
      return "; all of libcudnn_*.so.9 must be of one version and lie where the loader looks. The backend 'cuda' needs "
             "none of them";
    default: return "";
  }
}

Context* make_context() {
  auto context = std::make_unique<Context>();
  GRADUS_CUDNN_CHECK(cudnnCreate(&context->handle));
  return context.release();
}

}  // namespace

void fail_cudnn(const char* call, cudnnStatus_t status) {
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  std::string text = std::string(call) + " failed: " + cudnnGetErrorString(status);
  if (detail[0]) text += std::string(" (") + detail + ")";
  if (const std::string subject = Subject::current(); !subject.empty()) text += " for " + subject;
  GRADUS_FAIL(DeviceError, text, remedy(status));
}

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
