// The optimizers' formulas (core/formulas/optimizer_rules.h), applied to vectors.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/lanes.h>

namespace gradus::openmp_detail::GRADUS_ISA {

template <class T, class Rule>
void optimizer_step(const rules::FullStep<Rule, T>& rule, int64_t count, T* parameter, const T* gradient,
                    T* const* states) {
  // These local copies stay in registers, because the compiler knows that the stores below cannot change them.
  const rules::FullStep<Rule, T> step = rule;
  T* const of[3] = {states[0], states[1], states[2]};
  for_lanes<T>(count, [&](int64_t i, auto lanes) {
    Lanes<T> p = lanes.get(parameter + i), state[3] = {};
    for (int k = 0; k < 3; ++k)
      if (of[k]) state[k] = lanes.get(of[k] + i);
    step(p, Lanes<T>(lanes.get(gradient + i)), state[0], state[1], state[2]);
    lanes.put(parameter + i, p.v);
    for (int k = 0; k < 3; ++k)
      if (of[k]) lanes.put(of[k] + i, state[k].v);
  });
}

}  // namespace gradus::openmp_detail::GRADUS_ISA
