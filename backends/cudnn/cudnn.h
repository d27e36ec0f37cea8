// The backend that this folder provides to the registry.
#pragma once

#include <memory>

#include <gradus/core/backend.h>

namespace gradus {

/// The backend "cudnn": the backend "cuda" with cuDNN's convolutions where they are faster. Needs the CUDA runtime.
std::unique_ptr<Backend> make_cudnn_backend();

}  // namespace gradus
