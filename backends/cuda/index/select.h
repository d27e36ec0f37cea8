// Decides how the backend "cuda" sorts: algorithm, slots and workspace. Host code without CUDA, so that decisions can
// be tested, and memory planned, on machines without a GPU.
#pragma once

#include <cstdint>

#include <gradus/backends/cuda/device/radix_sort.h>
#include <gradus/core/array/dtype.h>

namespace gradus::cuda_detail {

/// The maximum length of a row that one block sorts.
inline constexpr int64_t kBlockSort = 2048;

enum class SortAlgorithm : uint8_t {
  block_sort,  ///< a block for each row, by CUB's radix sort in shared memory
  radix_sort,  ///< CUB's stable radix sort of all elements, first by key and then by row
};

struct SortPlan {
  SortAlgorithm algorithm = SortAlgorithm::radix_sort;
  uint32_t slots = 0;              ///< block_sort: elements that a block has space for: 256, 1024 or 2048
  int key_bits = 0, row_bits = 0;  ///< radix_sort: bits of an element's key, and of a row's index
  size_t workspace_bytes = 0;      ///< radix_sort: all scratch memory

  const char* name() const { return algorithm == SortAlgorithm::block_sort ? "block_sort" : "radix_sort"; }
};

/// Plans the sort of `rows` rows of `size` elements; neither is 0.
inline SortPlan select_sort(DType dtype, int64_t rows, int64_t size) {
  SortPlan plan;
  // A block that sorts a single short row would be mostly idle, so very many short rows are sorted together
  // (radix_sort).
  if (size <= kBlockSort && (size >= 64 || rows <= 1 << 14)) {
    plan.algorithm = SortAlgorithm::block_sort;
    plan.slots = size <= 256 ? 256 : size <= 1024 ? 1024 : kBlockSort;
    return plan;
  }
  plan.algorithm = SortAlgorithm::radix_sort;
  const size_t key_bytes = size_of(dtype) == 8 ? 8 : 4;
  plan.key_bits = static_cast<int>(size_of(dtype) == 1 ? 8 : 8 * key_bytes);
  plan.row_bits = bits_of(rows);
  plan.workspace_bytes = radix_sort_bytes(key_bytes, rows * size);
  return plan;
}

}  // namespace gradus::cuda_detail
