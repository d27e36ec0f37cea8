#include <gradus/optim/nadam.h>

#include <gradus/core/binary_ops.h>
#include <gradus/core/ops/elementwise.h>
#include <gradus/core/ops/optimizer.h>
#include <gradus/optim/adam_family.h>

namespace gradus::optim {

void NAdamOptions::visit(NumberVisitor& visitor) {
  visitor("lr", lr_);
  visitor("betas", betas_);
  visitor("eps", eps_);
  visitor("weight_decay", weight_decay_);
  visitor("momentum_decay", momentum_decay_);
  visitor("decoupled_weight_decay", decoupled_weight_decay_);
  visitor("maximize", maximize_);
}

void NAdamOptions::check() const {
  detail::check_adam_options(*this);
  detail::check_not_negative("momentum_decay", momentum_decay_);
}

namespace {

rules::Nadam nadam(const NAdamOptions& options) {
  auto rule = detail::adam_rule<rules::Nadam>(options, options.decoupled_weight_decay());
  rule.momentum_decay = options.momentum_decay();
  return rule;
}

}  // namespace

OptimizerRule NAdamOptions::rule() const { return {nadam(*this)}; }

std::vector<KernelOptimizerOptions::StateArray> NAdamOptions::state_arrays() const { return detail::moments(); }

std::vector<KernelOptimizerOptions::StateNumber> NAdamOptions::state_numbers() const {
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

}  // namespace gradus::optim
