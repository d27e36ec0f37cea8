// The formulas of the schedules in lr_scheduler.h. rate() is the closed form; next_rate() computes the rate from the
// current one, as PyTorch does.
#include <algorithm>
#include <cmath>
#include <numbers>

#include <gradus/optim/lr_scheduler.h>

namespace gradus::optim {

namespace {

void check_gamma(const char* schedule, double gamma) {
  GRADUS_CHECK(gamma >= 0 && std::isfinite(gamma), ValueError, schedule,
               ": gamma must be finite and not negative, got ", gamma);
}
void check_factor(const char* schedule, const char* name, double factor) {
  GRADUS_CHECK(factor >= 0 && factor <= 1, ValueError, schedule, ": ", name, " must be in [0, 1], got ", factor);
}
void check_positive(const char* schedule, const char* name, int64_t value) {
  GRADUS_CHECK(value > 0, ValueError, schedule, ": ", name, " must be positive, got ", value);
}

}  // namespace

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  check_positive("StepLR", "step_size", step_size);
  check_gamma("StepLR", gamma);
  begin();
}
double StepLR::rate(int64_t step_count, size_t group) const {
  return base(group) * std::pow(gamma_, static_cast<double>(step_count / step_size_));
}
double StepLR::next_rate(int64_t step_count, size_t, double current) const {
  return step_count % step_size_ == 0 ? current * gamma_ : current;
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma)
    : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  check_gamma("MultiStepLR", gamma);
  std::sort(milestones_.begin(), milestones_.end());
  begin();
}
double MultiStepLR::rate(int64_t step_count, size_t group) const {
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), step_count) - milestones_.begin();
  return base(group) * std::pow(gamma_, static_cast<double>(passed));
}
double MultiStepLR::next_rate(int64_t step_count, size_t, double current) const {
  const auto now = std::count(milestones_.begin(), milestones_.end(), step_count);
  return current * std::pow(gamma_, static_cast<double>(now));
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) {
  check_gamma("ExponentialLR", gamma);
  begin();
}
double ExponentialLR::rate(int64_t step_count, size_t group) const {
  return base(group) * std::pow(gamma_, static_cast<double>(step_count));
}
double ExponentialLR::next_rate(int64_t, size_t, double current) const { return current * gamma_; }

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, int64_t total_iters)
    : LRScheduler(optimizer), factor_(factor), total_iters_(total_iters) {
  check_factor("ConstantLR", "factor", factor);
  check_positive("ConstantLR", "total_iters", total_iters);
  begin();
}
double ConstantLR::rate(int64_t step_count, size_t group) const {
  return step_count < total_iters_ ? base(group) * factor_ : base(group);
}
double ConstantLR::next_rate(int64_t step_count, size_t group, double current) const {
  if (step_count != total_iters_) return current;
  return factor_ == 0 ? base(group) : current * (1 / factor_);
}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, int64_t total_iters)
    : LRScheduler(optimizer), start_factor_(start_factor), end_factor_(end_factor), total_iters_(total_iters) {
  check_factor("LinearLR", "start_factor", start_factor);
  GRADUS_CHECK(start_factor > 0, ValueError, "LinearLR: start_factor must be above 0, got ", start_factor);
  check_factor("LinearLR", "end_factor", end_factor);
  check_positive("LinearLR", "total_iters", total_iters);
  begin();
}
double LinearLR::rate(int64_t step_count, size_t group) const {
  const double done = static_cast<double>(std::min(step_count, total_iters_)) / static_cast<double>(total_iters_);
  return base(group) * (start_factor_ + (end_factor_ - start_factor_) * done);
}
double LinearLR::next_rate(int64_t step_count, size_t, double current) const {
  if (step_count > total_iters_) return current;
  const double slope = end_factor_ - start_factor_;
  const double before = static_cast<double>(total_iters_) * start_factor_ + static_cast<double>(step_count - 1) * slope;
  return std::max(0.0, current * (1 + slope / before));  // rounding could make the last step to end_factor 0 negative
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min)
    : LRScheduler(optimizer), T_max_(T_max), eta_min_(eta_min) {
  check_positive("CosineAnnealingLR", "T_max", T_max);
  GRADUS_CHECK(eta_min >= 0 && std::isfinite(eta_min), ValueError,
               "CosineAnnealingLR: eta_min must be finite and not negative, got ", eta_min);
  begin();
}
double CosineAnnealingLR::rate(int64_t step_count, size_t group) const {
  const double angle = std::numbers::pi * static_cast<double>(step_count) / static_cast<double>(T_max_);
  return eta_min_ + (base(group) - eta_min_) * (1 + std::cos(angle)) / 2;
}
double CosineAnnealingLR::next_rate(int64_t step_count, size_t group, double current) const {
  const double period = static_cast<double>(T_max_);
  const auto height = [&](int64_t n) { return 1 + std::cos(std::numbers::pi * static_cast<double>(n) / period); };
  // At the minimum the ratio to the previous rate is undefined.
  if ((step_count - 1 - T_max_) % (2 * T_max_) == 0)
    return current + (base(group) - eta_min_) * (1 - std::cos(std::numbers::pi / period)) / 2;
  return std::max(0.0, height(step_count) / height(step_count - 1) * (current - eta_min_) + eta_min_);
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<Function> functions)
    : LRScheduler(optimizer), functions_(std::move(functions)) {
  GRADUS_CHECK(functions_.size() == 1 || functions_.size() == optimizer.param_groups().size(), ValueError,
               "LambdaLR: ", functions_.size(), " functions for ", optimizer.param_groups().size(),
               " parameter groups");
  for (const Function& function : functions_) GRADUS_CHECK(function, ValueError, "LambdaLR: a function is empty");
  begin();
}
double LambdaLR::rate(int64_t step_count, size_t group) const {
  return base(group) * functions_[std::min(group, functions_.size() - 1)](step_count);
}

namespace {

/// Sets a group's momentum or first beta; an optimizer has one or the other.
class MomentumSetter final : public NumberVisitor {
 public:
  explicit MomentumSetter(double momentum) : momentum_(momentum) {}
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override {
    if (name != "momentum" && name != "betas.0") return;
    value = momentum_;
    found_ = true;
  }
  bool found() const { return found_; }

 private:
  double momentum_;
  bool found_ = false;
};

double of_group(const std::vector<double>& numbers, size_t group) { return numbers[numbers.size() == 1 ? 0 : group]; }

}  // namespace

OneCycleLR::OneCycleLR(Optimizer& optimizer, OneCycleLROptions options)
    : LRScheduler(optimizer), options_(std::move(options)) {
  const size_t groups = optimizer.param_groups().size();
  auto check = [&](const char* name, const std::vector<double>& numbers, double limit) {
    GRADUS_CHECK(numbers.size() == 1 || numbers.size() == groups, ValueError, "OneCycleLR: ", numbers.size(),
                 " values of ", name, " for ", groups, " parameter groups");
    for (double number : numbers)
      GRADUS_CHECK(number >= 0 && number < limit, ValueError, "OneCycleLR: ", name, " must be in [0, ", limit,
                   "), got ", number);
  };
  check("max_lr", options_.max_lr(), INFINITY);
  check("base_momentum", options_.base_momentum(), 1);
  check("max_momentum", options_.max_momentum(), 1);
  const double pct = options_.pct_start(), total = static_cast<double>(options_.total_steps());
  GRADUS_CHECK(total > 0, ValueError, "OneCycleLR: total_steps must be positive, got ", options_.total_steps());
  GRADUS_CHECK(pct >= 0 && pct <= 1, ValueError, "OneCycleLR: pct_start must be in [0, 1], got ", pct);
  GRADUS_CHECK(options_.div_factor() > 0, ValueError, "OneCycleLR: div_factor must be positive, got ",
               options_.div_factor());
  GRADUS_CHECK(options_.final_div_factor() > 0, ValueError, "OneCycleLR: final_div_factor must be positive, got ",
               options_.final_div_factor());
  phases_ = {{pct * total - 1, Point::low, Point::high}};
  if (options_.three_phase()) {
    phases_.push_back({2 * pct * total - 2, Point::high, Point::low});
    phases_.push_back({total - 1, Point::low, Point::end});
  } else {
    phases_.push_back({total - 1, Point::high, Point::end});
  }
  for (size_t group = 0; group < groups; ++group)
    optimizer.param_groups()[group].set_initial_lr(of_group(options_.max_lr(), group) / options_.div_factor());
  begin();
}

template <class PointValue>
double OneCycleLR::anneal(int64_t step_count, PointValue value) const {
  const double step = static_cast<double>(step_count);
  double first = 0;
  size_t i = 0;
  for (; i + 1 < phases_.size() && step > phases_[i].last_step; ++i) first = phases_[i].last_step;
  const double from = value(phases_[i].from), to = value(phases_[i].to);
  // A phase without length (pct_start near 0, or one step in all) is over at once.
  const double length = phases_[i].last_step - first;
  const double done = length != 0 ? (step - first) / length : 1;
  if (options_.anneal_strategy() == AnnealStrategy::linear) return (to - from) * done + from;
  return to + (from - to) / 2 * (std::cos(std::numbers::pi * done) + 1);
}

double OneCycleLR::rate(int64_t step_count, size_t group) const {
  const double high = of_group(options_.max_lr(), group), low = high / options_.div_factor();
  return anneal(step_count, [&](Point point) {
    return point == Point::high ? high : point == Point::low ? low : low / options_.final_div_factor();
  });
}

void OneCycleLR::check_step_count(int64_t step_count) const {
  GRADUS_CHECK(step_count <= options_.total_steps(), ValueError, "OneCycleLR: step ", step_count, " of ",
               options_.total_steps(), "; total_steps is too small");
}

void OneCycleLR::step() {
  check_step_count(step_count() + 1);
  LRScheduler::step();
  set_momenta(step_count());
}

void OneCycleLR::set_step_count(int64_t step_count) {
  check_step_count(step_count);
  LRScheduler::set_step_count(step_count);
  set_momenta(step_count);
}

void OneCycleLR::visit_state(NumberVisitor& visitor) {
  const int64_t before = step_count();
  LRScheduler::visit_state(visitor);
  if (step_count() == before) return;
  check_step_count(step_count());
  set_momenta(step_count());
}

void OneCycleLR::set_momenta(int64_t step_count) {
  if (!options_.cycle_momentum()) return;
  for (size_t group = 0; group < optimizer().param_groups().size(); ++group) {
    OptimizerOptions& options = optimizer().param_groups()[group].options();
    const double highest = of_group(options_.max_momentum(), group), base = of_group(options_.base_momentum(), group);
    MomentumSetter setter(anneal(step_count, [&](Point point) { return point == Point::high ? base : highest; }));
    options.visit(setter);
    GRADUS_CHECK(setter.found(), ValueError, "OneCycleLR: cycle_momentum needs an optimizer with momentum or betas; ",
                 options.name(), " have neither");
  }
}

}  // namespace gradus::optim
