#include <gradus/backends/cudnn/check.h>

namespace gradus::cudnn_detail {
namespace {

// What the user can do about an error, if that is known.
const char* remedy(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
    case CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH:
      return "; all of libcudnn_*.so.9 must be of one version and lie where the loader looks. The backend 'cuda' needs "
             "none of them";
    default: return "";
  }
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

}  // namespace gradus::cudnn_detail
