#include <gradus/backends/cuda/gemm/fused_linear.h>

#include <cublasLt.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>

#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/core/cuda.h>
#include <gradus/core/observer.h>

namespace gradus::cuda_detail {
namespace {

constexpr size_t kWorkspace = size_t{32} << 20;  // what cuBLAS recommends for sm_90

// A description that cuBLASLt makes and destroys.
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_) kDestroy(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  operator Handle() const { return handle_; }  // NOLINT(google-explicit-constructor)
  Handle* operator&() { return &handle_; }     // NOLINT(google-runtime-operator)

 private:
  Handle handle_ = nullptr;
};
using Product = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Matrix = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// All that cuBLASLt's choice depends on: dtype, TF32, M, N, K, the leading dimensions, transposes and alignments.
using Key = std::array<int64_t, 12>;
using Choice = std::optional<cublasLtMatmulAlgo_t>;

// One handle per device serves all threads; it lives to the end, as streams do.
struct OfDevice {
  cublasLtHandle_t handle = nullptr;
  std::map<Key, Choice> choices;
};
struct Devices {
  std::mutex mutex;
  std::map<int, OfDevice> all;
};
Devices& devices() {
  static Devices* instance = new Devices;
  return *instance;
}

// Rows of `matrix` (rows, columns) as columns of a column-major matrix: a leading dimension, perhaps transposed.
struct Operand {
  bool transposed = false;
  int64_t leading = 0;
};
std::optional<Operand> as_columns(const View& matrix) {
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  const auto fits = [](int64_t inner_size, int64_t inner_step, int64_t outer_size, int64_t outer_step) {
    return (inner_size == 1 || inner_step == 1) && (outer_size == 1 || outer_step >= inner_size);
  };
  if (fits(columns, matrix.strides[1], rows, matrix.strides[0]))
    return Operand{false, rows == 1 ? columns : matrix.strides[0]};
  if (fits(rows, matrix.strides[0], columns, matrix.strides[1]))
    return Operand{true, columns == 1 ? rows : matrix.strides[1]};
  return std::nullopt;
}

int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  int64_t alignment = 256;
  while (address % static_cast<uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

std::optional<cudaDataType_t> type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: return std::nullopt;
  }
}

void set_layout(Matrix& matrix, cudaDataType_t type, const Operand& operand, int64_t rows, int64_t columns) {
  if (operand.transposed) std::swap(rows, columns);
  GRADUS_CUDA_CHECK(cublasLtMatrixLayoutCreate(&matrix, type, static_cast<uint64_t>(columns),
                                               static_cast<uint64_t>(rows), operand.leading));
}

}  // namespace

// cuBLASLt counts in columns, so it is asked for yᵀ = w xᵀ: w's columns are the rows of the result, along which it adds
// the bias.
bool fused_linear(const View& x, const View& w, const View& bias, const MutableView& y) {
  const auto type = type_of(y.dtype);
  const auto left = as_columns(w), right = as_columns(x), result = as_columns(y);
  const int64_t M = y.shape[0], N = y.shape[1], K = x.shape[1];
  if (!type || !left || !right || !result || result->transposed || bias.dtype != y.dtype) return false;
  if (M == 0 || N == 0 || K == 0 || (N > 1 && bias.strides[0] != 1)) return false;

  const bool tf32 = y.dtype == DType::f32 && cuda::matmul_allow_tf32();
  Product product;
  GRADUS_CUDA_CHECK(
      cublasLtMatmulDescCreate(&product, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    GRADUS_CUDA_CHECK(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)));
  };
  // A row-major matrix is its transpose in columns: w has to be turned, x not.
  set(CUBLASLT_MATMUL_DESC_TRANSA, left->transposed ? CUBLAS_OP_N : CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_TRANSB, right->transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data);
  Matrix a, b, d;
  set_layout(a, *type, *left, N, K), set_layout(b, *type, *right, M, K), set_layout(d, *type, *result, M, N);

  const int device = y.device.index;
  const DeviceGuard guard(device);
  const Key key = {static_cast<int64_t>(y.dtype),
                   tf32,
                   M,
                   N,
                   K,
                   left->transposed,
                   left->leading,
                   right->transposed,
                   right->leading,
                   result->leading,
                   alignment_of(w.data) * 1000 + alignment_of(x.data),
                   alignment_of(y.data) * 1000 + alignment_of(bias.data)};
  cublasLtHandle_t handle;
  Choice choice;
  {
    Devices& known = devices();
    std::lock_guard lock(known.mutex);
    OfDevice& here = known.all[device];
    RelaxedCapture relaxed;
    if (!here.handle) GRADUS_CUDA_CHECK(cublasLtCreate(&here.handle));
    handle = here.handle;
    const auto [entry, is_new] = here.choices.try_emplace(key);
    if (is_new) {
      Preference preference;
      GRADUS_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&preference));
      const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
        GRADUS_CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
      };
      prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
      prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment_of(w.data)));
      prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment_of(x.data)));
      prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignment_of(y.data)));
      prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignment_of(y.data)));
      // Sums of split products stay in float32.
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
      cublasLtMatmulHeuristicResult_t best{};
      int found = 0;
      const cublasStatus_t status =
          cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, d, d, preference, 1, &best, &found);
      if (status != CUBLAS_STATUS_NOT_SUPPORTED) GRADUS_CUDA_CHECK(status);
      if (found > 0 && best.state == CUBLAS_STATUS_SUCCESS) entry->second = best.algo;
    }
    choice = entry->second;
  }
  if (!choice) return false;

  EventScope event("linear", "cuda", "cublaslt", {&x, &w, &bias}, 2 * M * N * K);
  const float one = 1, zero = 0;
  const cudaStream_t stream = current_stream(device);
  const Scratch workspace(kWorkspace, y.device);
  GRADUS_CUDA_CHECK(cublasLtMatmul(handle, product, &one, w.data, a, x.data, b, &zero, y.data, d, y.data, d, &*choice,
                                   workspace.data(), kWorkspace, stream));
  check_launch(stream);
  return true;
}

}  // namespace gradus::cuda_detail
