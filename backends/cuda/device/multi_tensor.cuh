// Kernels over the elements of many tensors in few launches: a block processes kPerBlock elements of one tensor, and
// the tensors' addresses are a kernel argument.
#pragma once

#include <iterator>
#include <span>
#include <vector>

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

/// Up to kMaxTensors tensors as a kernel argument; an Entry holds the addresses of one tensor. All arguments of a
/// kernel together must fit in 4 KiB.
template <class Entry, int kMaxTensors, int64_t kPerBlock>
struct TensorTable {
  struct Tensor {
    Entry entry;
    int64_t numel;
    uint32_t first_block;
  };
  Tensor tensors[kMaxTensors];
  int count = 0;
  uint32_t blocks = 0;  // in the grid

  void add(const Entry& entry, int64_t numel) {
    tensors[count++] = {entry, numel, blocks};
    blocks += static_cast<uint32_t>(ceil_div(numel, kPerBlock));
  }
  /// Returns the tensor that this block processes, and the range [begin, end) of its elements.
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

/// Calls launch(table) with as many tables as all tensors need. add(table, tensor) adds or skips a tensor.
template <class Table, class Tensors, class Add, class Launch>
void for_each_table(const Tensors& tensors, Add&& add, Launch&& launch) {
  Table table;
  for (const auto& tensor : tensors) {
    if (table.count == std::ssize(table.tensors)) launch(table), table = {};
    add(table, tensor);
  }
  if (table.blocks > 0) launch(table);
}

/// Calls f.operator()<T>() for each type that a parameter can have.
template <class F>
void for_each_floating(F&& f) {
  f.template operator()<float>(), f.template operator()<double>();
  f.template operator()<Half>(), f.template operator()<BFloat16>();
}

/// The tensors for which flat() is false: one running index cannot address all their elements, and the default bodies
/// of the composites process them.
template <class Tensor, class Flat>
std::vector<Tensor> not_flat(std::span<const Tensor> tensors, Flat&& flat) {
  std::vector<Tensor> rest;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(rest), [&](const Tensor& t) { return !flat(t); });
  return rest;
}

}  // namespace gradus::cuda_detail
