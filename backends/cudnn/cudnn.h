// What the registry gets from this folder.
#pragma once

#include <memory>

#include <gradus/core/backend.h>

namespace gradus {

/// The backend "cudnn": the backend "cuda" with NVIDIA's convolutions where they are faster. Needs the cuda runtime.
std::unique_ptr<Backend> make_cudnn_backend();

}  // namespace gradus
