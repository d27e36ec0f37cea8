// Batch norm of dense images, with the ReLU that may follow it: two launches forwards and two backwards.
#pragma once

#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// Backend::normalize, or with `relu` normalize_relu, where the axes are all but that of the channels, weight and bias
/// vary by channel alone, and all images lie alike and densely; with `running`, which RunningChannels serves,
/// normalize_training. False, and nothing done, where they do not.
bool normalize_channels(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                        bool fixed_statistics, bool relu, const View* residual, const MutableView& y,
                        const MutableView& mean, const MutableView& variance, const RunningStatistics* running);
/// Backend::normalize_backward, or with y normalize_relu_backward, likewise.
bool normalize_channels_backward(const View& dy, const View* y, const View& x, const View& mean, const View& variance,
                                 uint32_t axes, const View* weight, double eps, bool fixed_statistics,
                                 const MutableView* dx, const MutableView* dweight, const MutableView* dbias,
                                 const MutableView* dresidual);

}  // namespace gradus::cuda_detail
