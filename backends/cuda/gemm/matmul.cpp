// y = a b, or y += a b, by cuBLAS: float32 without TF32 unless that is allowed, half types accumulating in float32.
// cuBLAS counts in columns, so it is asked for yᵀ = bᵀ aᵀ. Matrices that have no unit stride are copied first. Integers
// go to integer_matmul.cu, small products, where cuBLAS needs two launches and the bias a third, to small_matmul.cu.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/gemm/fused_linear.h>
#include <gradus/backends/cuda/gemm/integer_matmul.h>
#include <gradus/backends/cuda/gemm/small_matmul.h>
#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/backends/cuda/runtime/handle_pool.h>
#include <gradus/core/cuda.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using cuda_detail::Scratch;

constexpr size_t kWorkspace = size_t{32} << 20;  // what cuBLAS recommends for sm_90
cublasHandle_t make_handle() {
  cublasHandle_t handle = nullptr;
  GRADUS_CUDA_CHECK(cublasCreate(&handle));
  // Sums of split products stay in float32.
  GRADUS_CUDA_CHECK(cublasSetMathMode(
      handle, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  return handle;
}
thread_local cuda_detail::BorrowedHandles<cublasHandle_t, make_handle> borrowed_handles;

// A batch of matrices as cuBLAS sees them: column-major with a leading dimension, perhaps transposed.
struct Operand {
  void* data;
  cublasOperation_t transposed;
  int64_t leading;
};

// The last two axes of `view` (rows, columns) as the column-major matrix of their transpose; false without unit stride.
bool as_columns(const View& view, Operand* operand) {
  const int n = view.ndim();
  const int64_t rows = view.shape[n - 2], columns = view.shape[n - 1];
  const int64_t row_step = rows == 1 ? std::max<int64_t>(columns, 1) : view.strides[n - 2];
  const int64_t column_step = columns == 1 ? 1 : view.strides[n - 1];
  operand->data = const_cast<void*>(view.data);
  if (column_step == 1 && row_step >= std::max<int64_t>(columns, 1)) {
    operand->transposed = CUBLAS_OP_N, operand->leading = row_step;
    return true;
  }
  const int64_t inner_step = rows == 1 ? 1 : view.strides[n - 2];
  const int64_t outer_step = columns == 1 ? std::max<int64_t>(rows, 1) : view.strides[n - 1];
  operand->transposed = CUBLAS_OP_T, operand->leading = outer_step;
  return inner_step == 1 && outer_step >= std::max<int64_t>(rows, 1);
}

struct Types {
  cudaDataType_t data;
  cublasComputeType_t compute;
};
Types types_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return {CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::f16: return {CUDA_R_16F, CUBLAS_COMPUTE_32F};
    case DType::bf16: return {CUDA_R_16BF, CUBLAS_COMPUTE_32F};
    default: return {CUDA_R_32F, cuda::matmul_allow_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
  }
}

template <class AnyView>
AnyView transposed(AnyView view) {
  const int n = view.ndim();
  std::swap(view.shape[n - 1], view.shape[n - 2]);
  std::swap(view.strides[n - 1], view.strides[n - 2]);
  return view;
}

// Steps from one matrix of the batch to the next in elements, where one step serves the whole batch.
bool batch_step(const View& view, int64_t* step) {
  *step = 0;
  int64_t expected = -1;
  for (int axis = view.ndim() - 3; axis >= 0; --axis) {
    if (view.shape[axis] == 1) continue;
    if (expected < 0) *step = view.strides[axis];
    else if (view.strides[axis] != expected) return false;
    expected = view.strides[axis] * view.shape[axis];
  }
  return true;
}

// One batch (a, b, y have the same leading sizes and one step each); y is in columns after transposition.
void multiply(const View& a, const View& b, const MutableView& y, const int64_t (&steps)[3], int64_t batch,
              bool accumulate) {
  Operand left, right, result;
  // y = a b in rows is yᵀ = bᵀ aᵀ in columns.
  as_columns(b, &left), as_columns(a, &right), as_columns(y, &result);
  const int n = y.ndim();
  const int64_t M = y.shape[n - 2], N = y.shape[n - 1], K = a.shape[n - 1];
  const double one = 1, zero = 0;
  const float one_float = 1, zero_float = 0;
  const Types types = types_of(y.dtype);
  const bool wide = types.compute == CUBLAS_COMPUTE_64F;
  const void* alpha = wide ? static_cast<const void*>(&one) : &one_float;
  const void* beta = accumulate ? alpha : wide ? static_cast<const void*>(&zero) : &zero_float;
  const cuda_detail::DeviceGuard guard(y.device.index);
  const Scratch workspace(kWorkspace, y.device);
  const cublasHandle_t handle = borrowed_handles.get(y.device.index);
  const cudaStream_t stream = cuda_detail::current_stream(y.device.index);
  GRADUS_CUDA_CHECK(cublasSetStream(handle, stream));
  GRADUS_CUDA_CHECK(cublasSetWorkspace(handle, workspace.data(), kWorkspace));
  if (batch == 1) {
    GRADUS_CUDA_CHECK(cublasGemmEx_64(handle, left.transposed, right.transposed, N, M, K, alpha, left.data, types.data,
                                      left.leading, right.data, types.data, right.leading, beta, result.data,
                                      types.data, result.leading, types.compute, CUBLAS_GEMM_DEFAULT));
  } else {
    GRADUS_CUDA_CHECK(cublasGemmStridedBatchedEx_64(
        handle, left.transposed, right.transposed, N, M, K, alpha, left.data, types.data, left.leading, steps[1],
        right.data, types.data, right.leading, steps[0], beta, result.data, types.data, result.leading, steps[2], batch,
        types.compute, CUBLAS_GEMM_DEFAULT));
  }
  cuda_detail::check_launch(stream);
}

// Batches that have no common step are looped over, along the shortest axis.
void multiply_batches(const View& a, const View& b, const MutableView& y, bool accumulate) {
  const int axes = y.ndim() - 2;
  int64_t steps[3];
  if (batch_step(a, &steps[0]) && batch_step(b, &steps[1]) && batch_step(y, &steps[2])) {
    int64_t batch = 1;
    for (int axis = 0; axis < axes; ++axis) batch *= y.shape[axis];
    return multiply(a, b, y, steps, batch, accumulate);
  }
  int shortest = 0;
  for (int axis = 1; axis < axes; ++axis)
    if (y.shape[shortest] == 1 || (y.shape[axis] > 1 && y.shape[axis] < y.shape[shortest])) shortest = axis;
  for (int64_t i = 0; i < y.shape[shortest]; ++i)
    multiply_batches(narrow(a, shortest, i, 1), narrow(b, shortest, i, 1), narrow(y, shortest, i, 1), accumulate);
}

Array contiguous(Backend& backend, const View& x) {
  Array copy = Array::empty(x.shape, x.dtype, x.device);
  backend.copy(x, copy);
  return copy;
}

}  // namespace

void CudaBackend::matmul(const View& a, const View& b, const MutableView& y, bool accumulate) {
  const int64_t depth = a.shape[a.ndim() - 1];
  if (y.numel() == 0) return;
  if (depth == 0) {
    if (!accumulate) fill(y, 0);
    return;
  }
  if (!is_floating(y.dtype)) return cuda_detail::integer_matmul(a, b, y, accumulate);
  if (cuda_detail::is_small_matmul(a, b, y)) return cuda_detail::small_matmul(a, b, nullptr, y, accumulate);
  EventScope event("matmul", "cuda", "cublas", {&a, &b}, 2 * y.numel() * depth);
  Operand columns;
  if (!as_columns(y, &columns)) {
    Array result = Array::empty(y.shape, y.dtype, y.device);
    if (accumulate) copy(y, result);
    matmul(a, b, result, accumulate);
    return copy(View(result), y);
  }
  if (columns.transposed == CUBLAS_OP_T) return matmul(transposed(b), transposed(a), transposed(y), accumulate);
  Array a_copy, b_copy;
  View left = a, right = b;
  if (!as_columns(a, &columns)) left = a_copy = contiguous(*this, a);
  if (!as_columns(b, &columns)) right = b_copy = contiguous(*this, b);
  multiply_batches(left, right, y, accumulate);
}

void CudaBackend::linear(const View& x, const View& w, const View& bias, const MutableView& y) {
  const View w_transposed = transposed(w);
  if (x.shape[1] > 0 && cuda_detail::is_small_matmul(x, w_transposed, y))
    return cuda_detail::small_matmul(x, w_transposed, if_present(bias), y, /*accumulate=*/false);
  if (bias && cuda_detail::fused_linear(x, w, bias, y)) return;
  Backend::linear(x, w, bias, y);
}

}  // namespace gradus
