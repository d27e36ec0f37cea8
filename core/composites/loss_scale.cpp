// Loss scaling (core/formulas/loss_scale.h).
#include <gradus/core/composites/arithmetic.h>

#include <gradus/core/formulas/loss_scale.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

void Backend::unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) {
  const Arithmetic math(*this);
  const Array one = Array::empty({}, DType::f64, found_inf.device);
  fill(one, 1);
  for (const MutableView& gradient : gradients) {
    const Array finite = Array::empty(gradient.shape, DType::boolean, gradient.device);
    unary(UnaryOp::isfinite, gradient, finite, {});
    const int ndim = gradient.ndim();
    const Array all = Array::empty(Dims::filled(ndim, 1), DType::boolean, gradient.device);
    reduce(ReduceOp::all, finite, (1u << ndim) - 1, all);
    where(reshaped<View>(all, {}, {}), found_inf, one, found_inf);
    if (!factor.data) continue;
    const Array multiplier = math.cast(factor, wide_type(gradient.dtype));
    copy(math(mul, math.widen(gradient), multiplier), gradient);
  }
}

void Backend::update_scale(const MutableView& block, const ScaleRule& rule) {
  const Arithmetic math(*this);
  const MutableView scale = entry(block, ScaleBlock::scale), tracker = entry(block, ScaleBlock::growth_tracker),
                    found_inf = entry(block, ScaleBlock::found_inf);
  const double interval = static_cast<double>(rule.growth_interval);
  const Array clean = math(eq, found_inf, 0.0), steps = math(add, tracker, 1.0),
              zero = math.scalar(0, DType::f64, block.device);
  const Array grown = math(mul, scale, rule.growth_factor), less = math(mul, scale, rule.backoff_factor);
  const Array grows = math(logical_and, math(eq, steps, interval), math(le, grown, kLargestScale));
  math.where(clean, math.where(grows, grown, scale), less, scale);
  math.where(math(logical_and, clean, math(ne, steps, interval)), steps, zero, tracker);
  fill(found_inf, 0);
}

}  // namespace gradus
