// Optimizer steps in double (core/formulas/optimizer_rules.h), and loss scaling: detection of inf and NaN in gradients,
// and the scale's next value (core/kernel_args.h).
#include <cmath>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/kernel_args.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

template <class Step>
void step_parameter(const ParameterViews& views, const Step& step) {
  const auto strides_of = [&](const MutableView& state) {
    return state.data ? &state.strides : &views.parameter.strides;
  };
  visit_floating(views.parameter.dtype, [&]<class T> {
    naive_detail::for_each(views.parameter.shape,
                           {&views.parameter.strides, &views.gradient.strides, strides_of(views.states[0]),
                            strides_of(views.states[1]), strides_of(views.states[2]), strides_of(views.half)},
                           [&](const int64_t* at) {
                             double state[kMaxOptimizerStates] = {};
                             for (int k = 0; k < kMaxOptimizerStates; ++k)
                               if (views.states[k].data)
                                 state[k] = static_cast<double>(views.states[k].as<T>()[at[2 + k]]);
                             T& parameter = views.parameter.as<T>()[at[0]];
                             double p = static_cast<double>(parameter);
                             double gradient = 0;
                             visit_floating(views.gradient.dtype, [&]<class G> {
                               gradient = static_cast<double>(views.gradient.as<G>()[at[1]]);
                             });
                             step(p, gradient, state[0], state[1], state[2]);
                             parameter = scalar::convert<T>(p);
                             for (int k = 0; k < kMaxOptimizerStates; ++k)
                               if (views.states[k].data)
                                 views.states[k].as<T>()[at[2 + k]] = scalar::convert<T>(state[k]);
                             if (views.half)
                               visit_floating(views.half.dtype, [&]<class H> {
                                 views.half.as<H>()[at[5]] = scalar::convert<H>(parameter);
                               });
                           });
  });
}

}  // namespace

void NaiveBackend::optimizer_step(std::span<const ParameterViews> parameters, const View& block,
                                  const OptimizerRule& rule) {
  rule.visit([&](const auto& known) {
    EventScope event(known.kName, "naive", "loops", {&block});
    const auto entry = [&](int i) { return block.as<double>()[i * block.strides[0]]; };
    if (entry(StepBlock::found_inf) != 0) return;
    const auto step = rules::full_step<double>(
        known, rules::BlockValues<double>{entry(StepBlock::step), entry(StepBlock::learning_rate),
                                          entry(StepBlock::gradient_scale), entry(StepBlock::momentum_product)});
    for (const ParameterViews& views : parameters) step_parameter(views, step);
  });
}

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
