// The convolution methods of the backend. They run the plans that select.cpp makes. Half types are converted to float
// and weights made dense. ReLU of the fused forms is applied to the sums in registers (forward) or while dy is copied
// to the kernels' layout (backward).
#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/operand.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

int64_t flops(const Shape& y, const Shape& w) { return 2 * y[0] * y[1] * y[2] * y[3] * w[1] * w[2] * w[3]; }

// An operand for the kernels: converted to `dtype`, and contiguous if `dense`.
template <class AnyView>
Operand<AnyView> operand_of(Backend& backend, const AnyView& given, DType dtype, bool dense) {
  return {backend, given, given.data && needs_copy(given, dtype, dense), dtype, copy_format(given, dense)};
}

// The images of `view`, or, if `view` has no elements or is absent, only sizes taken from `like`.
template <class T, class AnyView>
Images<T> images_or_sizes(const AnyView& view, const StridedLayout& like) {
  return view.data && view.numel() > 0 ? Images<T>(view) : Images<T>(like);
}

// Does nothing if the result is empty.
template <class T>
void run_plan(const ConvPlan& plan, const ConvOperands<T>& operands) {
  if (!std::holds_alternative<std::monostate>(plan.tiles)) std::get<ConvRun<T>>(plan.algorithm->launch)(plan, operands);
}

}  // namespace

void OpenmpBackend::conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) {
  conv2d_bias_relu({.x = x, .w = w, .geometry = geometry, .y = y});
}

void OpenmpBackend::conv2d_bias_relu(const Conv2dArgs& args) {
  const View &x = args.x, &w = args.w, &bias = args.bias;
  const MutableView& y = args.y;
  const KernelTable& table = kernel_table();
  const ConvPlan plan = select_conv2d(table, num_threads(), x, w, if_present(bias), y, args.geometry);
  const DType dtype = wide(y.dtype);
  const Input in = operand_of(*this, x, dtype, false), weights = operand_of(*this, w, dtype, plan.dense_weights);
  const Input dense_bias = operand_of(*this, bias, dtype, true);
  const Output out = operand_of(*this, y, dtype, false);
  {
    EventScope event(args.relu ? "conv2d_bias_relu"
                     : bias    ? "conv2d_bias"
                               : "conv2d",
                     "openmp", plan.implementation, {&x, &w, &y}, flops(y.shape, w.shape), plan.reason());
    visit_wide(dtype, [&]<class T> {
      run_plan(plan, ConvOperands<T>{table, args.geometry, false, Images<const T>(in.view()), nullptr,
                                     Images<const T>(weights.view()), dense_bias.view().as<T>(), args.relu,
                                     Images<T>(out.view())});
    });
  }
  out.finish();
}

void OpenmpBackend::conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                         const Conv2dGeometry& geometry) {
  conv2d_bias_relu_backward({.dy = dy, .x = dx, .w = w, .geometry = geometry, .dx = dx});
}

void OpenmpBackend::conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                           const Conv2dGeometry& geometry) {
  conv2d_bias_relu_backward({.dy = dy, .x = x, .w = dw, .geometry = geometry, .dw = dw});
}

void OpenmpBackend::conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) {
  const View &dy = args.dy, &x = args.x, &w = args.w, &y = args.y;
  const Conv2dGeometry& geometry = args.geometry;
  // The kernels compute dbias only together with dw.
  if (args.dbias && (!args.dw || args.dw.numel() == 0)) return Backend::conv2d_bias_relu_backward(args);
  const KernelTable& table = kernel_table();
  const ConvBackwardPlan plan =
      select_conv2d_backward(table, num_threads(), dy, x, w, if_present(y), if_present(args.dx), if_present(args.dw),
                             if_present(args.dbias), geometry, static_cast<bool>(args.masked));
  const DType dtype = wide(dy.dtype);
  Array scratch;
  const Input in_gradient =
      operand_of(*this, plan.masks_first ? masked_by_relu(dy, y, args.masked, scratch) : dy, dtype, false);
  const View gradient = in_gradient.view();
  const void* const mask = plan.masks_first ? nullptr : y.data;
  const auto run_pass = [&](const ConvPlan& pass, const MutableView& dx, const MutableView& dw,
                            const MutableView& dbias) {
    const auto event = [&](const char* name, EventScope::Operands operands, int64_t passes) {
      return EventScope(name, "openmp", pass.implementation, operands, passes * flops(dy.shape, w.shape),
                        pass.reason());
    };
    const Input in = operand_of(*this, dw ? x : View(), dtype, false),
                weights = operand_of(*this, dx ? w : View(), dtype, pass.dense_weights);
    const Output dx_out = operand_of(*this, dx, dtype, false),
                 dw_out = operand_of(*this, dw, dtype, pass.dense_weights),
                 bias_out = operand_of(*this, dbias, dtype, true);
    {
      const EventScope scope = !dw   ? event("conv2d_backward_data", {&dy, &w, &dx}, 1)
                               : !dx ? event("conv2d_backward_weight", {&dy, &x, &dw}, 1)
                                     : event("conv2d_backward", {&dy, &x, &w}, 2);
      visit_wide(dtype, [&]<class T> {
        run_plan(pass, ConvOperands<T>{.table = table,
                                       .geometry = geometry,
                                       .backward = true,
                                       .x = Images<const T>(gradient),
                                       .mask = static_cast<const T*>(mask),
                                       .w = images_or_sizes<const T>(weights.view(), w),
                                       .bias = nullptr,
                                       .relu = false,
                                       .y = images_or_sizes<T>(dx_out.view(), x),
                                       .image = images_or_sizes<const T>(in.view(), x),
                                       .dw = images_or_sizes<T>(dw_out.view(), w),
                                       .dbias = bias_out.view().as<T>()});
      });
    }
    for (const Output* out : {&dx_out, &dw_out, &bias_out}) out->finish();
  };
  if (plan.at_once) return run_pass(plan.data, args.dx, args.dw, args.dbias);
  if (args.dx) run_pass(plan.data, args.dx, {}, {});
  if (args.dw) run_pass(plan.weight, {}, args.dw, args.dbias);
}

}  // namespace gradus
