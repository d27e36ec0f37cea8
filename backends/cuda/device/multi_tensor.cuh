// Kernels over the elements of many tensors in few launches: a block takes kPerBlock elements of one tensor; the
// tensors' addresses travel as a kernel argument.
#pragma once

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

/// Up to kMaxTensors tensors, each an Entry (addresses), as an argument: it has to fit in 4 KiB with all others.
template <class Entry, int kMaxTensors, int64_t kPerBlock>
struct TensorTable {
  struct Tensor {
    Entry entry;
    int64_t numel;
    uint32_t first_block;
  };
  Tensor tensors[kMaxTensors];
  int count = 0;
  uint32_t blocks = 0;  // of the launch

  bool full() const { return count == kMaxTensors; }
  void add(const Entry& entry, int64_t numel) {
    tensors[count++] = {entry, numel, blocks};
    blocks += static_cast<uint32_t>((numel + kPerBlock - 1) / kPerBlock);
  }
  /// The tensor that this block works on, and which elements of it.
  __device__ const Entry& part_of_block(int64_t& begin, int64_t& end) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (tensors[middle].first_block <= blockIdx.x) low = middle;
      else high = middle - 1;
    }
    begin = static_cast<int64_t>(blockIdx.x - tensors[low].first_block) * kPerBlock;
    end = min(begin + kPerBlock, tensors[low].numel);
    return tensors[low].entry;
  }
};

}  // namespace gradus::cuda_detail
