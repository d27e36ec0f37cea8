// A program of LibTorch's that has its own #include lines, by the target gradus::libtorch.
using Loc = int;  // a name of the program's own, which torch.h has in another meaning
#include <ATen/core/TensorBody.h>
#include <c10/util/irange.h>
#include <torch/data/datasets/base.h>
#include <torch/nn/options/conv.h>
#include <torch/serialize/input-archive.h>
#include <torch/torch.h>

torch::Tensor counted(int64_t n) {
  torch::Tensor sum = torch::zeros({n});
  for (const auto i : c10::irange(n)) sum[i] = i;
  return sum;
}
