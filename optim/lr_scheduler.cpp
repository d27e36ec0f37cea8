#include <gradus/optim/lr_scheduler.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numbers>

namespace gradus::optim {

// ---- What all schedules share ----

std::vector<double> Schedule::get_last_lr() const {
  std::vector<double> rates;
  for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

/// Also visits the groups' rates, and sets those that the visitor changes.
void Schedule::visit_numbers(NumberVisitor& visitor) {
  visit_state(visitor);
  const std::vector<double> rates = get_last_lr();
  for (size_t group = 0; group < rates.size(); ++group) {
    double rate = rates[group];
    visitor("lr." + std::to_string(group), rate);
    if (rate != rates[group]) optimizer_.set_lr(group, rate);
  }
}

StateDict Schedule::state_dict() const {
  StateDict state("Schedule state");
  NumberWriter writer(state);
  // The visit may also store the initial rates of groups that were added since the last step.
  const_cast<Schedule*>(this)->visit_numbers(writer);  // NumberWriter changes no number
  return state;
}

void Schedule::load_state_dict(const StateDict& state) {
  const OpContext context("scheduler load_state_dict");
  const auto read = [this](const StateDict& from) {
    StateReader reader(from);
    NumberReader numbers(reader);
    visit_numbers(numbers);
    reader.check_all_used("schedule");
  };
  const StateDict before = state_dict();
  try {
    read(state);
  } catch (...) {
    read(before);
    throw;
  }
}

// ---- LRScheduler ----

LRScheduler::LRScheduler(Optimizer& optimizer) : Schedule(optimizer) { groups(); }

size_t LRScheduler::groups() {
  ParamGroups& all = optimizer().param_groups();
  for (size_t group = bases_.size(); group < all.size(); ++group) bases_.push_back(all[group].initial_lr());
  return bases_.size();
}

void LRScheduler::check_step_count(int64_t step_count) const {
  GRADUS_CHECK(step_count >= 0, ValueError, "step_count must not be negative, got ", step_count);
}

void LRScheduler::step() {
  check_step_count(step_count_ + 1);
  ++step_count_;
  const std::vector<double> current = get_last_lr();
  for (size_t group = 0; group < groups(); ++group)
    optimizer().set_lr(group, next_rate(step_count_, group, current[group]));
  moved();
}

void LRScheduler::set_step_count(int64_t step_count) {
  check_step_count(step_count);
  step_count_ = step_count;
  for (size_t group = 0; group < groups(); ++group) optimizer().set_lr(group, rate(step_count, group));
  moved();
}

void LRScheduler::visit_state(NumberVisitor& visitor) {
  const int64_t before = step_count_;
  visitor("step_count", step_count_);
  for (size_t group = 0; group < groups(); ++group) visitor("base_lr." + std::to_string(group), bases_[group]);
  if (step_count_ == before) return;
  check_step_count(step_count_);
  moved();
}

// ---- Formulas ----

namespace {

void check_factor(const char* schedule, const char* name, double factor) {
  GRADUS_CHECK(factor >= 0 && factor <= 1, ValueError, schedule, ": ", name, " must be in [0, 1], got ", factor);
}
template <class Number>
void check_positive(const char* schedule, const char* name, Number value) {
  GRADUS_CHECK(value > 0, ValueError, schedule, ": ", name, " must be positive, got ", value);
}

}  // namespace

void FormulaLR::begin(Rate rate, NextRate next) {
  rate_ = std::move(rate);
  next_ = std::move(next);
  LRScheduler::begin();
}

void FormulaLR::begin_drops(const char* schedule, double gamma, std::function<int64_t(int64_t n)> drops) {
  detail::check_not_negative(std::string(schedule) + ": gamma", gamma);
  begin([=](int64_t n, double base) { return base * std::pow(gamma, drops(n)); },
        // The power is 1 or gamma, and therefore exact, unless several milestones are equal.
        [=](int64_t n, double, double current) { return current * std::pow(gamma, drops(n) - drops(n - 1)); });
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma) : FormulaLR(optimizer) {
  check_positive("StepLR", "step_size", step_size);
  begin_drops("StepLR", gamma, [=](int64_t n) { return n / step_size; });
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma) : FormulaLR(optimizer) {
  std::ranges::sort(milestones);
  begin_drops("MultiStepLR", gamma, [=](int64_t n) {
    const auto passed = std::ranges::upper_bound(milestones, n);
    return passed - milestones.begin();
  });
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma) : FormulaLR(optimizer) {
  begin_drops("ExponentialLR", gamma, std::identity());
}

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, int64_t total_iters) : FormulaLR(optimizer) {
  check_factor("ConstantLR", "factor", factor);
  check_positive("ConstantLR", "total_iters", total_iters);
  begin([=](int64_t n, double base) { return n < total_iters ? base * factor : base; },
        [=](int64_t n, double base, double current) {
          if (n != total_iters) return current;
          return factor == 0 ? base : current * (1 / factor);
        });
}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, int64_t total_iters)
    : FormulaLR(optimizer) {
  check_factor("LinearLR", "start_factor", start_factor);
  GRADUS_CHECK(start_factor > 0, ValueError, "LinearLR: start_factor must be above 0, got ", start_factor);
  check_factor("LinearLR", "end_factor", end_factor);
  check_positive("LinearLR", "total_iters", total_iters);
  const double slope = end_factor - start_factor, length = static_cast<double>(total_iters);
  begin(
      [=](int64_t n, double base) {
        const double done = static_cast<double>(std::min(n, total_iters)) / length;
        return base * (start_factor + slope * done);
      },
      [=](int64_t n, double, double current) {
        if (n > total_iters) return current;
        const double before = length * start_factor + static_cast<double>(n - 1) * slope;
        return std::max(0.0, current * (1 + slope / before));  // rounding could make a final rate of 0 negative
      });
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min) : FormulaLR(optimizer) {
  check_positive("CosineAnnealingLR", "T_max", T_max);
  detail::check_not_negative("CosineAnnealingLR: eta_min", eta_min);
  const double period = static_cast<double>(T_max);
  const auto height = [=](int64_t n) {
    const double angle = std::numbers::pi * static_cast<double>(n) / period;
    return 1 + std::cos(angle);
  };
  begin([=](int64_t n, double base) { return eta_min + (base - eta_min) * height(n) / 2; },
        [=](int64_t n, double base, double current) {
          // One step after the minimum, height(n - 1) is 0, so that the formula below would divide by 0.
          if ((n - 1 - T_max) % (2 * T_max) == 0)
            return current + (base - eta_min) * (1 - std::cos(std::numbers::pi / period)) / 2;
          return std::max(0.0, height(n) / height(n - 1) * (current - eta_min) + eta_min);
        });
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<Function> functions)
    : LRScheduler(optimizer), functions_(std::move(functions)) {
  GRADUS_CHECK(functions_.size() == 1 || functions_.size() == optimizer.param_groups().size(), ValueError,
               "LambdaLR: ", functions_.size(), " functions for ", optimizer.param_groups().size(),
               " parameter groups");
  GRADUS_CHECK(std::count(functions_.begin(), functions_.end(), nullptr) == 0, ValueError,
               "LambdaLR: a function is empty");
  begin();
}
double LambdaLR::rate(int64_t step_count, size_t group) const {
  return base(group) * functions_[std::min(group, functions_.size() - 1)](step_count);
}

// ---- SequentialLR ----

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers,
                           std::vector<int64_t> milestones)
    : LRScheduler(optimizer), schedulers_(std::move(schedulers)), starts_{0} {
  GRADUS_CHECK(milestones.size() + 1 == schedulers_.size(), ValueError,
               "SequentialLR needs one milestone fewer than schedules, got ", milestones.size(), " milestones and ",
               schedulers_.size(), " schedules");
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    GRADUS_CHECK(schedulers_[i], ValueError, "schedule ", i, " of SequentialLR is null");
    GRADUS_CHECK(&schedulers_[i]->optimizer() == &optimizer, ValueError, "schedule ", i,
                 " of SequentialLR belongs to another optimizer");
  }
  for (size_t i = 0; i < milestones.size(); ++i) {
    GRADUS_CHECK(milestones[i] > starts_[i], ValueError, "milestone ", i, " of SequentialLR must be at least ",
                 starts_[i] + 1, ", got ", milestones[i]);
    starts_.push_back(milestones[i]);
  }
  begin();
}

size_t SequentialLR::active(int64_t step_count) const {
  return static_cast<size_t>(std::ranges::upper_bound(starts_, step_count) - starts_.begin() - 1);
}

void SequentialLR::step() {
  const int64_t count = step_count_ + 1;
  const size_t index = active(count);
  if (starts_[index] == count) schedulers_[index]->begin();
  else schedulers_[index]->step();
  step_count_ = count;
}

void SequentialLR::set_step_count(int64_t step_count) {
  check_step_count(step_count);
  const size_t index = active(step_count);
  schedulers_[index]->set_step_count(step_count - starts_[index]);
  step_count_ = step_count;
}

double SequentialLR::rate(int64_t step_count, size_t group) const {
  const size_t index = active(step_count);
  return schedulers_[index]->rate(step_count - starts_[index], group);
}

void SequentialLR::visit_state(NumberVisitor& visitor) {
  LRScheduler::visit_state(visitor);
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    NumberVisitor prefixed([&](const std::string& name, double& value) {
      visitor("schedulers." + std::to_string(i) + "." + name, value);
    });
    schedulers_[i]->visit_state(prefixed);
  }
}

// ---- OneCycleLR ----

namespace {

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
  check_positive("OneCycleLR", "total_steps", options_.total_steps());
  check_factor("OneCycleLR", "pct_start", pct);
  check_positive("OneCycleLR", "div_factor", options_.div_factor());
  check_positive("OneCycleLR", "final_div_factor", options_.final_div_factor());
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
  // A phase of length 0 (for example if there is only one step) is at its end immediately.
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
  LRScheduler::check_step_count(step_count);
  GRADUS_CHECK(step_count <= options_.total_steps(), ValueError, "OneCycleLR: step ", step_count, " of ",
               options_.total_steps(), "; total_steps is too small");
}

void OneCycleLR::moved() {
  if (!options_.cycle_momentum()) return;
  for (size_t group = 0; group < optimizer().param_groups().size(); ++group) {
    OptimizerOptions& options = optimizer().param_groups()[group].options();
    const double highest = of_group(options_.max_momentum(), group), base = of_group(options_.base_momentum(), group);
    const double momentum = anneal(step_count(), [&](Point point) { return point == Point::high ? base : highest; });
    bool found = false;
    NumberVisitor setter([&](const std::string& name, double& value) {  // an optimizer has either momentum or betas
      if (name != "momentum" && name != "betas.0") return;
      value = momentum;
      found = true;
    });
    options.visit(setter);
    GRADUS_CHECK(found, ValueError, "OneCycleLR: cycle_momentum needs an optimizer with momentum or betas; ",
                 options.name(), " have neither");
  }
}

// ---- ReduceLROnPlateau ----

ReduceLROnPlateauScheduler::ReduceLROnPlateauScheduler(Optimizer& optimizer, SchedulerMode mode, double factor,
                                                       int64_t patience, double threshold, ThresholdMode threshold_mode,
                                                       int64_t cooldown, std::vector<double> min_lr, double eps,
                                                       bool verbose)
    : Schedule(optimizer), mode_(mode), threshold_mode_(threshold_mode), factor_(factor), threshold_(threshold),
      eps_(eps), patience_(patience), cooldown_(cooldown), min_lr_(std::move(min_lr)), verbose_(verbose),
      best_(mode == min ? INFINITY : -INFINITY) {
  GRADUS_CHECK(factor > 0 && factor < 1, ValueError, "ReduceLROnPlateau: factor must be in (0, 1), got ", factor);
  detail::check_not_negative("ReduceLROnPlateau: patience", static_cast<double>(patience));
  detail::check_not_negative("ReduceLROnPlateau: threshold", threshold);
  detail::check_not_negative("ReduceLROnPlateau: cooldown", static_cast<double>(cooldown));
  detail::check_not_negative("ReduceLROnPlateau: eps", eps);
  const size_t groups = optimizer.param_groups().size();
  GRADUS_CHECK(min_lr_.size() <= 1 || min_lr_.size() == groups, ValueError, "ReduceLROnPlateau: ", min_lr_.size(),
               " values of min_lr for ", groups, " parameter groups");
  for (double lr : min_lr_) detail::check_not_negative("ReduceLROnPlateau: min_lr", lr);
}

bool ReduceLROnPlateauScheduler::is_better(double metric) const {
  const double sign = mode_ == min ? -1 : 1;
  const double bar = threshold_mode_ == rel ? best_ * (1 + sign * threshold_) : best_ + sign * threshold_;
  return mode_ == min ? metric < bar : metric > bar;
}

void ReduceLROnPlateauScheduler::step(double metric) {
  ++epoch_;
  const bool better = is_better(metric);
  if (better) best_ = metric;
  bad_epochs_ = better || cooldown_left_ > 0 ? 0 : bad_epochs_ + 1;
  cooldown_left_ = std::max<int64_t>(cooldown_left_ - 1, 0);
  if (bad_epochs_ <= patience_) return;
  reduce();
  cooldown_left_ = cooldown_;
  bad_epochs_ = 0;
}

void ReduceLROnPlateauScheduler::reduce() {
  for (size_t group = 0; group < optimizer().param_groups().size(); ++group) {
    // A group that was added after construction uses the last element of min_lr.
    const double lowest = min_lr_.empty() ? 0 : min_lr_[std::min(group, min_lr_.size() - 1)];
    const double old = optimizer().param_groups()[group].options().get_lr();
    const double lr = std::max(old * factor_, lowest);
    if (old - lr <= eps_) continue;
    optimizer().set_lr(group, lr);
    if (verbose_)
      std::cout << "Epoch " << epoch_ << ": reducing learning rate of group " << group << " to " << lr << std::endl;
  }
}

void ReduceLROnPlateauScheduler::visit_state(NumberVisitor& visitor) {
  visitor("best", best_);
  visitor("epoch", epoch_);
  visitor("bad_epochs", bad_epochs_);
  visitor("cooldown_left", cooldown_left_);
}

}  // namespace gradus::optim
