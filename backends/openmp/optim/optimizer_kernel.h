// The optimizers' formulas (core/optimizer_rules.h) a vector at a time.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/lanes.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T, class Rule>
void optimizer_step(const StepArgs<T>& arguments, const rules::FullStep<Rule, T>& full_step) {
  // Copies, which the stores below cannot change: they stay in registers.
  const StepArgs<T> args = arguments;
  const rules::FullStep<Rule, T> step = full_step;
  for_lanes<T>(args.count, [&](int64_t i, auto lanes) {
    Lanes<T> p = lanes.get(args.parameter + i), state[3] = {};
    for (int k = 0; k < 3; ++k)
      if (args.states[k]) state[k] = lanes.get(args.states[k] + i);
    step(p, Lanes<T>(lanes.get(args.gradient + i)), state[0], state[1], state[2]);
    lanes.put(args.parameter + i, p.v);
    for (int k = 0; k < 3; ++k)
      if (args.states[k]) lanes.put(args.states[k] + i, state[k].v);
  });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
