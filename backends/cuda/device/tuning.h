// What the estimates of all families are made of (core/kernel_choice.h): math modes, the tuning table of this backend,
// and the work of kernels that compute tiles. Host code without CUDA.
#pragma once

#include <cstddef>
#include <initializer_list>

#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/array/dtype.h>
#include <gradus/core/kernel_choice.h>

namespace gradus::cuda_detail {

#ifdef GRADUS_WITHOUT_KERNELS
constexpr bool kHasKernels = false;
#else
constexpr bool kHasKernels = true;
#endif

/// How operands are multiplied: float32 on the FMA units, float32 rounded to TF32 on tensor cores, or half types on
/// tensor cores.
enum class MathMode { fma, tf32, half };

/// The tile of results that a warp computes on tensor cores (mma_tile.cuh).
inline constexpr int kWarpRows = 32, kWarpColumns = 64;
/// Bytes of depth (the dimension summed over) in a row of such a tile in shared memory.
inline constexpr size_t kRowBytes = 64;

/// backends/cuda/tuning_table.txt, and the file that GRADUS_TUNING names.
const TuningTable& tuning_table();
/// The devices of the table. All devices use the factors of an H200, so the index of a problem's device is 0, and
/// scaled_to() accounts for their differences.
inline std::vector<std::string> tuned_devices() { return {"h200"}; }
/// Converts work on `device` to the work that an H200 would do in the same time.
KernelWork scaled_to(const DeviceProperties& device, const WorkParts& parts, KernelWork work);

inline double number(int64_t count) { return static_cast<double>(count); }

/// The largest power of two up to `most` that divides the address.
inline int64_t alignment_of(const void* data, int64_t most = 256) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(most);
  return static_cast<int64_t>(address & ~(address - 1));
}

/// A hash of a list of sizes, for RecentPlans.
inline uint64_t hash_of(std::initializer_list<int64_t> sizes) {
  uint64_t hash = 0;
  for (const int64_t each : sizes) hash = hash * 8191 + static_cast<uint64_t>(each);
  return hash;
}

/// The algorithm that a test or benchmark forces (ForcedAlgorithm) if it can run, otherwise `preferred`.
template <class Algorithm, class Problem>
const Algorithm& forced_or(const KernelFamily<Algorithm>& family, const Problem& problem, const Algorithm& preferred) {
  if (const char* const forced = ForcedAlgorithm::current())
    for (const Algorithm* each : family.algorithms)
      if (std::string_view(forced) == each->name && each->can_run(problem)) return *each;
  return preferred;
}

// In most kernels each block computes a tile in steps. The work of all these kernels is counted in the same parts.

/// The parts of the work of such kernels, in this order.
enum TilePart {
  kMultiplyAdds,  // multiply-adds of the busiest multiprocessor, with padding, times the number of multiprocessors
  kSteps,         // steps that run one after the other: the steps of a block times the number of waves
  kTileBytes,     // bytes that all blocks together load for their tiles
  kTileElements,  // elements that threads load one by one
  kBytes,         // bytes of the operands and the result; each byte is counted once
  kPartBytes,     // bytes of partial sums, which one kernel stores and another adds
  kWaves,         // waves of blocks
  kBlocks,        // blocks that the busiest multiprocessor runs
  kLaunches,
  kClusterBlocks,  // blocks of clusters, which exchange their sums
};
inline constexpr WorkParts kTileParts = {{{"multiply_adds", WorkLimit::multiply_adds},
                                          {"steps", WorkLimit::calls},
                                          {"tile_bytes", WorkLimit::bytes},
                                          {"tile_elements", WorkLimit::bytes},
                                          {"bytes", WorkLimit::bytes},
                                          {"part_bytes", WorkLimit::bytes},
                                          {"waves", WorkLimit::calls},
                                          {"blocks", WorkLimit::calls},
                                          {"launches", WorkLimit::calls},
                                          {"cluster_blocks", WorkLimit::calls}}};

/// The number of multiply-adds of this type and mode that take as long as one float32 multiply-add on the FMA units.
constexpr double multiply_adds_at_once(DType dtype, MathMode mode) {
  if (dtype == DType::f64) return 0.5;
  return mode == MathMode::fma ? 1 : mode == MathMode::tf32 ? 8 : 16;
}

/// How cuBLASLt multiplies; `tf32` is cuda::matmul_allow_tf32().
inline MathMode library_mode(DType dtype, bool tf32, const DeviceProperties& device) {
  if (size_of(dtype) == 2) return MathMode::half;
  return dtype == DType::f32 && tf32 && device.has_tensor_cores() ? MathMode::tf32 : MathMode::fma;
}
/// The kinds of matrix products. Each kind has its own factors in the tuning table.
inline constexpr const char* kProductTypes[] = {"float32", "tf32", "half", "float64"};
constexpr size_t kind_of(DType dtype, MathMode mode) { return dtype == DType::f64 ? 3 : static_cast<size_t>(mode); }

/// A launch whose blocks compute tiles of the same size.
struct TileWork {
  int64_t blocks = 1, resident = 1;  ///< number of blocks, and of those that a multiprocessor runs at a time
  int64_t steps = 1;                 ///< steps of a block
  int64_t multiply_adds = 0, bytes = 0, elements = 0;  ///< per step; `elements` are loaded one by one
};

/// Sums up the work of the launches of an operator, whose operands and result have `bytes` bytes.
class WorkCounter {
 public:
  WorkCounter(const DeviceProperties& device, DType dtype, MathMode mode, double bytes)
      : device_(device), dtype_(dtype), at_once_(multiply_adds_at_once(dtype, mode)) {
    work_[kBytes] = bytes;
  }

  void add_tiles(const TileWork& launch);
  /// Adds the launch of a second kernel that adds `splits` partial sums for each of `results` results.
  void add_parts(int64_t splits, int64_t results) {
    work_[kPartBytes] += number(2 * splits * results * (dtype_ == DType::f64 ? 8 : 4));
    work_[kLaunches] += 1;
  }
  void add(TilePart part, int64_t amount) { work_[part] += number(amount); }
  KernelWork work() const { return scaled_to(device_, kTileParts, work_); }

 private:
  const DeviceProperties& device_;
  const DType dtype_;
  const double at_once_;
  KernelWork work_ = {};
};

}  // namespace gradus::cuda_detail
