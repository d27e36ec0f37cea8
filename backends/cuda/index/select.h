// The one place that decides how the backend "cuda" sorts: algorithm, slots and workspace. Host code without CUDA, so
// that decisions are tested and planned where there is no GPU.
#pragma once

#include <cstdint>

#include <gradus/core/array/dtype.h>

namespace gradus::cuda_detail {

/// Elements of a row that a block sorts.
inline constexpr int64_t kBlockSort = 2048;

enum class SortAlgorithm : uint8_t {
  block_sort,  ///< a block for each row, CUB's radix sort in shared memory
  radix_sort,  ///< CUB's, of all elements by key and then by row, which a stable sort keeps in order
};

struct SortPlan {
  SortAlgorithm algorithm = SortAlgorithm::radix_sort;
  uint32_t slots = 0;              ///< block_sort: elements that a block has room for: 256, 1024 or 2048
  int key_bits = 0, row_bits = 0;  ///< radix_sort: of an element's key, of a row's number
  size_t workspace_bytes = 0;      ///< radix_sort: all scratch memory

  const char* name() const { return algorithm == SortAlgorithm::block_sort ? "block_sort" : "radix_sort"; }
};

/// Of `rows` rows of `size` elements each, none of them 0.
SortPlan select_sort(DType dtype, int64_t rows, int64_t size);

}  // namespace gradus::cuda_detail
