// The algorithms of select.h.
#pragma once

#include <gradus/backends/cuda/gemm/select.h>

namespace gradus::cuda_detail {

/// y = a b, plus bias (N, may be null) in every row, plus y if `accumulate`: what a plan is run with, which says of a,
/// b and y how they are stored.
struct GemmCall {
  const char* name;  ///< of the operator, for observers
  const View &a, &b;
  const View* bias;
  const MutableView& y;
  bool accumulate;
  void* workspace;

  int64_t flops() const { return 2 * y.numel() * a.shape[a.ndim() - 1]; }
};

/// For observers: which clause of select_gemm() leads to an algorithm.
const char* reason_for(GemmAlgorithm algorithm);

/// Integers and booleans, modulo 2^64 and then as y's type holds it.
void integer_matmul(const GemmPlan& plan, const GemmCall& call);
void small_matmul(const GemmPlan& plan, const GemmCall& call);
/// Float32 without TF32 unless the plan says so, half types accumulating in float32. False, and nothing done, where the
/// library has no kernel that adds a bias to this product.
bool run_library(const GemmPlan& plan, const GemmCall& call);

}  // namespace gradus::cuda_detail
