// y = a b, y += a b and y = x wᵀ + bias. Gets a plan from select() (select.h), copies operands if the plan requires it,
// and launches the algorithm that the plan names.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/gemm/select.h>
#include <gradus/backends/cuda/runtime/cuda_runtime.h>
#include <gradus/core/runtime/cuda.h>

namespace gradus {
namespace {

using namespace cuda_detail;

// Runs a plan. Returns false if cuBLASLt has no kernel that adds the bias.
bool run(Backend& backend, const GemmPlan& plan, const char* name, View a, View b, const View* bias, MutableView y,
         bool accumulate) {
  const Scratch workspace(plan.workspace_bytes, y.device);
  const auto dense = [&](const StridedLayout& view, size_t offset) {
    MutableView copy;
    static_cast<StridedLayout&>(copy) = view;
    copy.data = workspace.as<std::byte>() + offset, copy.strides = contiguous_strides(view.shape);
    return copy;
  };
  const MutableView result = y;
  if (plan.y_copy) {
    y = dense(y, *plan.y_copy);
    if (accumulate) backend.copy(result, y);
  }
  if (plan.swapped) {
    const View left = a;
    a = transposed(b), b = transposed(left), y = transposed(y);
  }
  for (const auto& [view, offset] : {std::pair(&a, plan.a_copy), std::pair(&b, plan.b_copy)})
    if (offset) {
      const MutableView copy = dense(*view, *offset);
      backend.copy(*view, copy), *view = copy;
    }
  if (!plan.algorithm->launch(plan, {name, a, b, bias, y, accumulate, workspace.data()})) return false;
  if (plan.y_copy) backend.copy(y, result);
  return true;
}

GemmPlan plan_of(const View& a, const View& b, const View* bias, const View& y) {
  return select({a, b, bias, y, device_properties(y.device.index()), cuda::matmul_allow_tf32()});
}

}  // namespace

void CudaBackend::matmul(const View& a, const View& b, const MutableView& y, bool accumulate) {
  if (y.numel() == 0) return;
  if (a.shape[a.ndim() - 1] > 0) run(*this, plan_of(a, b, nullptr, y), "matmul", a, b, nullptr, y, accumulate);
  else if (!accumulate) fill(y, 0);
}

void CudaBackend::linear(const View& x, const View& w, const View& bias, const MutableView& y) {
  if (y.numel() == 0) return;
  const View w_transposed = transposed(w);  // (K, N)
  if (x.shape[1] > 0) {
    const View* const added = if_present(bias);
    const GemmPlan plan = plan_of(x, w_transposed, added, y);
    if ((!added || plan.adds_bias) && run(*this, plan, "linear", x, w_transposed, added, y, false)) return;
  }
  Backend::linear(x, w, bias, y);
}

}  // namespace gradus
