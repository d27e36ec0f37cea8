// The library cuDNN: the handle and the engines of each thread, and errors. An error becomes a DeviceError that names
// the call, cuDNN's message, the running operator and its operands.
#pragma once

#include <memory>
#include <string>

#include <cudnn.h>

#include <gradus/core/error.h>

namespace gradus::cudnn_detail {

/// During the lifetime of this object, error messages of this thread contain describe(subject), for example the
/// convolution that cuDNN is called for.
class Subject : NoCopy {
 public:
  template <class T>
  explicit Subject(const T& subject)
      : subject_(&subject), describe_([](const void* it) { return describe(*static_cast<const T*>(it)); }) {}

  /// The description of this thread's subject, or "" if it has none.
  static std::string current() { return current_ ? current_->describe_(current_->subject_) : ""; }

 private:
  static inline thread_local constinit const Subject* current_ = nullptr;

  const void* const subject_;
  std::string (*const describe_)(const void*);
  const ScopedValue<const Subject*> scope_{current_, this};
};

[[noreturn]] void fail_cudnn(const char* call, cudnnStatus_t status);

inline void check(const char* call, cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    fail_cudnn(call, status);
}

/// Returns true for the errors with which cuDNN refuses a problem that it does not support.
inline bool is_unsupported(cudnnStatus_t status) {
  const int category = static_cast<int>(CUDNN_STATUS_CATEGORY(status));
  return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
}

class EngineCache;

/// A cuDNN handle, and the engines that were created with it.
struct Context {
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<EngineCache> engines;
};

/// This thread's context for device `index`, which must be the current device. When the thread ends, a later thread may
/// reuse the context.
Context& context_of(int index);
/// The handle of context_of(index), set to this thread's stream. Device `index` must be the current device.
cudnnHandle_t handle_of(int index);

}  // namespace gradus::cudnn_detail

/// Evaluates a cuDNN call; throws DeviceError unless it succeeds.
#define GRADUS_CUDNN_CHECK(call) ::gradus::cudnn_detail::check(#call, call)
