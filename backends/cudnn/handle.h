// This thread's cuDNN handle.
#pragma once

#include <gradus/backends/cudnn/check.h>

namespace gradus::cudnn_detail {

/// Works on this thread's stream of device `index`, which is the current one.
cudnnHandle_t handle_of(int index);

}  // namespace gradus::cudnn_detail
