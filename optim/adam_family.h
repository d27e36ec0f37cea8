// What Adam and the optimizers that are made of it share: options of the same names, and two moments. Internal to
// optim.
#pragma once

#include <tuple>
#include <vector>

#include <gradus/optim/check_options.h>
#include <gradus/optim/kernel_optimizer.h>

namespace gradus::optim::detail {

template <class Options>
void check_adam_options(const Options& options) {
  check_not_negative("lr", options.lr());
  check_betas(options.betas());
  check_not_negative("eps", options.eps());
  check_not_negative("weight_decay", options.weight_decay());
}

/// A rule with these options in it.
template <class Rule, class Options>
Rule adam_rule(const Options& options, bool decoupled) {
  Rule rule;
  rule.beta1 = std::get<0>(options.betas());
  rule.beta2 = std::get<1>(options.betas());
  rule.eps = options.eps();
  rule.weight_decay = options.weight_decay();
  rule.decoupled = decoupled;
  rule.maximize = options.maximize();
  return rule;
}

inline std::vector<KernelOptimizerOptions::StateArray> moments() { return {{0, "exp_avg"}, {1, "exp_avg_sq"}}; }

}  // namespace gradus::optim::detail
