#include <gradus/optim/adam.h>

#include <gradus/core/binary_ops.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/nn/optimizer.h>

namespace gradus::optim {
namespace {

template <class Options>
void check_adam_options(const Options& options) {
  detail::check_not_negative("lr", options.lr());
  detail::check_betas(options.betas());
  detail::check_not_negative("eps", options.eps());
  detail::check_not_negative("weight_decay", options.weight_decay());
}

rules::Nadam nadam(const NAdamOptions& options) {
  const auto [beta1, beta2] = options.betas();
  return {{options.weight_decay(), options.decoupled_weight_decay(), options.maximize()},
          beta1,
          beta2,
          options.eps(),
          options.momentum_decay()};
}

}  // namespace

template <bool kDecoupled>
void AdamOptionsOf<kDecoupled>::check() const {
  check_adam_options(*this);
}

template <bool kDecoupled>
OptimizerRule AdamOptionsOf<kDecoupled>::rule() const {
  const auto [beta1, beta2] = betas_;
  return rules::Adam{{weight_decay_, kDecoupled, maximize_}, beta1, beta2, eps_, amsgrad_};
}

template class AdamOptionsOf<false>;
template class AdamOptionsOf<true>;

void NAdamOptions::check() const {
  check_adam_options(*this);
  detail::check_not_negative("momentum_decay", momentum_decay_);
}

OptimizerRule NAdamOptions::rule() const { return nadam(*this); }

std::vector<std::pair<int, const char*>> NAdamOptions::counters() const {
  return {{StepBlock::step, "step"}, {StepBlock::momentum_product, "mu_product"}};
}

void NAdamOptions::advance(const Array& block) const {
  ops::advance_step(block);
  const Array step = block.select(0, StepBlock::step), product = block.select(0, StepBlock::momentum_product);
  // mu_t = beta1 - beta1 / 2 0.96^(t momentum_decay); nothing is read back, so that the step can be captured.
  const rules::Nadam rule = nadam(*this);
  const Array exponent = ops::binary_scalar(BinaryOp::mul, step, momentum_decay_);
  const Array decayed = ops::binary_scalar(BinaryOp::pow, exponent, rule.momentum_base.value, /*scalar_first=*/true);
  const Array damped = ops::binary_scalar(BinaryOp::mul, decayed, rule.beta1.value / 2);
  const Array mu = ops::binary_scalar(BinaryOp::sub, damped, rule.beta1.value, /*scalar_first=*/true);
  const Array found_inf = ops::cast(block.select(0, StepBlock::found_inf), DType::boolean);
  ops::copy_into(product, ops::where(found_inf, product, ops::binary(BinaryOp::mul, product, mu)));
}

void RAdamOptions::check() const { check_adam_options(*this); }

OptimizerRule RAdamOptions::rule() const {
  const auto [beta1, beta2] = betas_;
  return rules::Radam{{weight_decay_, decoupled_weight_decay_, maximize_}, beta1, beta2, eps_};
}

}  // namespace gradus::optim
