// The kernels and the library behind select.h.
#pragma once

#include <gradus/backends/cuda/gemm/select.h>

namespace gradus::cuda_detail {

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

/// Why select_gemm() chooses an algorithm, for observers.
const char* reason_for(GemmAlgorithm algorithm);

/// Multiplies integers and booleans modulo 2^64, and converts the sums to the type of y.
void integer_matmul(const GemmPlan& plan, const GemmCall& call);
void small_matmul(const GemmPlan& plan, const GemmCall& call);
/// Multiplies by cuBLASLt: float32 exactly unless the plan allows TF32, half types with sums in float32. Returns false,
/// and does nothing, if cuBLASLt has no kernel that adds a bias to this product.
bool run_library(const GemmPlan& plan, const GemmCall& call);

}  // namespace gradus::cuda_detail
