// The one place that decides how the backend "cuda" sorts and finds the k first: algorithm, threads and workspace. Host
// code without CUDA, so that decisions are tested and planned where there is no GPU.
#pragma once

#include <cstdint>

#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/dtype.h>

namespace gradus::cuda_detail {

/// Elements that a block puts in order in its shared memory.
inline constexpr int64_t kBlockSort = 2048, kBlockTopk = 1024;

enum class SortAlgorithm : uint8_t {
  bitonic_sort,  ///< a block for each row
  radix_sort,    ///< CUB's, of all elements by key and then by row, which a stable sort keeps in order
};

struct SortPlan {
  SortAlgorithm algorithm = SortAlgorithm::radix_sort;
  uint32_t threads = 0, slots = 0;  ///< bitonic_sort: of a block; the power of two that a row fits in
  int key_bits = 0, row_bits = 0;   ///< radix_sort: of an element's key, of a row's number
  size_t workspace_bytes = 0;       ///< radix_sort: all scratch memory

  const char* name() const { return algorithm == SortAlgorithm::bitonic_sort ? "bitonic_sort" : "radix_sort"; }
};

/// Of `rows` rows of `size` elements each, none of them 0.
SortPlan select_sort(DType dtype, int64_t rows, int64_t size);

enum class TopkAlgorithm : uint8_t {
  radix_select,  ///< a block for each row finds the last key that belongs to the k first, digit by digit
  sort,          ///< all are sorted
};

struct TopkPlan {
  TopkAlgorithm algorithm = TopkAlgorithm::sort;
  uint32_t threads = 0, slots = 0;  ///< radix_select: of a block; the power of two that k fits in

  const char* name() const { return algorithm == TopkAlgorithm::radix_select ? "radix_select" : "sort"; }
};

/// The k first of each of `rows` rows of `size` elements.
TopkPlan select_topk(int64_t rows, int64_t size, int64_t k, const DeviceProperties& device);

}  // namespace gradus::cuda_detail
