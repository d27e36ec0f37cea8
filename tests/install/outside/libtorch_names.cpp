// A program of LibTorch's that has its own #include lines, by the target gradus::libtorch.
#include <c10/util/irange.h>
#include <torch/torch.h>

torch::Tensor counted(int64_t n) {
  torch::Tensor sum = torch::zeros({n});
  for (const auto i : c10::irange(n)) sum[i] = i;
  return sum;
}
