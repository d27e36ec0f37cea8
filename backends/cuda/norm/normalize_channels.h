// Batch norm of dense images, with the ReLU that may follow it: two launches forwards and two backwards.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// Backend::normalize where the axes are all but that of the channels, weight and bias vary by channel alone, and all
/// images lie alike and densely; RunningChannels serves args.running. False, and nothing done, where they do not.
bool normalize_channels(const NormalizeArgs& args);
/// Backend::normalize_backward likewise.
bool normalize_channels_backward(const NormalizeBackwardArgs& args);

}  // namespace gradus::cuda_detail
