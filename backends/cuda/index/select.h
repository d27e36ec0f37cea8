// Decides how the backend "cuda" sorts: algorithm, slots and workspace. Host code without CUDA, so that decisions can
// be tested, and memory planned, on machines without a GPU.
#pragma once

#include <cstdint>

#include <gradus/core/array/dtype.h>

namespace gradus::cuda_detail {

/// The most elements of a row that a block sorts.
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
SortPlan select_sort(DType dtype, int64_t rows, int64_t size);

}  // namespace gradus::cuda_detail
