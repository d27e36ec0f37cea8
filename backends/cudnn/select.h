// cuDNN's convolutions as algorithms that select() can choose, like those of the backend "cuda" (conv2d/select.h). Host
// code without CUDA.
#pragma once

#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cudnn_detail {

/// kFused: an engine that also applies bias and ReLU. kFlipped: dgrad as fprop with flipped and transposed filters.
/// kEngine: an engine for the convolution alone; other kernels apply bias and ReLU afterwards.
extern const cuda_detail::ConvAlgorithm kFused, kFlipped, kEngine;
/// kFused and kEngine with TF32. kFlipped has no such variant, because it is faster only in exact float32.
extern const cuda_detail::ConvAlgorithm kFusedTf32, kEngineTf32;

cuda_detail::ConvLaunch launch_fused, launch_flipped, launch_engine;  // conv2d.cpp

/// cuDNN's algorithms and those of the backend "cuda".
const cuda_detail::ConvFamily& conv_family();

/// Rewrites the dgrad of a convolution with stride 1 as the fprop of dy with flipped and transposed filters. The
/// flipped filters are a dense array.
cuda_detail::ConvProblem flip_transpose(const cuda_detail::ConvProblem& problem);

}  // namespace gradus::cudnn_detail
