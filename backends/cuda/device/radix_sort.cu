// CUB's radix sort, compiled once. It is stable.
#include <gradus/backends/cuda/device/radix_sort.h>

#include <cub/device/device_radix_sort.cuh>

#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {
namespace {

template <class Key>
void sort_pairs(Device device, const Key* keys, Key* sorted_keys, const int32_t* places, int32_t* order, int64_t count,
                int bits) {
  const Launch launch(device);
  const auto call = [&](void* scratch, size_t& bytes) {
    GRADUS_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted_keys, places, order,
                                                      static_cast<int>(count), 0, bits, launch.stream()));
    check_launch(launch.stream());
  };
  size_t bytes = 0;
  call(nullptr, bytes);
  const Scratch scratch(std::max<size_t>(bytes, 1), device);
  call(scratch.data(), bytes);
}

}  // namespace

void radix_sort(Device device, const uint32_t* keys, uint32_t* sorted_keys, const int32_t* places, int32_t* order,
                int64_t count, int bits) {
  sort_pairs(device, keys, sorted_keys, places, order, count, bits);
}
void radix_sort(Device device, const uint64_t* keys, uint64_t* sorted_keys, const int32_t* places, int32_t* order,
                int64_t count, int bits) {
  sort_pairs(device, keys, sorted_keys, places, order, count, bits);
}

}  // namespace gradus::cuda_detail
