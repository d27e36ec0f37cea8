// CUB's radix sort, which is stable. This file compiles it once for all kernels that sort.
#include <gradus/backends/cuda/device/radix_sort.h>

#include <cub/device/device_radix_sort.cuh>

#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus::cuda_detail {

template <class Key>
void RadixSort<Key>::sort(Device device, int bits) {
  const Launch launch(device);
  cub::DoubleBuffer<Key> key_buffers(keys, other_keys);
  cub::DoubleBuffer<int32_t> place_buffers(places, other_places);
  const auto call = [&](void* memory, size_t& bytes) {
    GRADUS_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(memory, bytes, key_buffers, place_buffers,
                                                      static_cast<int>(count), 0, bits, launch.stream()));
    check_launch(launch.stream());
  };
  size_t bytes = 0;
  if (is_recording(DeviceType::cuda)) return;  // arrays of a recorded step have no memory that CUB could write to
  call(nullptr, bytes);
  GRADUS_CHECK(bytes <= radix_scratch_bytes(count), DeviceError, "CUB's radix sort of ", count, " keys asks for ",
               bytes, " bytes of scratch memory, more than the ", radix_scratch_bytes(count), " that it is given");
  call(scratch, bytes);
  keys = key_buffers.Current(), other_keys = key_buffers.Alternate();
  places = place_buffers.Current(), other_places = place_buffers.Alternate();
}

template struct RadixSort<uint32_t>;
template struct RadixSort<uint64_t>;

}  // namespace gradus::cuda_detail
