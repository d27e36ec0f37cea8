// What the wgmma kernels share: tiles of images as TMA loads them.
#pragma once

#include <gradus/backends/cuda/conv2d/select.h>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/tma.cuh>
#include <gradus/backends/cuda/device/wgmma.cuh>

namespace gradus::cuda_detail {

/// Boxes of an image (N, C, H, W), channels innermost: `channels` of `rows` rows of `pitch` pixels.
inline CUtensorMap image_map(const void* data, DType dtype, const Shape& shape, cuuint32_t channels, int pitch,
                             int rows) {
  const auto N = static_cast<cuuint64_t>(shape[0]), C = static_cast<cuuint64_t>(shape[1]);
  const auto H = static_cast<cuuint64_t>(shape[2]), W = static_cast<cuuint64_t>(shape[3]);
  return tensor_map(data, dtype, {C, W, H, N}, {2 * C, 2 * C * W, 2 * C * W * H},
                    {channels, static_cast<cuuint32_t>(pitch), static_cast<cuuint32_t>(rows), 1});
}

/// Launches a kernel whose blocks may start while the kernel before it on the stream ends. They prepare what needs no
/// global memory and go on behind wait_for_grid(). `cluster` blocks along x are a cluster.
template <class... Parameters, class... Arguments>
void launch_early(const Launch& launch, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t bytes,
                  uint32_t cluster, const Arguments&... arguments) {
  if (bytes > size_t{48} << 10)
    GRADUS_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = cluster, attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t configuration{};
  configuration.gridDim = grid, configuration.blockDim = block, configuration.dynamicSmemBytes = bytes;
  configuration.stream = launch.stream(), configuration.attrs = attributes,
  configuration.numAttrs = cluster > 1 ? 2 : 1;
  GRADUS_CUDA_CHECK(cudaLaunchKernelEx(&configuration, kernel, Parameters(arguments)...));
  check_launch(launch.stream());
}
/// The next kernel on the stream may start, if it was launched so.
__device__ inline void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// Until the kernels before this one are done.
__device__ inline void wait_for_grid() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Calls f.template operator()<T>() for the half type.
template <class F>
void visit_half(DType dtype, F&& f) {
  dtype == DType::f16 ? f.template operator()<Half>() : f.template operator()<BFloat16>();
}

/// 16 bytes of zeros.
__device__ inline void zero_shared(uint32_t to) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
}

/// Of four lanes, lane i has word j of row j of a 4 x 4 block; afterwards it has row i.
__device__ inline void transpose_quad(uint32_t (&words)[4]) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = threadIdx.x & step;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & step) continue;
      const uint32_t got = __shfl_xor_sync(~0u, upper ? words[i] : words[i + step], step);
      (upper ? words[i] : words[i + step]) = got;
    }
  }
}

}  // namespace gradus::cuda_detail
