// positions = the indices of the true elements of x in row-major order.  Layout: any strides.
// CUB's DeviceSelect, which chooses grid and block, selects the running indices of the true elements in one pass; its
// output iterator converts each of them to a row of positions.
// Deterministic: the results are integers in a defined order.
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/tabulate_output_iterator.h>
#include <cub/device/device_select.cuh>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

struct IsTrue {
  const bool* x;
  Geometry<1> geometry;
  __device__ bool operator()(uint32_t i) const { return x[geometry.offset(i)]; }
};

// Converts the running index of a true element to a row of positions.
struct StorePosition {
  int ndim = 0;
  Divisor size[kMaxDims];
  int64_t* positions = nullptr;
  int64_t row_step = 0, column_step = 0;
  __device__ void operator()(int64_t row, uint32_t number) const {
    for (int axis = ndim - 1; axis >= 0; --axis) {
      uint32_t index = number;
      number = size[axis].split(index);
      positions[row * row_step + axis * column_step] = index;
    }
  }
};

}  // namespace

void CudaBackend::nonzero(const View& x, const MutableView& positions) {
  EventScope event("nonzero", "cuda", "select", {&x, &positions});
  const Nest<1> nest = Nest<1>::logical(x.shape, {&x.strides});
  if (nest.numel == 0 || positions.numel() == 0) return;
  GRADUS_CHECK(nest.numel < kMaxChunk, ShapeError, "cuda looks for non-zeros in fewer than ", kMaxChunk,
               " elements at once, got ", nest.numel, "; look in parts");
  const Launch launch(x.device);
  StorePosition store{.ndim = x.ndim(),
                      .positions = positions.as<int64_t>(),
                      .row_step = positions.strides[0],
                      .column_step = positions.strides[1]};
  for (int axis = 0; axis < x.ndim(); ++axis) store.size[axis] = Divisor(x.shape[axis]);
  const Scratch found(sizeof(uint32_t), x.device);  // CUB stores the count here; `positions` has that many rows
  const auto select = [&](void* memory, size_t& bytes) {
    GRADUS_CUDA_CHECK(cub::DeviceSelect::If(
        memory, bytes, thrust::counting_iterator<uint32_t>(0), thrust::make_tabulate_output_iterator(store),
        found.as<uint32_t>(), static_cast<int>(nest.numel), IsTrue{x.as<bool>(), nest.geometry()}, launch.stream()));
    check_launch(launch.stream());
  };
  size_t bytes = 0;
  select(nullptr, bytes);
  const Scratch scratch(std::max<size_t>(bytes, 1), x.device);
  select(scratch.data(), bytes);
}

}  // namespace gradus
