// positions = indices of the true elements in row-major order.  x: any strides.
// CUB selects the running numbers of the true elements in one pass; a thread then takes one of these numbers apart.
// Deterministic: integers.
#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_select.cuh>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

struct IsTrue {
  const bool* x;
  Geometry<1> geometry;
  __device__ bool operator()(uint32_t i) const { return x[geometry.offset(i)]; }
};

// A row of positions from a running number. View: the rows.
struct StorePosition {
  int ndim = 0;
  Divisor size[kMaxDims];
  const uint32_t* numbers = nullptr;
  int64_t* positions = nullptr;
  int64_t column_step = 0;
  __device__ void operator()(uint32_t row, const int64_t (&at)[1]) const {
    uint32_t rest = numbers[row];
    for (int axis = ndim - 1; axis >= 0; --axis) {
      uint32_t index = rest;
      rest = size[axis].split(index);
      positions[at[0] + axis * column_step] = index;
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
  const int64_t count = positions.shape[0];
  const Scratch numbers(sizeof(uint32_t) * static_cast<size_t>(count + 1), x.device);  // and how many there are
  const auto select = [&](void* memory, size_t& bytes) {
    GRADUS_CUDA_CHECK(cub::DeviceSelect::If(
        memory, bytes, thrust::counting_iterator<uint32_t>(0), numbers.as<uint32_t>(), numbers.as<uint32_t>() + count,
        static_cast<int>(nest.numel), IsTrue{x.as<bool>(), nest.geometry()}, launch.stream()));
    check_launch(launch.stream());
  };
  size_t bytes = 0;
  select(nullptr, bytes);
  const Scratch scratch(std::max<size_t>(bytes, 1), x.device);
  select(scratch.data(), bytes);

  StorePosition store{.ndim = x.ndim(), .numbers = numbers.as<uint32_t>(), .column_step = positions.strides[1]};
  for (int axis = 0; axis < x.ndim(); ++axis) store.size[axis] = Divisor(x.shape[axis]);
  const Strides rows{positions.strides[0]};
  for_each(launch, Nest<1>::logical({count}, {&rows}), [&](const int64_t* base) {
    store.positions = positions.as<int64_t>() + base[0];
    return store;
  });
}

}  // namespace gradus
