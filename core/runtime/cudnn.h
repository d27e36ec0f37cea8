// Options of the backend "cudnn", as in torch.backends.cudnn. They apply to the whole process from the next call on; a
// captured graph keeps the options in force at its capture. Builds without cuDNN have them too, without effect.
#pragma once

#include <cstddef>

namespace gradus::cudnn {

/// True if this build has cuDNN and this machine has a CUDA device.
bool is_available();

/// Whether float32 convolutions may round their inputs to TF32 (10 mantissa bits) to use tensor cores. Sums stay in
/// float32. True by default, as in PyTorch.
bool allow_tf32();
void set_allow_tf32(bool allow);

/// Whether only engines that give the same bits run after run are used. True by default (PyTorch: false).
bool deterministic();
void set_deterministic(bool only);

/// Whether the engine is chosen by timing all of them at the first call of a configuration instead of by cuDNN's
/// heuristics. False by default. The choice, and with it the last bits of results, may then differ from run to run.
bool benchmark();
void set_benchmark(bool time);

/// Whether cuDNN also runs the convolutions that the kernels of the backend "cuda" usually run faster. False by
/// default: those kernels then run convolutions with few channels, backward passes fused with ReLU and bias, 3x3
/// filters of half types on Hopper, and most of exact float32 (docs/guide/gpu.md).
bool small_convolutions();
void set_small_convolutions(bool all);

/// Maximum scratch memory of an engine in bytes; 256 MiB by default.
size_t workspace_limit();
void set_workspace_limit(size_t bytes);

}  // namespace gradus::cudnn
