// Packs of an image's neighbours in memory, channels of a channels-last pixel or columns of a row, that a thread loads
// and stores at once.
#pragma once

#include <gradus/core/scalar_ops.h>
#include <gradus/backends/cuda/device/packs.cuh>

namespace gradus::cuda_detail {

enum class Along { columns, channels };

/// Which of an image's elements lie side by side.
inline Along neighbours_of(const View& image) {
  return image.shape[1] > 1 && image.strides[1] == 1 ? Along::channels : Along::columns;
}

/// Whether `pack` neighbours at a time can be loaded and stored as a Pack.
template <class T>
bool has_packs(const View& view, Along along, int pack) {
  if (pack == 1) return true;
  const int axis = along == Along::channels ? 1 : 3;
  const int64_t aligned = std::min<int64_t>(pack, 16 / sizeof(T));
  for (int i = 0; i < 4; ++i)
    if (i == axis ? view.strides[i] != 1 || view.shape[i] % pack != 0
                  : view.shape[i] != 1 && view.strides[i] % aligned != 0)
      return false;
  return reinterpret_cast<uintptr_t>(view.data) % (aligned * sizeof(T)) == 0;
}

/// Calls run<pack>() with the largest pack that fits(pack), a power of two up to kPack; 1 always does.
template <int kPack, class Fits, class Run>
void run_largest(const Fits& fits, const Run& run) {
  if constexpr (kPack > 1) {
    if (!fits(kPack)) return run_largest<kPack / 2>(fits, run);
  }
  run.template operator()<kPack>();
}

}  // namespace gradus::cuda_detail
