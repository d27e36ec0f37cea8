// Copies of whole tiles by the tensor memory accelerator (TMA) of devices of compute capability 9.0: one thread starts
// the copy of a box of a four-dimensional tensor. Elements of the box outside the tensor are loaded as zeros and are
// not stored. Functions are named after their PTX instructions.
#pragma once

#include <cuda.h>

#include <gradus/backends/cuda/runtime/check.h>
#include <gradus/core/array/dtype.h>
#include <gradus/backends/cuda/device/cluster.cuh>

namespace gradus::cuda_detail {

/// Returns a function of the driver, which it looks up at run time so that programs can be linked without a driver.
template <class F>
F driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  GRADUS_CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
  return reinterpret_cast<F>(function);
}
/// TMA's type for a tensor's elements. The copy rounds float32 to TF32.
inline CUtensorMapDataType tensor_map_type(DType dtype) {
  if (dtype == DType::f32) return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  return dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

/// Describes a tensor and its boxes to TMA. The first dimension is contiguous; `steps` are the strides of the other
/// dimensions in bytes. The steps and the address must be multiples of 16. A row of a box has 64 or 128 bytes. Its
/// 16-byte pieces are swizzled by their address in shared memory, as wgmma expects.
inline CUtensorMap tensor_map(const void* data, DType dtype, const cuuint64_t (&sizes)[4], const cuuint64_t (&steps)[3],
                              const cuuint32_t (&box)[4]) {
  static const auto encode = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  CUtensorMap map;
  constexpr cuuint32_t every[4] = {1, 1, 1, 1};
  const CUresult result = encode(&map, tensor_map_type(dtype), 4, const_cast<void*>(data), sizes, steps, box, every,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 box[0] * size_of(dtype) == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  GRADUS_CHECK(result == CUDA_SUCCESS, Error, "cuTensorMapEncodeTiled failed with ", static_cast<int>(result));
  return map;
}
/// Describes an image (N, C, H, W) with channels innermost to TMA, in boxes of `rows` rows of `pitch` pixels of
/// `channels` channels.
inline CUtensorMap image_map(const void* data, DType dtype, const Shape& shape, cuuint32_t channels, int pitch,
                             int rows) {
  const auto N = static_cast<cuuint64_t>(shape[0]), C = static_cast<cuuint64_t>(shape[1]);
  const cuuint64_t pixel = size_of(dtype) * C;
  const auto H = static_cast<cuuint64_t>(shape[2]), W = static_cast<cuuint64_t>(shape[3]);
  return tensor_map(data, dtype, {C, W, H, N}, {pixel, pixel * W, pixel * W * H},
                    {channels, static_cast<cuuint32_t>(pitch), static_cast<cuuint32_t>(rows), 1});
}
/// Describes to TMA an image (C, W, H, N) and boxes of 64 channels at `pixels` positions. Positions run along w, then
/// h, then n: in steps of `stride`, from the coordinate `lower` to the image's size + `upper`. A box that reaches the
/// end of a row or of an image continues in the next one. `lower`, `upper` and `stride` have the order (w, h).
inline CUtensorMap im2col_map(const void* data, DType dtype, const cuuint64_t (&sizes)[4], const cuuint64_t (&steps)[3],
                              const int (&lower)[2], const int (&upper)[2], const cuuint32_t (&stride)[2],
                              cuuint32_t pixels) {
  static const auto encode = driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  CUtensorMap map;
  const cuuint32_t strides[4] = {1, stride[0], stride[1], 1};
  const CUresult result = encode(&map, tensor_map_type(dtype), 4, const_cast<void*>(data), sizes, steps, lower, upper,
                                 64, pixels, strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  GRADUS_CHECK(result == CUDA_SUCCESS, Error, "cuTensorMapEncodeIm2col failed with ", static_cast<int>(result));
  return map;
}

/// Makes this thread's writes to shared memory visible to TMA and wgmma after the next barrier.
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Prefetches the description of the tensor, so that the first copy does not wait for it.
__device__ inline void prefetch(const CUtensorMap& tensor) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&tensor) : "memory");
}
/// Starts the copy of the box that begins at (c0, c1, c2, c3); the barrier counts its bytes.
__device__ inline void tma_load(uint32_t to, const CUtensorMap& tensor, const Mbarrier& barrier, int c0, int c1, int c2,
                                int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], "
      "[%2];" ::"r"(to),
      "l"(&tensor), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
/// Starts the copy of a box of a tensor that im2col_map() describes. The box begins at channel c and position (w, h) of
/// image n, and every position is shifted by (s, r), the offset of a filter element. The barrier counts the bytes of
/// the box.
__device__ inline void tma_load_im2col(uint32_t to, const CUtensorMap& tensor, const Mbarrier& barrier, int c, int w,
                                       int h, int n, int s, int r) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], "
      "[%2], {%7,%8};" ::"r"(to),
      "l"(&tensor), "r"(shared_address(&barrier)), "r"(c), "r"(w), "r"(h), "r"(n), "h"(static_cast<uint16_t>(s)),
      "h"(static_cast<uint16_t>(r))
      : "memory");
}
/// Starts copying a box from shared to global memory. The copy is one bulk group.
__device__ inline void tma_store(const CUtensorMap& tensor, uint32_t from, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2,%3,%4,%5}], [%1];\n\t"
      "cp.async.bulk.commit_group;" ::"l"(&tensor),
      "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
/// Waits until all of this thread's stores except the last kPending have read shared memory.
template <int kPending>
__device__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace gradus::cuda_detail
