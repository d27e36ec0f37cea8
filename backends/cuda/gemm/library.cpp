// Products by cuBLAS, and with a bias by cuBLASLt, which adds it where it writes the product. Both count in columns:
// they are asked for yᵀ = bᵀ aᵀ, so that b is their first matrix (N rows) and a their second (M columns).
#include <cublasLt.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>

#include <gradus/backends/cuda/gemm/gemm.h>
#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/backends/cuda/runtime/handle_pool.h>
#include <gradus/core/observer.h>

namespace gradus::cuda_detail {
namespace {

cublasHandle_t make_handle() {
  cublasHandle_t handle = nullptr;
  GRADUS_CUDA_CHECK(cublasCreate(&handle));
  // Sums of split products stay in float32.
  GRADUS_CUDA_CHECK(cublasSetMathMode(
      handle, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  return handle;
}
thread_local BorrowedHandles<cublasHandle_t, make_handle> borrowed_handles;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDA_R_64F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}
cublasComputeType_t compute_type_of(DType dtype, MathMode mode) {
  if (dtype == DType::f64) return CUBLAS_COMPUTE_64F;
  return mode == MathMode::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}
cublasOperation_t operation_of(const LibraryMatrix& matrix) { return matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

}  // namespace

void run_cublas(const GemmPlan& plan, const GemmCall& call) {
  const auto& [name, a, b, bias, y, accumulate, workspace] = call;
  EventScope event(name, "cuda", plan.name(), {&a, &b}, call.flops());
  const int n = y.ndim();
  const int64_t M = y.shape[n - 2], N = y.shape[n - 1], K = a.shape[n - 1];
  const cudaDataType_t type = type_of(y.dtype);
  const cublasComputeType_t compute = compute_type_of(y.dtype, plan.math_mode);
  const double one = 1, zero = 0;
  const float one_float = 1, zero_float = 0;
  const bool is_double = y.dtype == DType::f64;
  const void* alpha = is_double ? static_cast<const void*>(&one) : &one_float;
  const void* beta = accumulate ? alpha : is_double ? static_cast<const void*>(&zero) : &zero_float;
  const DeviceGuard guard(y.device.index);
  const cublasHandle_t handle = borrowed_handles.get(y.device.index);
  const cudaStream_t stream = current_stream(y.device.index);
  GRADUS_CUDA_CHECK(cublasSetStream(handle, stream));
  GRADUS_CUDA_CHECK(cublasSetWorkspace(handle, workspace, plan.library_bytes));
  const auto multiply = [&](const void* a_data, const void* b_data, void* y_data) {
    if (plan.batch == 1)
      GRADUS_CUDA_CHECK(cublasGemmEx_64(handle, operation_of(plan.b), operation_of(plan.a), N, M, K, alpha, b_data,
                                        type, plan.b.leading, a_data, type, plan.a.leading, beta, y_data, type,
                                        plan.y.leading, compute, CUBLAS_GEMM_DEFAULT));
    else
      GRADUS_CUDA_CHECK(cublasGemmStridedBatchedEx_64(
          handle, operation_of(plan.b), operation_of(plan.a), N, M, K, alpha, b_data, type, plan.b.leading,
          plan.batch_steps[1], a_data, type, plan.a.leading, plan.batch_steps[0], beta, y_data, type, plan.y.leading,
          plan.batch_steps[2], plan.batch, compute, CUBLAS_GEMM_DEFAULT));
    check_launch(stream);
  };
  int64_t calls = 1;
  for (int axis = 0; axis < n - 2; ++axis)
    if (plan.looped_axes >> axis & 1) calls *= y.shape[axis];
  const auto element = static_cast<int64_t>(size_of(y.dtype));
  for (int64_t i = 0; i < calls; ++i) {
    int64_t rest = i, at[3] = {};
    for (int axis = 0; axis < n - 2; ++axis) {
      if (!(plan.looped_axes >> axis & 1)) continue;
      const int64_t index = rest % y.shape[axis];
      rest /= y.shape[axis];
      at[0] += index * a.strides[axis], at[1] += index * b.strides[axis], at[2] += index * y.strides[axis];
    }
    multiply(a.as<char>() + at[0] * element, b.as<char>() + at[1] * element, y.as<char>() + at[2] * element);
  }
}

namespace {

int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  int64_t alignment = 256;
  while (address % static_cast<uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

// The operation and the matrices of one product, which its call and its heuristics are given.
struct LtProduct {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, y;

  LtProduct(const GemmPlan& plan, const GemmCall& call) {
    const int64_t M = call.y.shape[0], N = call.y.shape[1], K = call.a.shape[1];
    GRADUS_CUDA_CHECK(cublasLtMatmulDescInit(&operation, compute_type_of(call.y.dtype, plan.math_mode), CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation_of(plan.b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation_of(plan.a));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias->data);
    const auto describe = [&](cublasLtMatrixLayoutOpaque_t& layout, const LibraryMatrix& matrix, int64_t rows,
                              int64_t columns) {
      if (matrix.transposed) std::swap(rows, columns);
      GRADUS_CUDA_CHECK(cublasLtMatrixLayoutInit(&layout, type_of(call.y.dtype), static_cast<uint64_t>(rows),
                                                 static_cast<uint64_t>(columns), matrix.leading));
    };
    describe(b, plan.b, N, K), describe(a, plan.a, K, M), describe(y, plan.y, N, M);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    GRADUS_CUDA_CHECK(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)));
  }
};

using LtChoice = std::optional<cublasLtMatmulAlgo_t>;

LtChoice ask_heuristics(cublasLtHandle_t handle, LtProduct& product, const GemmPlan& plan, const GemmCall& call) {
  cublasLtMatmulPreferenceOpaque_t preference;
  GRADUS_CUDA_CHECK(cublasLtMatmulPreferenceInit(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    GRADUS_CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)));
  };
  const auto alignment = [](const void* data) { return static_cast<uint32_t>(alignment_of(data)); };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, plan.library_bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(call.b.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(call.a.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(call.y.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(call.y.data));
  // Sums of split products stay in float32.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &product.operation, &product.b, &product.a,
                                                               &product.y, &product.y, &preference, 1, &best, &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) GRADUS_CUDA_CHECK(status);
  return found > 0 && best.state == CUBLAS_STATUS_SUCCESS ? LtChoice(best.algo) : std::nullopt;
}

// What cuBLASLt chose before, by all that its choice depends on. One handle per device serves all threads; it lives to
// the end, as streams do.
struct LtDevice {
  cublasLtHandle_t handle = nullptr;
  std::map<std::array<int64_t, 12>, LtChoice> choices;
};

}  // namespace

bool run_cublaslt(const GemmPlan& plan, const GemmCall& call) {
  static auto* const devices = new std::map<int, LtDevice>;
  static std::mutex mutex;
  const auto& [name, a, b, bias, y, accumulate, workspace] = call;
  const DeviceGuard guard(y.device.index);
  LtProduct product(plan, call);
  cublasLtHandle_t handle;
  LtChoice choice;
  {
    const std::lock_guard lock(mutex);
    const RelaxedCapture relaxed;
    LtDevice& device = (*devices)[y.device.index];
    if (!device.handle) GRADUS_CUDA_CHECK(cublasLtCreate(&device.handle));
    handle = device.handle;
    const auto [entry, is_new] = device.choices.try_emplace(
        {static_cast<int64_t>(y.dtype), static_cast<int64_t>(plan.math_mode), y.shape[0], y.shape[1], a.shape[1],
         plan.b.transposed, plan.b.leading, plan.a.transposed, plan.a.leading, plan.y.leading,
         alignment_of(b.data) * 1000 + alignment_of(a.data), alignment_of(y.data) * 1000 + alignment_of(bias->data)});
    if (is_new) entry->second = ask_heuristics(handle, product, plan, call);
    choice = entry->second;
  }
  if (!choice) return false;

  EventScope event(name, "cuda", plan.name(), {&a, &b, bias}, call.flops());
  const float one = 1, zero = 0;
  const cudaStream_t stream = current_stream(y.device.index);
  GRADUS_CUDA_CHECK(cublasLtMatmul(handle, &product.operation, &one, b.data, &product.b, a.data, &product.a, &zero,
                                   y.data, &product.y, y.data, &product.y, &*choice, workspace, plan.library_bytes,
                                   stream));
  check_launch(stream);
  return true;
}

}  // namespace gradus::cuda_detail
