// Options of optimizers: how they are written to and read from state dicts, their checks and their rules
// (core/formulas/optimizer_rules.h).
#include <algorithm>
#include <cmath>
#include <typeinfo>

#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/nn/nn.h>
#include <gradus/core/ops/ops.h>
#include <gradus/optim/optimizers.h>

namespace gradus::optim {
namespace {

std::vector<double> numbers_of(const OptimizerOptions& options) {
  std::vector<double> numbers;
  NumberVisitor add([&](const std::string&, double value) { numbers.push_back(value); });
  options.clone()->visit(add);
  return numbers;
}

}  // namespace

// ---- Numbers in state dicts ----

void NumberVisitor::operator()(const std::string& name, bool& value) {
  double number = value;
  (*this)(name, number);
  value = number != 0;
}

void NumberVisitor::operator()(const std::string& name, int64_t& value) {
  double number = static_cast<double>(value);
  (*this)(name, number);
  GRADUS_CHECK(number >= 0 && number <= 0x1p53 && number == std::floor(number), ValueError, "'", name,
               "' must be a count, is ", number);
  value = static_cast<int64_t>(number);
}

void NumberVisitor::operator()(const std::string& name, Betas& value) {
  (*this)(name + ".0", std::get<0>(value));
  (*this)(name + ".1", std::get<1>(value));
}

std::string detail::take_option_name(std::string_view& members) {
  const size_t end = std::min(members.find("_,"), members.size() - 1);
  const std::string name(members.substr(0, end));
  members.remove_prefix(std::min(end + 3, members.size()));
  return name;
}

NumberWriter::NumberWriter(StateDict& state, const std::string& prefix)
    : NumberVisitor([&state, prefix](const std::string& name, double value) {
        state.append(prefix + name, Tensor(ops::full({}, value, DType::f64)));
      }) {}

const Tensor& StateReader::get(const std::string& key) {
  const Tensor* tensor = state_.find(key);
  GRADUS_CHECK(tensor, ValueError, "the state has no '", key, "'");
  GRADUS_CHECK(tensor->defined(), ValueError, "'", key, "' is undefined");
  ++used_;
  return *tensor;
}

double StateReader::number(const std::string& key) {
  const Tensor& tensor = get(key);
  GRADUS_CHECK(tensor.numel() == 1, ValueError, "'", key, "' must be one number, has shape ", tensor.sizes());
  return ops::item(tensor.array()).to_double();
}

void StateReader::check_all_used(const char* owner) const {
  GRADUS_CHECK(used_ == state_.size(), ValueError, "the state has ", state_.size() - used_, " entries that this ",
               owner, " does not know: it comes from another one");
}

NumberReader::NumberReader(StateReader& reader, const std::string& prefix, bool may_lack)
    : NumberVisitor([&reader, prefix, may_lack](const std::string& name, double& value) {
        if (!may_lack || reader.contains(prefix + name)) value = reader.number(prefix + name);
      }) {}

// ---- All options ----

void detail::check_not_negative(const std::string& option, double value) {
  GRADUS_CHECK(value >= 0 && std::isfinite(value), ValueError, option, " must be finite and not negative, got ", value);
}

void detail::check_numbers(const OptimizerOptions& options) {
  NumberVisitor check([](const std::string& name, double value) {
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

OptimizerOptions::Counters OptimizerOptions::counters() const { return {{StepBlock::step, "step"}}; }

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

template struct AdamOptionsOf<false>;
template struct AdamOptionsOf<true>;

OptimizerRule NAdamOptions::rule() const {
  const auto [beta1, beta2] = betas_;
  return rules::Nadam{{weight_decay_, decoupled_weight_decay_, maximize_}, beta1, beta2, eps_, momentum_decay_};
}

OptimizerOptions::Counters NAdamOptions::counters() const {
  return {{StepBlock::step, "step"}, {StepBlock::momentum_product, "mu_product"}};
}

void NAdamOptions::advance(const Array& block) const {
  ops::advance_step(block);
  const Array step = block.select(0, StepBlock::step), product = block.select(0, StepBlock::momentum_product);
  // mu_t = beta1 - beta1 / 2 0.96^(t momentum_decay); all terms are computed on the device, so that the step can be
  // captured in a graph.
  const auto rule = std::get<rules::Nadam>(NAdamOptions::rule());
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
