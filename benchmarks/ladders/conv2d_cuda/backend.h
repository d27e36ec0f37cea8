// The ladder as a backend, for train_step --rung.
#pragma once

namespace gradus::ladders {

/// From now on the backend "rung N" is the current one for cuda: "cuda", with that rung for the forward convolutions
/// with bias and ReLU that it takes (3x3, channels-last, float32 or bfloat16). DeviceError in a build without CUDA.
void use_rung(int number);

}  // namespace gradus::ladders
