// cuDNN as algorithms for convolutions, among those of the backend "cuda". Host code without CUDA.
#pragma once

#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cudnn_detail {

/// An engine with bias and ReLU, dgrad as fprop with flipped and transposed filters, and an engine for the convolution
/// alone, after which other kernels apply bias and ReLU.
extern const cuda_detail::ConvAlgorithm kFused, kFlipped, kEngine;
/// The same with TF32; kFlipped is exact.
extern const cuda_detail::ConvAlgorithm kFusedTf32, kEngineTf32;

cuda_detail::ConvLaunch launch_fused, launch_flipped, launch_engine;  // conv2d.cpp

/// Returns true if cuDNN can compute the problem, and is the faster one.
bool is_for_library(const cuda_detail::ConvProblem& problem, const cuda_detail::DeviceProperties& device);

/// The algorithms of the backend "cudnn" in the order of preference: cuDNN's before those of the backend "cuda".
cuda_detail::ConvCandidates conv_candidates();

/// Rewrites dgrad without a stride as the forward convolution of dy with dense, flipped and transposed filters.
cuda_detail::ConvProblem flip_transpose(const cuda_detail::ConvProblem& problem);

}  // namespace gradus::cudnn_detail
