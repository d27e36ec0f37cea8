// The one place that decides how the backend "cuda" multiplies matrices: algorithm, math mode, tile, split-K and
// workspace. Host code without CUDA, so that decisions are tested and planned where there is no GPU.
#pragma once

#include <optional>

#include <gradus/backends/cuda/device/math_mode.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

enum class GemmAlgorithm : uint8_t {
  integer,      ///< integer_matmul.cu: types that no library multiplies
  small_dots,   ///< small_matmul.cu: lanes multiply what they loaded; few results, operands contiguous along K
  small_tiles,  ///< small_matmul.cu: tiles in shared memory; results that do not fill the device
  library,      ///< library.cpp: cuBLASLt
};

/// Results of a block.
struct GemmTile {
  int rows = 0, columns = 0;
};
inline constexpr GemmTile kDotTile{8, 4}, kSmallTile{16, 32};
inline constexpr int kGemmWarps = 8;  ///< of a block, at most
inline constexpr int kGemmVec = 4;    ///< elements that a lane loads at once where it can

/// A matrix as cuBLASLt has it: column-major, `leading` elements from column to column, multiplied transposed or as it
/// is.
struct LibraryMatrix {
  bool transposed = false;
  int64_t leading = 0;
};

/// Scratch memory of the library, the first of the workspace: what cuBLAS recommends for sm_90.
inline constexpr size_t kLibraryWorkspace = size_t{32} << 20;

/// A decision. Fields that an algorithm does not use are zero.
struct GemmPlan {
  GemmAlgorithm algorithm = GemmAlgorithm::library;
  MathMode math_mode = MathMode::fma;
  bool swapped = false;        ///< yᵀ = bᵀ aᵀ is computed; what follows is said of that product
  bool adds_bias = false;      ///< the bias is part of the result, else left to others
  size_t workspace_bytes = 0;  ///< all scratch memory: first the library's, then copies
  /// Offsets in the workspace of dense copies; none: the operand is used as it is.
  std::optional<size_t> a_copy = {}, b_copy = {}, y_copy = {};

  GemmTile tile = {};    ///< small_*
  uint32_t split_k = 1;  ///< small_tiles: blocks of a cluster that share K; their sums are added in order
  uint32_t threads = 0;  ///< small_*: of a block
  bool a_vectorized = false, b_vectorized = false;  ///< small_*: kGemmVec elements at a time

  LibraryMatrix a = {}, b = {}, y = {};  ///< library
  int64_t batch = 1;                     ///< library: products …
  int64_t batch_steps[3] = {};           ///< … and elements from one matrix of a, b, y to the next

  /// For observers: "small_dots", "cublaslt", …
  const char* name() const;
};

/// A view of the transposes of its matrices.
template <class AnyView>
AnyView transposed(AnyView view) {
  const int n = view.ndim();
  std::swap(view.shape[n - 1], view.shape[n - 2]);
  std::swap(view.strides[n - 1], view.strides[n - 2]);
  return view;
}

/// How to compute y = a b: a (…, M, K), b (…, K, N), y (…, M, N) with the same leading sizes; K and y are not empty.
/// Of the views shapes, strides, type and the addresses' alignment count; null is aligned. The bias (N,) may be null.
/// `tf32`: cuda::matmul_allow_tf32().
GemmPlan select_gemm(const View& a, const View& b, const View* bias, const View& y, const DeviceProperties& device,
                     bool tf32);

}  // namespace gradus::cuda_detail
