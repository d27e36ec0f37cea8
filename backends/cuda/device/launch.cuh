// Launching kernels, and indexing strided views in kernels.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>

#include <gradus/backends/cuda/device/divisor.h>
#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/core/array/strided_loop.h>

namespace gradus::cuda_detail {

/// Options of a launch beyond its grid and block.
struct LaunchOptions {
  size_t shared_bytes = 0;  ///< dynamic shared memory; with static memory possibly above the default limit of 48 KiB
  dim3 cluster = 1;         ///< blocks in a cluster (DeviceProperties::has_clusters); the grid is a multiple of it
  /// Programmatic dependent launch: blocks may start while the previous kernel of the stream runs, as soon as every
  /// block of that kernel has called launch_dependents() or ended. All threads must call wait_for_grid() before they
  /// access memory that an earlier kernel may still read or write. On devices without clusters the launch is ordinary.
  bool early = false;
};

/// Lets the next kernel of the stream start, if its launch is early.
__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Waits until the previous kernels of the stream have ended.
__device__ inline void wait_for_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Makes a device current during its lifetime, and launches kernels on this thread's stream of the device.
class Launch {
 public:
  explicit Launch(Device device)
      : guard_(device.index()), stream_(current_stream(device.index())),
        properties_(device_properties(device.index())) {}

  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), dim3 grid, dim3 block, const Arguments&... arguments) const {
    with({}, kernel, grid, block, arguments...);
  }
  template <class... Parameters, class... Arguments>
  void with(const LaunchOptions& options, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            const Arguments&... arguments) const {
    const auto& [bytes, cluster, early] = options;
    if (bytes > size_t{24} << 10)
      GRADUS_CUDA_CHECK(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
    cudaLaunchAttribute attributes[2] = {};
    unsigned count = 0;
    const auto add = [&](cudaLaunchAttributeID id) -> cudaLaunchAttributeValue& {
      attributes[count].id = id;
      return attributes[count++].val;
    };
    if (early && properties_.has_clusters())
      add(cudaLaunchAttributeProgrammaticStreamSerialization).programmaticStreamSerializationAllowed = 1;
    if (cluster.x * cluster.y * cluster.z > 1)
      add(cudaLaunchAttributeClusterDimension).clusterDim = {cluster.x, cluster.y, cluster.z};
    const cudaLaunchConfig_t configuration{grid, block, bytes, stream_, attributes, count};
    if (count > 0) GRADUS_CUDA_CHECK(cudaLaunchKernelEx(&configuration, kernel, Parameters(arguments)...));
    else kernel<<<grid, block, bytes, stream_>>>(arguments...);
    check_launch(stream_);
  }
  cudaStream_t stream() const { return stream_; }
  int multiprocessors() const { return properties_.multiprocessors; }
  /// Number of blocks for a grid-stride loop over `count` items, of which a block processes `per_block` in each step of
  /// the loop. It is limited to 32 blocks per multiprocessor; with fewer blocks than items need, the loop takes more
  /// steps.
  uint32_t blocks(int64_t count, int64_t per_block) const {
    return u32(std::clamp<int64_t>(ceil_div(count, per_block), 1, 32 * multiprocessors()));
  }

 private:
  DeviceGuard guard_;
  cudaStream_t stream_;
  const DeviceProperties& properties_;
};

/// The index of this thread in a one-dimensional grid, and the grid's number of threads.
__device__ inline uint32_t thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline uint32_t thread_count() { return gridDim.x * blockDim.x; }

/// A loop nest over N views as a kernel argument. offsets() maps the running index of an element to its offset in each
/// view.
template <int N>
struct Geometry {
  int ndim = 0;
  uint32_t numel = 1;
  bool vectorised = false;  // the kernel accesses aligned vectors; set by the code that launches it
  Divisor size[kMaxDims];
  int64_t strides[N][kMaxDims] = {};

  __device__ void offsets(uint32_t i, int64_t (&at)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = 0;
    for (int axis = ndim - 1; axis >= 0; --axis) {
      uint32_t index = i;
      i = size[axis].split(index);
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += index * strides[k][axis];
    }
  }
  /// The offset of element i, for a nest over a single view.
  __device__ int64_t offset(uint32_t i) const requires(N == 1) {
    int64_t at[1];
    offsets(i, at);
    return at[0];
  }
};

/// A loop nest over N views on the host. It may have more elements than one launch can index.
template <int N>
struct Nest : StridedLoop<N> {
  using StridedLoop<N>::StridedLoop;
  /// A nest whose running index follows the logical (row-major) order of `shape`. The constructor instead sorts the
  /// axes by the strides of the first view.
  static Nest logical(const Shape& shape, const Strides* const (&views)[N]) { return Nest(shape, views, true); }

  Geometry<N> geometry() const {
    Geometry<N> result;
    result.ndim = this->ndim;
    result.numel = u32(this->numel);
    for (int axis = 0; axis < this->ndim; ++axis) result.size[axis] = Divisor(this->shape[axis]);
    for (int k = 0; k < N; ++k) std::copy_n(this->strides[k], this->ndim, result.strides[k]);
    return result;
  }
};

/// Calls body(chunk, first, base) for chunks of the nest with at most kMaxChunk elements: `first` is the running index
/// of the chunk's first element, base[k] its offset in view k.
template <int N, class F>
void for_each_chunk(const Nest<N>& nest, F&& body, int64_t first = 0,
                    const std::type_identity_t<std::array<int64_t, N>>& base = {}) {
  if (nest.numel == 0) return;
  if (nest.numel <= kMaxChunk) return body(nest, first, base.data());
  const int axis = static_cast<int>(std::find_if(nest.shape, nest.shape + nest.ndim, [](int64_t n) { return n > 1; }) -
                                    nest.shape);  // the outermost axis that can be divided
  const int64_t size = nest.shape[axis], inner = nest.numel / size, rows = std::max<int64_t>(kMaxChunk / inner, 1);
  Nest<N> chunk = nest;
  for (int64_t row = 0; row < size; row += rows) {
    chunk.shape[axis] = std::min(rows, size - row);
    chunk.numel = chunk.shape[axis] * inner;
    std::array<int64_t, N> at = base;
    for (int k = 0; k < N; ++k) at[k] += row * nest.strides[k][axis];
    for_each_chunk(chunk, body, first + row * inner, at);
  }
}

/// Calls f(i, offsets) for each element of the nest, one element per thread and step. The index i and the offsets are
/// relative to the chunk's first element.
template <int N, class F>
__global__ void __launch_bounds__(kThreads) for_each_kernel(Geometry<N> geometry, F f) {
  for (uint32_t i = thread_index(); i < geometry.numel; i += thread_count()) {
    int64_t at[N];
    geometry.offsets(i, at);
    f(i, at);
  }
}

/// For each chunk of the nest, calls make(base) on the host, where base[k] is the chunk's first offset in view k, and
/// then, on the device, calls the function f(i, offsets) that make() returned for each element of the chunk.
template <int N, class Make>
void for_each(const Launch& launch, const Nest<N>& nest, const Make& make) {
  for_each_chunk(nest, [&](const Nest<N>& chunk, int64_t, const int64_t* base) {
    const auto f = make(base);
    launch(for_each_kernel<N, std::remove_const_t<decltype(f)>>, launch.blocks(chunk.numel, kThreads), kThreads,
           chunk.geometry(), f);
  });
}

/// Calls f.template operator()<n>() with the n of kValues that equals `value`; does nothing if there is none.
template <int... kValues, class F>
void visit_constant(int value, F&& f) {
  (void)((kValues == value && (f.template operator()<kValues>(), true)) || ...);
}
/// Calls f.template operator()<T>() with the C++ type of a half type.
template <class F>
void visit_half(DType dtype, F&& f) {
  dtype == DType::f16 ? f.template operator()<Half>() : f.template operator()<BFloat16>();
}
/// Calls f.template operator()<T>() with the C++ type of float32 or a half type.
template <class F>
void visit_narrow(DType dtype, F&& f) {
  dtype == DType::f32 ? f.template operator()<float>() : visit_half(dtype, f);
}

template <class T>
bool aligned(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % (4 * sizeof(T)) == 0;
}

}  // namespace gradus::cuda_detail
