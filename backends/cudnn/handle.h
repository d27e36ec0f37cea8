// The cuDNN handles and engines of a thread.
#pragma once

#include <memory>

#include <gradus/backends/cudnn/check.h>

namespace gradus::cudnn_detail {

class EngineCache;

/// A handle, and the engines that were made with it.
struct Context {
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<EngineCache> engines;
};

/// This thread's context for device `index`, which must be the current device. When the thread ends, the context is
/// left to a later thread.
Context& context_of(int index);
/// The handle of that context, set to this thread's stream. Device `index` must be the current device.
cudnnHandle_t handle_of(int index);

}  // namespace gradus::cudnn_detail
