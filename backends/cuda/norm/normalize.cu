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

// Returns true if rows with different parameters, as in group norm, can be normalised without parameters; other kernels
// then apply weight and bias. This is not done for half types, because the intermediate result would be rounded.
template <class Args>
bool has_plain_rows(const Args& without_parameters) {
  return without_parameters.x.dtype == without_parameters.mean.dtype &&
         plan_of(without_parameters).algorithm == NormAlgorithm::rows;
}

// A dense copy of images in the layout of `like`. The kernels need dense images.
Array dense_copy(CudaBackend& backend, const View& x, const View& like) {
  const bool nhwc = x.ndim() == 4 && like.strides[1] == 1;
  const Array copy =
      Array::empty(x.shape, x.dtype, x.device, nhwc ? MemoryFormat::channels_last : MemoryFormat::contiguous);
  backend.copy(x, copy);
  return copy;
}

}  // namespace

void CudaBackend::normalize(const NormalizeArgs& args) {
  const NormPlan plan = plan_of(args);
  if (plan.algorithm == NormAlgorithm::composite) {
    NormalizeArgs plain = args;
    if (!is_dense(args.x)) {
      const Array x = dense_copy(*this, args.x, args.y);
      plain.x = x;
      return normalize(plain);
    }
    plain.weight = plain.bias = {};
    if (!has_plain_rows(plain)) return Backend::normalize(args);
    normalize(plain);
    if (args.weight) binary(BinaryOp::mul, args.y, args.weight, args.y);
    if (args.bias) binary(BinaryOp::add, args.y, args.bias, args.y);
    return;
  }
  EventScope event(args.relu ? "normalize_relu" : "normalize", "cuda", plan.name(), {&args.x, &args.y},
                   (args.relu ? 9 : 8) * args.x.numel());
  run(args, plan);
}

void CudaBackend::normalize_backward(const NormalizeBackwardArgs& args) {
  const NormPlan plan = plan_of(args);
  if (plan.algorithm == NormAlgorithm::composite) {
    NormalizeBackwardArgs plain = args, parameters = args;
    if (!is_dense(args.x) || !is_dense(args.dy)) {
      const View like = args.dx ? View(args.dx) : args.dy;
      const Array x = dense_copy(*this, args.x, like), dy = dense_copy(*this, args.dy, like);
      plain.x = x, plain.dy = dy;
      return normalize_backward(plain);
    }
    plain.weight = {}, plain.dweight = plain.dbias = {}, parameters.dx = {};
    if (!has_plain_rows(plain)) return Backend::normalize_backward(args);
    Array g;
    if (args.weight) {
      g = Array::empty(args.x.shape, args.x.dtype, args.x.device);
      binary(BinaryOp::mul, args.dy, args.weight, g);
      plain.dy = g;
    }
    normalize_backward(plain);
    if (args.dweight || args.dbias) Backend::normalize_backward(parameters);
    return;
  }
  EventScope event(args.y ? "normalize_relu_backward" : "normalize_backward", "cuda", plan.name(),
                   {&args.dy, &args.y, &args.addend, &args.x}, (args.y ? 13 : 12) * args.x.numel());
  run(args, plan);
}

}  // namespace gradus
