// How rows are sorted, and how their first k elements are found.
#include <gradus/backends/cuda/index/select.h>

#include <bit>

#include <gradus/backends/cuda/device/divisor.h>
#include <gradus/backends/cuda/device/radix_sort.h>

namespace gradus::cuda_detail {
namespace {

constexpr int64_t kMostThreads = 1024;
constexpr int64_t kLongRow = 1 << 17;

uint32_t power_of_two(int64_t n) { return static_cast<uint32_t>(std::bit_ceil(static_cast<uint64_t>(n))); }

}  // namespace

SortPlan select_sort(DType dtype, int64_t rows, int64_t size) {
  SortPlan plan;
  // Blocks of rows of a few elements would be idle for the most part: many of those are sorted at once.
  if (size <= kBlockSort && (size >= 64 || rows <= 1 << 14)) {
    plan.algorithm = SortAlgorithm::bitonic_sort;
    plan.slots = power_of_two(size);
    plan.threads = static_cast<uint32_t>(std::clamp<int64_t>(plan.slots / 2, 32, kMostThreads));
    return plan;
  }
  const size_t key_bytes = size_of(dtype) == 8 ? 8 : 4;
  plan.key_bits = static_cast<int>(size_of(dtype) == 1 ? 8 : 8 * key_bytes);
  plan.row_bits = bits_of(rows);
  plan.workspace_bytes = radix_sort_bytes(key_bytes, rows * size);
  return plan;
}

TopkPlan select_topk(int64_t rows, int64_t size, int64_t k, const DeviceProperties& device) {
  const bool few_long = size > kLongRow && rows < device.multiprocessors;  // are sorted by all multiprocessors
  if (k > kBlockTopk || few_long || size > kMaxChunk || rows > kMaxChunk) return {};
  const auto threads = std::clamp<int64_t>(power_of_two(size), 32, kMostThreads);
  return {TopkAlgorithm::radix_select, static_cast<uint32_t>(threads), power_of_two(k)};
}

}  // namespace gradus::cuda_detail
