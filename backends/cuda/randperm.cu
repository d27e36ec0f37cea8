// A permutation of 0 … n - 1: the order of random 64-bit keys, ties by index, as core/random.h defines it. CUB's radix
// sort keeps equal keys in order.
#include <cub/device/device_radix_sort.cuh>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/core/random.h>
#include <gradus/backends/cuda/launch.cuh>

namespace gradus {
namespace {

using cuda_detail::kThreads;
using cuda_detail::Launch;
using cuda_detail::Scratch;

__global__ void __launch_bounds__(kThreads)
    keys_kernel(RandomState state, uint64_t* keys, int64_t* indices, int64_t n) {
  const uint64_t offset = state.offset + (state.device_offset ? *state.device_offset : 0);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = cuda_detail::thread_index(); i < n; i += step) {
    keys[i] = random_bits64(state.seed, offset, static_cast<uint64_t>(i));
    indices[i] = i;
  }
}

}  // namespace

void CudaBackend::randperm(const MutableView& y, const RandomState& state) {
  EventScope event("randperm", "cuda", "radix_sort", {});
  const int64_t n = y.numel();
  if (n == 0) return;
  const Launch launch(y.device);
  const size_t bytes = sizeof(int64_t) * static_cast<size_t>(n);
  const Scratch keys(bytes, y.device), sorted_keys(bytes, y.device), indices(bytes, y.device), order(bytes, y.device);
  launch(keys_kernel, launch.blocks(n, kThreads), kThreads, state, keys.as<uint64_t>(), indices.as<int64_t>(), n);
  auto sort = [&](void* scratch, size_t& scratch_bytes) {
    GRADUS_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(scratch, scratch_bytes, keys.as<uint64_t>(),
                                                      sorted_keys.as<uint64_t>(), indices.as<int64_t>(),
                                                      order.as<int64_t>(), n, 0, 64, launch.stream()));
  };
  size_t scratch_bytes = 0;
  sort(nullptr, scratch_bytes);
  const Scratch scratch(std::max<size_t>(scratch_bytes, 1), y.device);
  sort(scratch.data(), scratch_bytes);
  View sorted = y;
  sorted.data = order.data(), sorted.strides = Strides{1};
  copy(sorted, y);
}

}  // namespace gradus
