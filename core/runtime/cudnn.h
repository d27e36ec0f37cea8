// What the backend "cudnn" may do, as torch.backends.cudnn says it in Python. The switches are of the whole process and
// count from the next call on; a captured graph keeps what it was captured with. They are here in every build and do
// nothing where there is no cuDNN.
#pragma once

#include <cstddef>

namespace gradus::cudnn {

/// True when this build has cuDNN and this machine a CUDA device.
bool is_available();

/// May convolutions of float32 round what they multiply to TF32 (10 bits of mantissa), which tensor cores take? The
/// sums stay in float32. True at the start, as in PyTorch.
bool allow_tf32();
void set_allow_tf32(bool allow);

/// Only engines that give the same bits run after run? True at the start (PyTorch: false).
bool deterministic();
void set_deterministic(bool only);

/// Choose the engine by timing all of them at the first call of a configuration, instead of by cuDNN's heuristics?
/// False at the start. The choice, and with it the last bits, may then differ from run to run.
bool benchmark();
void set_benchmark(bool time);

/// Does cuDNN run the convolutions too that the backend "cuda" is faster at? False at the start: its kernels take those
/// of few channels, where they mask by ReLU and sum for the bias as they go, 3x3 of half types on Hopper, and much of
/// exact float32 (docs/guide/gpu.md).
bool small_convolutions();
void set_small_convolutions(bool all);

/// The most bytes of scratch memory that an engine may take; 256 MiB at the start.
size_t workspace_limit();
void set_workspace_limit(size_t bytes);

}  // namespace gradus::cudnn
