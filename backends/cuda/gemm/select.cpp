// select_gemm() chooses the kernel or library for a matrix product, and plans it.
#include <gradus/backends/cuda/gemm/select.h>

#include <gradus/backends/cuda/device/divisor.h>

namespace gradus::cuda_detail {
namespace {

// Describes the last two axes (rows, columns) of a view as a column-major matrix. If neighbours in a row are adjacent
// in memory, the matrix is the transpose (columns, rows) of the view. If neighbours in a column are adjacent, it is the
// view itself (rows, columns), and `transposed` is set. Empty if neither axis has unit stride.
std::optional<LibraryMatrix> column_major(const View& view) {
  const int n = view.ndim();
  const int64_t rows = std::max<int64_t>(view.shape[n - 2], 1), columns = std::max<int64_t>(view.shape[n - 1], 1);
  const int64_t row_step = view.strides[n - 2], column_step = view.strides[n - 1];
  if ((columns == 1 || column_step == 1) && (rows == 1 || row_step >= columns))
    return LibraryMatrix{false, rows == 1 ? columns : row_step};
  if ((rows == 1 || row_step == 1) && (columns == 1 || column_step >= rows))
    return LibraryMatrix{true, columns == 1 ? rows : column_step};
  return std::nullopt;
}

// Returns true if offsets within the view fit in 31 bits.
bool has_small_span(const View& view) {
  int64_t last = 0;
  for (int i = 0; i < view.ndim(); ++i) last += (view.shape[i] - 1) * view.strides[i];
  return last < int64_t{1} << 31;
}

// Returns true if the axis has unit stride and rows along it consist of aligned vectors.
bool can_vectorize(const View& view, int axis) {
  return view.strides[axis] == 1 && view.shape[axis] % kGemmVec == 0 && view.strides[1 - axis] % kGemmVec == 0 &&
         reinterpret_cast<uintptr_t>(view.data) % (kGemmVec * size_of(view.dtype)) == 0;
}

int64_t tiles_of(const View& y, const GemmTile& tile) {
  return ceil_div(y.shape[0], tile.rows) * ceil_div(y.shape[1], tile.columns);
}

// The number of blocks of a cluster that share the sum over K: more than 1 if the tiles alone would leave much of the
// device idle and K is long. The barriers of a cluster take a microsecond, which a short K does not save.
uint32_t split_k_of(int64_t K, int64_t tiles, const DeviceProperties& device) {
  if (K < 512 || !device.has_clusters()) return 1;
  uint32_t split_k = 1;
  while (split_k < 8 && 256 * split_k <= K && 2 * split_k * tiles <= 128) split_k *= 2;
  return split_k;
}

// A plan for the product of two matrices that are too small to fill the device with the tiles of cuBLAS. Empty for
// other products.
std::optional<GemmPlan> small_plan(const View& a, const View& b, const View& y, const DeviceProperties& device) {
  if (a.ndim() != 2 || b.ndim() != 2) return std::nullopt;
  const int64_t M = y.shape[0], N = y.shape[1], K = a.shape[1];
  const int64_t tiles = tiles_of(y, kSmallTile), dots = tiles_of(y, kDotTile);
  const bool is_half = size_of(a.dtype) == 2;
  if (tiles > 2 * device.multiprocessors) return std::nullopt;
  if (!has_small_span(a) || !has_small_span(b) || !has_small_span(y)) return std::nullopt;

  GemmPlan plan;
  plan.a_vectorized = can_vectorize(a, a.strides[1] == 1 ? 1 : 0);
  plan.b_vectorized = can_vectorize(b, b.strides[1] == 1 ? 1 : 0);
  // A block of small_dots reads twelve rows of length K for its 32 results; a block of small_tiles reads 48 rows for
  // 512 results. Therefore small_dots is for few results or a short K. The limit is lower for half types, because
  // cuBLAS multiplies them on tensor cores.
  if (a.strides[1] == 1 && b.strides[0] == 1 && K <= 4096 && dots * K <= int64_t{1} << (is_half ? 18 : 19)) {
    plan.algorithm = GemmAlgorithm::small_dots, plan.tile = kDotTile;
    // If there are many blocks, each of them has fewer warps, so that all blocks are resident at once.
    const int64_t rounds = ceil_div(K, plan.a_vectorized && plan.b_vectorized ? 32 * kGemmVec : 32);
    plan.threads = static_cast<uint32_t>(32 * std::min<int64_t>(rounds, dots > 256 ? kGemmWarps / 2 : kGemmWarps));
    return plan;
  }
  plan.algorithm = GemmAlgorithm::small_tiles, plan.tile = kSmallTile, plan.threads = 32 * kGemmWarps;
  plan.split_k = split_k_of(K, tiles, device);
  // cuBLAS, which splits long sums and uses tensor cores, is faster for products of at least these sizes.
  if ((is_half && M * N * K >= int64_t{1} << 23) || (K >= 1024 && K > 512 * plan.split_k)) return std::nullopt;
  return plan;
}

// Reserves space in the workspace for a dense copy of an operand, and returns its offset.
size_t reserve(GemmPlan& plan, const View& view) {
  const size_t offset = static_cast<size_t>(ceil_div(static_cast<int64_t>(plan.workspace_bytes), 256)) * 256;
  plan.workspace_bytes = offset + static_cast<size_t>(view.numel()) * size_of(view.dtype);
  return offset;
}

View dense(View view) {
  view.strides = contiguous_strides(view.shape);
  return view;
}

// The distance from one matrix of the batch to the next in elements. Empty if the distances are not all equal.
std::optional<int64_t> batch_step(const View& view) {
  int64_t step = 0, expected = -1;
  for (int axis = view.ndim() - 3; axis >= 0; --axis) {
    if (view.shape[axis] == 1) continue;
    if (expected < 0) step = view.strides[axis];
    else if (view.strides[axis] != expected) return std::nullopt;
    expected = view.strides[axis] * view.shape[axis];
  }
  return step;
}

// Returns true if cuBLASLt can use the view without a copy.
bool has_library_form(const View& view) { return column_major(view) && batch_step(view); }

}  // namespace

const char* GemmPlan::name() const {
  constexpr const char* names[] = {"integer", "small_dots", "small_tiles", "cublaslt"};
  return names[static_cast<int>(algorithm)];
}

const char* reason_for(GemmAlgorithm algorithm) {
  constexpr const char* reasons[] = {"integers", "few results, contiguous along K",
                                     "results that do not fill the device", "results or sums that are large"};
  return reasons[static_cast<int>(algorithm)];
}

GemmPlan select_gemm(const View& a, const View& b, const View* bias, const View& y, const DeviceProperties& device,
                     bool tf32) {
  if (!is_floating(y.dtype)) return {.algorithm = GemmAlgorithm::integer};
  if (auto plan = small_plan(a, b, y, device)) {
    plan->adds_bias = bias;
    return *plan;
  }

  // cuBLASLt's matrices are column-major, so it computes yᵀ = bᵀ aᵀ.
  if (!has_library_form(y)) {
    GemmPlan plan = select_gemm(a, b, nullptr, dense(y), device, tf32);
    plan.y_copy = reserve(plan, y);
    return plan;
  }
  const LibraryMatrix result = *column_major(y);
  if (result.transposed) {
    GemmPlan plan = select_gemm(transposed(b), transposed(a), nullptr, transposed(y), device, tf32);
    plan.swapped = !plan.swapped;
    return plan;
  }
  GemmPlan plan;
  plan.algorithm = GemmAlgorithm::library;
  if (y.dtype == DType::f32 && tf32 && device.has_tensor_cores()) plan.math_mode = MathMode::tf32;
  if (size_of(y.dtype) == 2) plan.math_mode = MathMode::half;
  plan.workspace_bytes = kLibraryWorkspace;
  plan.adds_bias = bias && y.ndim() == 2 && y.dtype != DType::f64 && bias->dtype == y.dtype &&
                   (y.shape[1] == 1 || bias->strides[0] == 1);
  View left = a, right = b;
  if (!has_library_form(a)) plan.a_copy = reserve(plan, a), left = dense(a);
  if (!has_library_form(b)) plan.b_copy = reserve(plan, b), right = dense(b);
  plan.a = *column_major(left), plan.b = *column_major(right), plan.y = result;
  plan.batch_steps[0] = *batch_step(left), plan.batch_steps[1] = *batch_step(right);
  plan.batch_steps[2] = *batch_step(y);
  for (int axis = 0; axis < y.ndim() - 2; ++axis) plan.batch *= y.shape[axis];
  return plan;
}

}  // namespace gradus::cuda_detail
