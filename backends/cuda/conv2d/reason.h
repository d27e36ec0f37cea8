// For observers: which clause of select() leads to an algorithm.
#pragma once

#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cuda_detail {

const char* reason_for(ConvAlgorithm algorithm);

}  // namespace gradus::cuda_detail
