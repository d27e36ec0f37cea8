// A backend with a kernel of the ladder, for train_step --rung.
#pragma once

namespace gradus::ladders {

/// Makes the backend "rung N" the current backend for cuda. It is the backend "cuda", but uses this rung for the
/// forward convolutions with bias and ReLU that the rung supports (3x3, channels-last, float32 or bfloat16). A build
/// without CUDA throws a DeviceError.
void use_rung(int number);

}  // namespace gradus::ladders
