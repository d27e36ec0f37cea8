// Normalisation and its gradients: asks select() for a plan (select.h) and launches the kernels that the plan names.
//   y = (x - mean) s w + b,  s = 1 / sqrt(variance + eps): the formula of batch, layer, group and instance norm.
// With g = dy w and h = (x - mean) s:
//   dx = s (g - avg(g) - h avg(g h)),   dw = sum(dy h),   dbias = sum(dy)
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/norm/normalize.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

template <class Args>
NormPlan plan_of(const Args& args) {
  return select(args, device_properties(args.x.device.index()));
}

template <class Args>
void run(const Args& args, const NormPlan& plan) {
  const Launch launch(args.x.device);
  const Scratch workspace(plan.workspace_bytes, args.x.device);
  if (plan.algorithm == NormAlgorithm::rows) normalize_rows(args, plan, launch, workspace.data());
  else normalize_channels(args, plan, launch, workspace.data());
}

// The operands of a call in a dense layout, which the kernels need: copies of those that have another.
class DenseOperands {
 public:
  // NHWC if `like` is, else contiguous.
  DenseOperands(CudaBackend& backend, const View& like)
      : backend_(backend),
        format_(like.ndim() == 4 && like.strides[1] == 1 ? MemoryFormat::channels_last : MemoryFormat::contiguous) {}
  View operand(const View& x) { return x && !is_dense(x) ? View(copy(x)) : x; }
  // A result, which finish() copies to y.
  MutableView result(const MutableView& y) {
    if (!y || is_dense(y)) return y;
    results_.emplace_back(empty(y), y);
    return results_.back().first;
  }
  void finish() {
    for (const auto& [result, y] : results_) backend_.copy(result, y);
  }

 private:
  bool is_dense(const View& x) const {
    const bool nhwc = format_ == MemoryFormat::channels_last;
    return has_strides(x, nhwc ? channels_last_strides(x.shape) : contiguous_strides(x.shape));
  }
  Array empty(const View& x) const { return Array::empty(x.shape, x.dtype, x.device, format_); }
  const Array& copy(const View& x) {
    copies_.push_back(empty(x));
    backend_.copy(x, copies_.back());
    return copies_.back();
  }

  CudaBackend& backend_;
  const MemoryFormat format_;
  std::vector<Array> copies_;
  std::vector<std::pair<Array, MutableView>> results_;
};

}  // namespace

void CudaBackend::normalize(const NormalizeArgs& args) {
  NormalizeArgs dense = args;
  NormPlan plan = plan_of(args);
  DenseOperands operands(*this, args.y);
  if (plan.algorithm == NormAlgorithm::composite) {
    dense.x = operands.operand(args.x), dense.residual = operands.operand(args.residual);
    dense.y = operands.result(args.y);
    plan = plan_of(dense);
    if (plan.algorithm == NormAlgorithm::composite) return Backend::normalize(args);
  }
  {
    EventScope event(args.relu ? "normalize_relu" : "normalize", "cuda", plan.name(), {&args.x, &args.y},
                     (args.relu ? 9 : 8) * args.x.numel());
    run(dense, plan);
  }
  operands.finish();
}

void CudaBackend::normalize_backward(const NormalizeBackwardArgs& args) {
  NormalizeBackwardArgs dense = args;
  NormPlan plan = plan_of(args);
  DenseOperands operands(*this, args.dx ? View(args.dx) : args.dy);
  if (plan.algorithm == NormAlgorithm::composite) {
    for (View* operand : {&dense.x, &dense.dy, &dense.y, &dense.addend}) *operand = operands.operand(*operand);
    for (MutableView* result : {&dense.dx, &dense.dresidual}) *result = operands.result(*result);
    plan = plan_of(dense);
    if (plan.algorithm == NormAlgorithm::composite) return Backend::normalize_backward(args);
  }
  {
    EventScope event(args.y ? "normalize_relu_backward" : "normalize_backward", "cuda", plan.name(),
                     {&args.dy, &args.y, &args.addend, &args.x}, (args.y ? 13 : 12) * args.x.numel());
    run(dense, plan);
  }
  operands.finish();
}

}  // namespace gradus
