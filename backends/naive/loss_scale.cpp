// Loss scaling: detection of inf and NaN in gradients, and the scale's next value (core/formulas/loss_scale.h).
#include <gradus/core/formulas/loss_scale.h>

#include <cmath>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {

void NaiveBackend::unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) {
  for (const MutableView& gradient : gradients) {
    EventScope event("unscale", "naive", "loops", {&gradient});
    visit_floating(gradient.dtype, [&]<class T> {
      naive_detail::for_each(gradient.shape, {&gradient.strides}, [&](const int64_t* at) {
        T& element = gradient.as<T>()[at[0]];
        const double number = static_cast<double>(element);
        if (!std::isfinite(number)) *found_inf.as<double>() = 1;
        if (factor.data) element = scalar::convert<T>(number * *factor.as<double>());
      });
    });
  }
}

void NaiveBackend::update_scale(const MutableView& block, const ScaleRule& rule) {
  EventScope event("update_scale", "naive", "loops", {&block});
  move_scale(block.as<double>(), block.strides[0], rule);
}

}  // namespace gradus
