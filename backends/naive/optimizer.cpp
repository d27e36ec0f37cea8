// Optimizer steps in double (core/formulas/optimizer_rules.h), and loss scaling: detection of inf and NaN in gradients,
// and the next loss scale (move_scale in core/kernel_args.h).
#include <cmath>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/formulas/optimizer_rules.h>

namespace gradus {

using namespace naive_detail;
namespace {

template <class Step>
void step_parameter(const ParameterViews& views, const Step& step) {
  const auto& [parameter, gradient, states, half] = views;
  const auto strides_of = [&](const MutableView& view) { return view ? &view.strides : &views.parameter.strides; };
  for_each(parameter.shape,
           {&parameter.strides, &gradient.strides, strides_of(states[0]), strides_of(states[1]), strides_of(states[2]),
            strides_of(half)},
           [&](const int64_t* at) {
             double p = load(views.parameter, at[0]), state[kMaxOptimizerStates] = {};
             for (int k = 0; k < kMaxOptimizerStates; ++k)
               if (views.states[k]) state[k] = load(views.states[k], at[2 + k]);
             step(p, load(views.gradient, at[1]), state[0], state[1], state[2]);
             store(views.parameter, at[0], p);
             for (int k = 0; k < kMaxOptimizerStates; ++k)
               if (views.states[k]) store(views.states[k], at[2 + k], state[k]);
             if (views.half) store(views.half, at[5], load(views.parameter, at[0]));
           });
}

}  // namespace

void NaiveBackend::optimizer_step(std::span<const ParameterViews> parameters, const View& block,
                                  const OptimizerRule& rule) {
  rule.visit([&](const auto& known) {
    NaiveEvent event(known.kName, {&block});
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
    NaiveEvent event("unscale", {&gradient});
    for_each(gradient.shape, {&gradient.strides}, [&](const int64_t* at) {
      const double number = load(gradient, at[0]);
      if (!std::isfinite(number)) *found_inf.as<double>() = 1;
      if (factor.data) store(gradient, at[0], number * *factor.as<double>());
    });
  }
}

void NaiveBackend::update_scale(const MutableView& block, const ScaleRule& rule) {
  NaiveEvent event("update_scale", {&block});
  move_scale(block.as<double>(), block.strides[0], rule);
}

}  // namespace gradus
