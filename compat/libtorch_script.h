// What <torch/script.h> is with gradus::libtorch: everything that <gradus/torch.h> has, and for the names of
// TorchScript an error that says what to do instead.
#pragma once
#include <gradus/torch.h>

#define GRADUS_NO_TORCHSCRIPT                                                                            \
  __attribute__((                                                                                        \
      unavailable("gradus has no TorchScript: write the model with torch::nn and load its weights from " \
                  "a safetensors file (docs/guide/pytorch_weights.md)")))
namespace torch::jit {
struct GRADUS_NO_TORCHSCRIPT Module {};
struct GRADUS_NO_TORCHSCRIPT IValue {};
template <class... Args>
GRADUS_NO_TORCHSCRIPT int load(Args&&...);
namespace script {
struct GRADUS_NO_TORCHSCRIPT Module {};
}  // namespace script
}  // namespace torch::jit
namespace c10 {
struct GRADUS_NO_TORCHSCRIPT IValue {};
}  // namespace c10
#undef GRADUS_NO_TORCHSCRIPT
