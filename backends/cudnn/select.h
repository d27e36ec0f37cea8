// cuDNN's convolutions as algorithms that select() can choose, like those of the backend "cuda" (conv2d/select.h). Host
// code without CUDA.
#pragma once

#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cudnn_detail {

/// kFused: an engine that also applies bias and ReLU. kEngine: an engine for the convolution alone; other kernels apply
/// bias and ReLU afterwards. Both exist with TF32, too.
extern const cuda_detail::ConvAlgorithm kFused, kEngine, kFusedTf32, kEngineTf32;

cuda_detail::ConvLaunch launch_fused, launch_engine;  // conv2d.cpp

/// cuDNN's algorithms and those of the backend "cuda".
const cuda_detail::ConvFamily& conv_family();

}  // namespace gradus::cudnn_detail
