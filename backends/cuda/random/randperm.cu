// A permutation of 0 … n - 1: the order of random 64-bit keys, ties by index, as core/random.h defines it.
// A thread makes a key; CUB sorts them.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/device/radix_sort.h>
#include <gradus/core/observer.h>
#include <gradus/core/random.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

__global__ void __launch_bounds__(kThreads)
    keys_kernel(RandomState state, uint64_t* keys, int32_t* indices, int64_t n) {
  const uint64_t offset = state.offset + (state.device_offset ? *state.device_offset : 0);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = thread_index(); i < n; i += step) {
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
  const Scratch workspace(radix_sort_bytes(sizeof(uint64_t), n), y.device);
  RadixSort<uint64_t> by_key(workspace.data(), n);
  launch(keys_kernel, launch.blocks(n, kThreads), kThreads, state, by_key.keys, by_key.places, n);
  by_key.sort(y.device, 64);
  View order = y;
  order.data = by_key.places, order.strides = Strides{1}, order.dtype = DType::i32;
  copy(order, y);
}

}  // namespace gradus
