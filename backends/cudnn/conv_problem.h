// A convolution that cuDNN is asked for, as one comparable value: the key by which plans are cached.
#pragma once

#include <array>
#include <string>

#include <gradus/backends/cuda/conv2d/select.h>

namespace gradus::cudnn_detail {

using cuda_detail::ConvPass;

struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  bool bias = false, relu = false;  // forward
  DType dtype = DType::f32;
  bool channels_last = false;      // the layout of all operands, which are dense and aligned
  std::array<int64_t, 4> x, w, y;  // sizes
  std::array<int64_t, 2> stride, padding, dilation;
  int device = 0;
  bool tf32 = false, deterministic = true, timed = false;  // the switches of core/runtime/cuda.h
  size_t workspace_limit = 0;

  friend auto operator<=>(const ConvProblem&, const ConvProblem&) = default;
};

/// Describes the problem in messages: "y of x (8, 3, 32, 32), w (16, 3, 3, 3), …".
std::string describe(const ConvProblem& problem);

}  // namespace gradus::cudnn_detail
