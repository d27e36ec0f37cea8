// Decides how the backend "cuda" multiplies matrices: algorithm, math mode, tile, split-K and workspace. Host code
// without CUDA, so that decisions can be tested, and memory planned, on machines without a GPU.
#pragma once

#include <optional>

#include <gradus/backends/cuda/device/math_mode.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

enum class GemmAlgorithm : uint8_t {
  integer,      ///< integer_matmul.cu: integers and booleans
  small_dots,   ///< small_matmul.cu: few results, operands contiguous along K; no tiles in shared memory
  small_tiles,  ///< small_matmul.cu: results that do not fill the device; tiles in shared memory
  library,      ///< library.cpp: cuBLASLt
};

/// The tile of results that a block computes.
struct GemmTile {
  int rows = 0, columns = 0;
};
inline constexpr GemmTile kDotTile{8, 4}, kSmallTile{16, 32};
inline constexpr int kGemmWarps = 8;  ///< the most warps of a block
inline constexpr int kGemmVec = 4;    ///< elements of a vectorized load

/// A matrix for cuBLASLt: column-major, with `leading` elements from column to column. If `transposed` is set, cuBLASLt
/// multiplies the transpose of the matrix.
struct LibraryMatrix {
  bool transposed = false;
  int64_t leading = 0;
};

/// Scratch memory of cuBLASLt, at the beginning of the workspace: the size that cuBLAS recommends for sm_90.
inline constexpr size_t kLibraryWorkspace = size_t{32} << 20;

/// The decision of select_gemm(). Fields that an algorithm does not use are zero.
struct GemmPlan {
  GemmAlgorithm algorithm = GemmAlgorithm::library;
  MathMode math_mode = MathMode::fma;
  bool swapped = false;        ///< yᵀ = bᵀ aᵀ is computed, and the other fields describe this product
  bool adds_bias = false;      ///< the kernel adds the bias; if false, the caller adds it
  size_t workspace_bytes = 0;  ///< all scratch memory: first cuBLASLt's, then dense copies
  /// Offsets of dense copies in the workspace; empty if the operand itself is used.
  std::optional<size_t> a_copy = {}, b_copy = {}, y_copy = {};

  GemmTile tile = {};    ///< small_*: the tile of a block
  uint32_t split_k = 1;  ///< small_tiles: blocks of a cluster that share K; their sums are added in order
  uint32_t threads = 0;  ///< small_*: threads of a block
  bool a_vectorized = false, b_vectorized = false;  ///< small_*: kGemmVec elements are loaded at once

  LibraryMatrix a = {}, b = {}, y = {};  ///< library: the matrices as cuBLASLt reads them
  int64_t batch = 1;                     ///< library: number of products
  int64_t batch_steps[3] = {};           ///< library: distances between successive matrices of a, b and y, in elements

  /// The implementation name that observers see: "small_dots", "cublaslt", …
  const char* name() const;
};

/// The view with each of its matrices transposed.
template <class AnyView>
AnyView transposed(AnyView view) {
  const int n = view.ndim();
  std::swap(view.shape[n - 1], view.shape[n - 2]);
  std::swap(view.strides[n - 1], view.strides[n - 2]);
  return view;
}

/// Plans y = a b with a (…, M, K), b (…, K, N) and y (…, M, N), whose leading sizes are equal; K and y must not be
/// empty. The plan depends on the shapes, strides and type of the views and on the alignment of their addresses (a null
/// address is aligned). The bias (N,) may be null. `tf32` is the value of cuda::matmul_allow_tf32().
GemmPlan select_gemm(const View& a, const View& b, const View* bias, const View& y, const DeviceProperties& device,
                     bool tf32);

// ---- The kernels and the library ----

/// The operands of a planned product: y = a b, plus bias (N, may be null) in every row, plus y if `accumulate`.
struct GemmCall {
  const char* name;  ///< of the operator, for observers
  const View &a, &b;
  const View* bias;
  const MutableView& y;
  bool accumulate;
  void* workspace;

  int64_t flops() const { return 2 * y.numel() * a.shape[a.ndim() - 1]; }
};

/// The reason for which select_gemm() chooses an algorithm, for observers.
const char* reason_for(GemmAlgorithm algorithm);

/// Multiplies integers and booleans modulo 2^64, and converts the sums to the type of y.
void integer_matmul(const GemmPlan& plan, const GemmCall& call);
void small_matmul(const GemmPlan& plan, const GemmCall& call);
/// Multiplies by cuBLASLt: float32 exactly unless the plan allows TF32, half types with sums in float32. Returns false,
/// and does nothing, if cuBLASLt has no kernel that adds a bias to this product.
bool run_library(const GemmPlan& plan, const GemmCall& call);

}  // namespace gradus::cuda_detail
