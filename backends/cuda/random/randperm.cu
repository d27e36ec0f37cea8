// A permutation of 0 … n - 1: the order of random 64-bit keys, ties by index, as core/random.h defines it.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/device/radix_sort.h>
#include <gradus/core/observer.h>
#include <gradus/core/random.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Scratch;

__global__ void __launch_bounds__(kThreads)
    keys_kernel(RandomState state, uint64_t* keys, int32_t* indices, int64_t n) {
  const uint64_t offset = state.offset + (state.device_offset ? *state.device_offset : 0);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = cuda_detail::thread_index(); i < n; i += step) {
    keys[i] = random_bits64(state.seed, offset, static_cast<uint64_t>(i));
    indices[i] = static_cast<int32_t>(i);
  }
}

}  // namespace

void CudaBackend::randperm(const MutableView& y, const RandomState& state) {
  EventScope event("randperm", "cuda", "radix_sort", {});
  const int64_t n = y.numel();
  if (n == 0) return;
  GRADUS_CHECK(n <= INT32_MAX, ShapeError, "cuda permutes at most 2^31 - 1 numbers, got ", n);
  const Launch launch(y.device);
  const auto count = static_cast<size_t>(n);
  const Scratch keys(sizeof(uint64_t) * count, y.device), sorted_keys(sizeof(uint64_t) * count, y.device);
  const Scratch indices(sizeof(int32_t) * count, y.device), order(sizeof(int32_t) * count, y.device);
  launch(keys_kernel, launch.blocks(n, kThreads), kThreads, state, keys.as<uint64_t>(), indices.as<int32_t>(), n);
  cuda_detail::radix_sort(y.device, keys.as<uint64_t>(), sorted_keys.as<uint64_t>(), indices.as<int32_t>(),
                          order.as<int32_t>(), n, 64);
  View sorted = y;
  sorted.data = order.data(), sorted.strides = Strides{1}, sorted.dtype = DType::i32;
  copy(sorted, y);
}

}  // namespace gradus
