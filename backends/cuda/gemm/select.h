// How the backend "cuda" multiplies matrices. Each algorithm is one GemmAlgorithm; select() takes one of them. Host
// code without CUDA, so that decisions can be tested, and memory planned, on machines without a GPU.
#pragma once

#include <optional>

#include <gradus/backends/cuda/device/tuning.h>
#include <gradus/backends/cuda/runtime/device_properties.h>
#include <gradus/core/backend.h>

namespace gradus::cuda_detail {

/// A batch of matrices. The last two axes are those of a matrix, the other axes those of the batch.
struct GemmOperand {
  Shape shape;
  Strides strides;
  int64_t alignment = 32;  ///< the largest power of two up to 32 that divides the address

  GemmOperand() = default;
  explicit GemmOperand(const View& view)
      : shape(view.shape), strides(view.strides), alignment(alignment_of(view.data, 32)) {}
  bool operator==(const GemmOperand&) const = default;

  int ndim() const { return shape.size(); }
  int64_t numel() const { return numel_of(shape); }
  int64_t rows() const { return shape[ndim() - 2]; }
  int64_t columns() const { return shape[ndim() - 1]; }
};

/// y = a b with a (…, M, K), b (…, K, N) and y (…, M, N), whose leading sizes are equal; K and y are not empty.
struct GemmProblem {
  DType dtype = DType::f32;  ///< of all operands
  GemmOperand a, b, y;
  bool bias = false;          ///< a vector (N,) is added to every row
  bool library_bias = false;  ///< the bias is one that cuBLASLt can add
  bool tf32 = false;          ///< cuda::matmul_allow_tf32()
  DeviceProperties device = kH200;

  /// The bias may be null.
  GemmProblem(const View& a, const View& b, const View* bias, const View& y, const DeviceProperties& device, bool tf32);
  GemmProblem() = default;
  bool operator==(const GemmProblem&) const = default;
  /// yᵀ = bᵀ aᵀ, without the bias.
  GemmProblem transposed() const;

  int64_t M() const { return y.rows(); }
  int64_t N() const { return y.columns(); }
  int64_t K() const { return a.columns(); }
  int64_t products() const { return y.numel() / (M() * N()); }
  int64_t element() const { return static_cast<int64_t>(size_of(dtype)); }
  bool is_half() const { return dtype == DType::f16 || dtype == DType::bf16; }
  MathMode library_mode() const { return cuda_detail::library_mode(dtype, tf32, device); }
  /// Bytes of a, b and y.
  double operand_bytes() const { return number((a.numel() + b.numel() + y.numel()) * element()); }

  size_t kind() const { return kind_of(dtype, library_mode()); }
  size_t device_index() const { return 0; }
};

/// The tile of results that a block computes.
struct GemmTile {
  int rows = 0, columns = 0;
};
inline constexpr GemmTile kDotTile{8, 4}, kSmallTile{16, 32};
inline constexpr int kGemmWarps = 8;  ///< maximum number of warps of a block
inline constexpr int kGemmVec = 4;    ///< elements of a vectorized load

/// A matrix for cuBLASLt: column-major, with `leading` elements from column to column. If `transposed` is set, cuBLASLt
/// multiplies the transpose of the matrix.
struct LibraryMatrix {
  bool transposed = false;
  int64_t leading = 0;
};

/// Scratch memory of cuBLASLt, at the beginning of the workspace: the size that cuBLAS recommends for sm_90.
inline constexpr size_t kLibraryWorkspace = size_t{32} << 20;

struct GemmPlan;
struct GemmCall;
/// Queues the kernels of a plan. Returns false, and does nothing, if cuBLASLt has no kernel that adds a bias to this
/// product.
using GemmLaunch = bool(const GemmPlan& plan, const GemmCall& call);
using GemmAlgorithm = KernelAlgorithm<GemmProblem, GemmPlan, GemmLaunch*>;  ///< `launch` is null in builds without CUDA
using GemmFamily = KernelFamily<GemmAlgorithm>;

/// The decision of select(). Fields that an algorithm does not use are zero.
struct GemmPlan {
  const GemmAlgorithm* algorithm = nullptr;
  MathMode math_mode = MathMode::fma;
  bool swapped = false;        ///< yᵀ = bᵀ aᵀ is computed, and the other fields describe this product
  bool adds_bias = false;      ///< the kernel adds the bias; if false, the caller adds it
  size_t workspace_bytes = 0;  ///< all scratch memory: that of cuBLASLt, then dense copies of operands
  /// Offsets of dense copies in the workspace; empty if the operand itself is used.
  std::optional<size_t> a_copy = {}, b_copy = {}, y_copy = {};

  GemmTile tile = {};    ///< small_*: the tile of a block
  uint32_t split_k = 1;  ///< small_tiles: blocks of a cluster that share K; their sums are added in order
  uint32_t threads = 0;  ///< small_*: threads of a block
  bool a_vectorized = false, b_vectorized = false;  ///< small_*: kGemmVec elements are loaded at once

  LibraryMatrix a = {}, b = {}, y = {};  ///< cublaslt: the matrices as cuBLASLt reads them
  int64_t batch = 1;                     ///< cublaslt: number of products
  int64_t batch_steps[3] = {};           ///< cublaslt: distances between successive matrices of a, b and y, in elements
};

/// The view with each of its matrices transposed.
template <class AnyView>
AnyView transposed(AnyView view) {
  const int n = static_cast<int>(view.shape.size());
  std::swap(view.shape[n - 1], view.shape[n - 2]);
  std::swap(view.strides[n - 1], view.strides[n - 2]);
  return view;
}

/// Chooses an algorithm, by the problem alone, and plans it. For integers and booleans that is `integer`.
GemmPlan select(const GemmProblem& problem);

/// The algorithms for floating types.
const GemmFamily& gemm_family();
extern const GemmAlgorithm kSmallDots, kSmallTiles, kCublasLt, kInteger;

// ---- The kernels and the library ----

/// The operands of a planned product: y = a b, plus bias (N, may be null) in every row, plus y if `accumulate`.
struct GemmCall {
  const char* name;  ///< name of the operator, for observers
  const View &a, &b;
  const View* bias;
  const MutableView& y;
  bool accumulate;
  void* workspace;

  int64_t flops() const { return 2 * y.numel() * a.shape[a.ndim() - 1]; }
};

/// integer_matmul.cu: multiplies integers and booleans modulo 2^64, and converts the sums to the type of y.
GemmLaunch integer_matmul;
GemmLaunch small_matmul;  // small_matmul.cu
/// library.cpp: multiplies by cuBLASLt: float32 exactly unless the plan allows TF32, half types with sums in float32.
GemmLaunch run_library;

}  // namespace gradus::cuda_detail
