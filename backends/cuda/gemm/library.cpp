// Matrix products by cuBLASLt, which can also add a bias. cuBLASLt's matrices are column-major, so it computes yᵀ = bᵀ
// aᵀ: its first matrix is b (N rows) and its second matrix is a (M columns).
#include <cublasLt.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>

#include <gradus/backends/cuda/gemm/select.h>
#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::cuda_detail {
namespace {

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

// cuBLASLt's descriptors of the operation and the matrices of one product.
struct LtProduct {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, y;

  LtProduct(const GemmPlan& plan, const GemmCall& call) {
    const DType dtype = call.y.dtype;
    const int n = call.y.ndim();
    const int64_t M = call.y.shape[n - 2], N = call.y.shape[n - 1], K = call.a.shape[n - 1];
    GRADUS_CUDA_CHECK(cublasLtMatmulDescInit(&operation, compute_type_of(dtype, plan.math_mode),
                                             dtype == DType::f64 ? CUDA_R_64F : CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation_of(plan.b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation_of(plan.a));
    if (plan.adds_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias->data);
    }
    const auto describe = [&](cublasLtMatrixLayoutOpaque_t& layout, const LibraryMatrix& matrix, int64_t rows,
                              int64_t columns, const int64_t& step) {
      if (matrix.transposed) std::swap(rows, columns);
      GRADUS_CUDA_CHECK(cublasLtMatrixLayoutInit(&layout, type_of(dtype), static_cast<uint64_t>(rows),
                                                 static_cast<uint64_t>(columns), matrix.leading));
      if (plan.batch == 1) return;
      const auto count = static_cast<int32_t>(plan.batch);
      GRADUS_CUDA_CHECK(
          cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
      GRADUS_CUDA_CHECK(
          cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step)));
    };
    describe(b, plan.b, N, K, plan.batch_steps[1]);
    describe(a, plan.a, K, M, plan.batch_steps[0]);
    describe(y, plan.y, N, M, plan.batch_steps[2]);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    GRADUS_CUDA_CHECK(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)));
  }
};

using LtChoice = std::optional<cublasLtMatmulAlgo_t>;

LtChoice ask_heuristics(cublasLtHandle_t handle, LtProduct& product, const GemmCall& call) {
  cublasLtMatmulPreferenceOpaque_t preference;
  GRADUS_CUDA_CHECK(cublasLtMatmulPreferenceInit(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    GRADUS_CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)));
  };
  const auto alignment = [](const void* data) { return static_cast<uint32_t>(alignment_of(data)); };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kLibraryWorkspace);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(call.b.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(call.a.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(call.y.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(call.y.data));
  // The partial sums of split-K kernels must keep the compute type: float32 or, for float64 matrices, float64.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &product.operation, &product.b, &product.a,
                                                               &product.y, &product.y, &preference, 1, &best, &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) GRADUS_CUDA_CHECK(status);
  return found > 0 && best.state == CUBLAS_STATUS_SUCCESS ? LtChoice(best.algo) : std::nullopt;
}

// The cuBLASLt handle of a device, which all threads share and which is never destroyed, and the kernels that cuBLASLt
// has chosen so far. The key of a choice consists of all properties of a product on which the choice depends.
struct LtDevice {
  cublasLtHandle_t handle = nullptr;
  std::map<std::array<int64_t, 17>, LtChoice> choices;
};

}  // namespace

bool run_library(const GemmPlan& plan, const GemmCall& call) {
  static auto* const devices = new std::map<int, LtDevice>;
  static std::mutex mutex;
  const auto& [name, a, b, bias, y, accumulate, workspace] = call;
  const DeviceGuard guard(y.device.index());
  LtProduct product(plan, call);
  cublasLtHandle_t handle;
  LtChoice choice;
  {
    const std::lock_guard lock(mutex);
    const RelaxedCapture relaxed;
    LtDevice& device = (*devices)[y.device.index()];
    if (!device.handle) GRADUS_CUDA_CHECK(cublasLtCreate(&device.handle));
    handle = device.handle;
    const int n = y.ndim();
    const auto [entry, is_new] = device.choices.try_emplace(
        {static_cast<int64_t>(y.dtype), static_cast<int64_t>(plan.math_mode), y.shape[n - 2], y.shape[n - 1],
         a.shape[n - 1], plan.b.transposed, plan.b.leading, plan.a.transposed, plan.a.leading, plan.y.leading,
         alignment_of(b.data) * 1000 + alignment_of(a.data),
         alignment_of(y.data) * 1000 + (plan.adds_bias ? alignment_of(bias->data) : 0), accumulate, plan.batch,
         plan.batch_steps[0], plan.batch_steps[1], plan.batch_steps[2]});
    if (is_new) entry->second = ask_heuristics(handle, product, call);
    choice = entry->second;
  }
  GRADUS_CHECK(choice || plan.adds_bias, DeviceError, "cuBLASLt has no kernel for a product of ", a.shape, " and ",
               b.shape);
  if (!choice) return false;

  const View no_bias;
  EventScope event(name, "cuda", plan.algorithm->name, {&a, &b, bias ? bias : &no_bias}, call.flops(),
                   plan.algorithm->reason);
  if (is_recording(DeviceType::cuda)) return true;  // a recorded step only measures memory
  constexpr double doubles[] = {0, 1};
  constexpr float floats[] = {0, 1};
  const auto scale = [&](int i) { return y.dtype == DType::f64 ? static_cast<const void*>(doubles + i) : floats + i; };
  const cudaStream_t stream = current_stream(y.device.index());
  GRADUS_CUDA_CHECK(cublasLtMatmul(handle, &product.operation, scale(1), b.data, &product.b, a.data, &product.a,
                                   scale(accumulate), y.data, &product.y, y.data, &product.y, &*choice, workspace,
                                   kLibraryWorkspace, stream));
  check_launch(stream);
  return true;
}

}  // namespace gradus::cuda_detail
