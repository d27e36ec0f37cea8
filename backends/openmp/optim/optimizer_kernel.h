// The optimizers' formulas (core/optimizer_rules.h) a vector at a time.
#pragma once

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/simd/lanes.h>

namespace gradus::openmp::GRADUS_ISA {

template <class T, class Rule>
void optimizer_step(const StepArgs<T>& arguments, const rules::FullStep<Rule, T>& full_step) {
  // Copies, which the stores below cannot change: they stay in registers.
  const StepArgs<T> args = arguments;
  const rules::FullStep<Rule, T> step = full_step;
  // `get` and `put` move all lanes, or the first ones behind the last whole vector.
  const auto run = [&](int64_t i, auto get, auto put) {
    Lanes<T> p = get(args.parameter + i), state[3] = {};
    for (int k = 0; k < 3; ++k)
      if (args.states[k]) state[k] = get(args.states[k] + i);
    step(p, Lanes<T>(get(args.gradient + i)), state[0], state[1], state[2]);
    put(args.parameter + i, p.v);
    for (int k = 0; k < 3; ++k)
      if (args.states[k]) put(args.states[k] + i, state[k].v);
  };
  int64_t i = 0;
  for (; i + kLanes<T> <= args.count; i += kLanes<T>)
    run(
        i, [](const T* from) { return load(from); }, [](T* to, Vector<T> v) { store(to, v); });
  if (const int64_t left = args.count - i)
    run(
        i, [=](const T* from) { return load_first(from, left); },
        [=](T* to, Vector<T> v) { store_first(to, v, left); });
}

}  // namespace gradus::openmp::GRADUS_ISA
