// Gradient clipping. Names as in LibTorch's torch::nn::utils.
#pragma once

#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::nn::utils {

/// The norm of all tensors taken as one vector: (sum |x|^p)^(1/p) for p > 0, or for p = infinity the largest |x|.
/// float64 if any of them is, else float32 (half types compute in it), on the first one's device, where nothing is read
/// back. 0 without tensors; undefined ones do not count. Another p is a ValueError, a type that is not floating a
/// DTypeError.
Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type = 2.0);

/// Multiplies the gradients by max_norm / (norm + 1e-6) if that is below 1, so that their norm, taken together, is at
/// most max_norm. Returns the norm that they had, which waits for the device. Parameters without gradient do not count.
///
/// A NaN or infinite norm makes gradients NaN or 0, or with error_if_nonfinite is a ValueError that leaves them as they
/// were. A max_norm that is negative or NaN is a ValueError.
double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false);
double clip_grad_norm_(const Tensor& parameter, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false);

/// The same without waiting for the device: the norm stays there. Can be captured in a graph.
Tensor clip_grad_norm_on_device_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0);

/// The second half of it, where the norm is known: of gradients that lie on several ranks, say.
void clip_grads_with_norm_(const std::vector<Tensor>& parameters, double max_norm, const Tensor& total_norm);

/// Clamps every element of the gradients to [-clip_value, clip_value]; NaN stays.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);
void clip_grad_value_(const Tensor& parameter, double clip_value);

}  // namespace gradus::nn::utils
