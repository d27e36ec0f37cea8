// This thread's cuDNN handle.
#pragma once

#include <memory>

#include <gradus/backends/cudnn/check.h>

namespace gradus::cudnn_detail {

class PlanCache;

/// A handle, and the plans that were made with it.
struct Context {
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<PlanCache> plans;
};

/// This thread's of device `index`, which is the current one. A later thread gets it when this one has ended.
Context& context_of(int index);
/// Its handle, which works on this thread's stream of device `index`, which is the current one.
cudnnHandle_t handle_of(int index);

}  // namespace gradus::cudnn_detail
