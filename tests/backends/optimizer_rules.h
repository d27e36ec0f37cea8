// Optimizer rules with options that reach all of their branches.
#pragma once

#include <vector>

#include <gradus/core/backend.h>
#include <gradus/core/formulas/optimizer_rules.h>

namespace gradus::test {

struct NamedRule {
  const char* name;
  OptimizerRule rule;
  int states;  // bit k is set if states[k] is used
  bool uses(int state) const { return states >> state & 1; }
};

/// Ranges of the states' elements. The square of the second one is below the first one, as RMSprop requires.
inline constexpr double kStateLow[] = {0.5, 0.125, -1}, kStateHigh[] = {2, 0.625, 1};

/// All rules get `weight_decay`, `decoupled` and `maximize` from `common`.
inline std::vector<NamedRule> optimizer_rules(const rules::Common& common) {
  std::vector<NamedRule> list;
  auto add = [&](const char* name, auto rule, int states) {
    static_cast<rules::Common&>(rule) = common;
    list.push_back({name, {rule}, states});
  };
  rules::Sgd sgd;
  add("sgd", sgd, 0);
  sgd.momentum = 0.9, sgd.dampening = 0.25;
  add("sgd momentum", sgd, 1);
  sgd.dampening = 0, sgd.nesterov = true;
  add("sgd nesterov", sgd, 1);
  rules::Adam adam;
  add("adam", adam, 3);
  adam.amsgrad = true;
  add("adam amsgrad", adam, 7);
  rules::Rmsprop rmsprop;
  add("rmsprop", rmsprop, 1);
  rmsprop.momentum = 0.8;
  add("rmsprop momentum", rmsprop, 1 + 4);
  rmsprop.centered = true;
  add("rmsprop centered momentum", rmsprop, 7);
  rmsprop.momentum = 0;
  add("rmsprop centered", rmsprop, 3);
  rules::Adagrad adagrad;
  adagrad.lr_decay = 0.1;
  add("adagrad", adagrad, 1);
  add("nadam", rules::Nadam(), 3);
  add("radam", rules::Radam(), 3);  // rectified from step 6 on
  add("lion", rules::Lion(), 1);
  return list;
}

}  // namespace gradus::test
