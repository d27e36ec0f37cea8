// Chooses how rows are sorted. The other operators of this folder have one algorithm.
#include <gradus/backends/cuda/index/select.h>

#include <gradus/backends/cuda/device/radix_sort.h>

namespace gradus::cuda_detail {

SortPlan select_sort(DType dtype, int64_t rows, int64_t size) {
  SortPlan plan;
  // A block that sorts one short row would be mostly idle, so it sorts many short rows together.
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
