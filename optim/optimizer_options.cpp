// The options of optimizers: their rules and checks. The formulas are in core/formulas/optimizer_rules.h.
#include <cmath>
#include <typeinfo>

#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/nn/nn.h>
#include <gradus/optim/adam.h>
#include <gradus/optim/rmsprop.h>
#include <gradus/optim/sgd.h>

namespace gradus::optim {
namespace {

std::vector<double> numbers_of(const OptimizerOptions& options) {
  std::vector<double> numbers;
  NumberFunction add([&](const std::string&, double value) { numbers.push_back(value); });
  options.clone()->visit(add);
  return numbers;
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

// ---- All options ----

void detail::check_not_negative(const std::string& option, double value) {
  GRADUS_CHECK(value >= 0 && std::isfinite(value), ValueError, option, " must be finite and not negative, got ", value);
}

void detail::check_numbers(const OptimizerOptions& options) {
  NumberFunction check([](const std::string& name, double value) {
    if (!name.starts_with("betas.")) return check_not_negative(name, value);
    GRADUS_CHECK(value >= 0 && value < 1, ValueError, "betas[", name.back(), "] must be in [0, 1), got ", value);
  });
  options.clone()->visit(check);
}

void OptimizerOptions::visit(NumberVisitor& visitor) {
  double lr = get_lr();
  visitor("lr", lr);
  set_lr(lr);
}

OptimizerRule OptimizerOptions::rule() const {
  GRADUS_FAIL(ValueError, name(), " have no rule: an optimizer with these options has to override step()");
}

void OptimizerOptions::advance(const Array& block) const { ops::advance_step(block); }

std::vector<std::pair<int, const char*>> OptimizerOptions::counters() const { return {{StepBlock::step, "step"}}; }

bool operator==(const OptimizerOptions& a, const OptimizerOptions& b) {
  return typeid(a) == typeid(b) && numbers_of(a) == numbers_of(b);
}

// ---- SGD and Lion ----

void SGDOptions::check() const {
  detail::check_not_negative("lr", lr_);
  detail::check_not_negative("momentum", momentum_);
  detail::check_not_negative("weight_decay", weight_decay_);
  GRADUS_CHECK(std::isfinite(dampening_), ValueError, "dampening must be finite, got ", dampening_);
  GRADUS_CHECK(!nesterov_ || (momentum_ > 0 && dampening_ == 0), ValueError,
               "nesterov needs a momentum and no dampening, got momentum ", momentum_, " and dampening ", dampening_);
}

OptimizerRule SGDOptions::rule() const {
  return rules::Sgd{{weight_decay_, /*decoupled=*/false, maximize_}, momentum_, dampening_, nesterov_};
}

OptimizerRule LionOptions::rule() const {
  const auto [beta1, beta2] = betas_;
  return rules::Lion{{weight_decay_, /*decoupled=*/true, maximize_}, beta1, beta2};
}

// ---- RMSprop and Adagrad ----

void RMSpropOptions::check() const {
  CheckedOptions::check();
  GRADUS_CHECK(alpha_ <= 1, ValueError, "alpha must not be above 1, got ", alpha_);
}

OptimizerRule RMSpropOptions::rule() const {
  return rules::Rmsprop{{weight_decay_, /*decoupled=*/false, maximize_}, alpha_, eps_, momentum_, centered_};
}

OptimizerRule AdagradOptions::rule() const {
  return rules::Adagrad{{weight_decay_, /*decoupled=*/false, maximize_}, lr_decay_, eps_};
}

// ---- Adam, AdamW, NAdam and RAdam ----

template <bool kDecoupled>
OptimizerRule AdamOptionsOf<kDecoupled>::rule() const {
  const auto [beta1, beta2] = betas_;
  return rules::Adam{{weight_decay_, kDecoupled, maximize_}, beta1, beta2, eps_, amsgrad_};
}

template class AdamOptionsOf<false>;
template class AdamOptionsOf<true>;

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

OptimizerRule RAdamOptions::rule() const {
  const auto [beta1, beta2] = betas_;
  return rules::Radam{{weight_decay_, decoupled_weight_decay_, maximize_}, beta1, beta2, eps_};
}

}  // namespace gradus::optim
