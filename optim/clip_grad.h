// Gradient clipping. Names as in LibTorch's torch::nn::utils.
#pragma once

#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::nn::utils {

/// The norm of all tensors as one vector: (sum |x|^p)^(1/p) for p > 0, or the largest |x| for p = infinity. The result
/// is float64 if any tensor is, else float32 (half types are computed in float32). It is on the first tensor's device,
/// and the host does not wait for it. Undefined tensors are skipped; without tensors the norm is 0. Other values of p
/// are a ValueError, tensors of an integer type a DTypeError.
Tensor get_total_norm(const TensorList& tensors, double norm_type = 2.0);

/// Multiplies the gradients by max_norm / (norm + 1e-6) if that factor is below 1, so that their common norm is at most
/// max_norm. Returns the norm before clipping, for which the host waits. Parameters without a gradient are skipped.
///
/// A NaN or infinite norm turns gradients into NaN or 0; with error_if_nonfinite it is a ValueError, and the gradients
/// are not changed. A negative or NaN max_norm is a ValueError.
double clip_grad_norm_(const TensorList& parameters, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false);
double clip_grad_norm_(const Tensor& parameter, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false);

/// clip_grad_norm_ without waiting for the device: returns the norm as a tensor on the device. Can be captured in a
/// graph.
Tensor clip_grad_norm_on_device_(const TensorList& parameters, double max_norm, double norm_type = 2.0);

/// Clips gradients like clip_grad_norm_, but by a norm that the caller has computed, for example over the gradients of
/// several ranks.
void clip_grads_with_norm_(const TensorList& parameters, double max_norm, const Tensor& total_norm);

/// Clamps every element of the gradients to [-clip_value, clip_value]. NaN is not changed.
void clip_grad_value_(const TensorList& parameters, double clip_value);
void clip_grad_value_(const Tensor& parameter, double clip_value);

}  // namespace gradus::nn::utils
