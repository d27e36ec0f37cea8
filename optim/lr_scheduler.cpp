#include <gradus/optim/lr_scheduler.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace gradus::optim {

namespace {

std::vector<double> rates_of(const Optimizer& optimizer) {
  std::vector<double> rates;
  for (const OptimizerParamGroup& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

/// Shows the rates of the groups, which the visitor may change.
void visit_rates(Optimizer& optimizer, NumberVisitor& visitor) {
  std::vector<double> rates = rates_of(optimizer);
  for (size_t group = 0; group < rates.size(); ++group) {
    visitor("lr." + std::to_string(group), rates[group]);
    optimizer.set_lr(group, rates[group]);
  }
}

/// Calls `visit` with a visitor that reads the numbers of `state`. If they do not fit, reads those of `before` and
/// throws.
template <class Visit>
void load_numbers(const StateDict& state, const StateDict& before, const Visit& visit) {
  const OpContext context("scheduler load_state_dict");
  const auto read = [&](const StateDict& from) {
    StateReader reader(from);
    NumberReader numbers(reader);
    visit(numbers);
    reader.check_all_used("schedule");
  };
  try {
    read(state);
  } catch (...) {
    read(before);
    throw;
  }
}

}  // namespace

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) { groups(); }

size_t LRScheduler::groups() {
  std::vector<OptimizerParamGroup>& all = optimizer_.param_groups();
  for (size_t group = bases_.size(); group < all.size(); ++group) bases_.push_back(all[group].initial_lr());
  return bases_.size();
}

std::vector<double> LRScheduler::get_last_lr() const { return rates_of(optimizer_); }

void LRScheduler::step() {
  ++step_count_;
  const std::vector<double> current = get_last_lr();
  for (size_t group = 0; group < groups(); ++group)
    optimizer_.set_lr(group, next_rate(step_count_, group, current[group]));
}

void LRScheduler::set_step_count(int64_t step_count) {
  GRADUS_CHECK(step_count >= 0, ValueError, "step_count must not be negative, got ", step_count);
  step_count_ = step_count;
  for (size_t group = 0; group < groups(); ++group) optimizer_.set_lr(group, rate(step_count, group));
}

void LRScheduler::visit_state(NumberVisitor& visitor) {
  visitor("step_count", step_count_);
  for (size_t group = 0; group < bases_.size(); ++group) visitor("base_lr." + std::to_string(group), bases_[group]);
}

StateDict LRScheduler::state_dict() const {
  StateDict state("Schedule state");
  NumberWriter writer(state);
  const_cast<LRScheduler*>(this)->visit_state(writer);  // writing changes nothing
  std::vector<double> rates = get_last_lr();
  for (size_t group = 0; group < rates.size(); ++group) writer("lr." + std::to_string(group), rates[group]);
  return state;
}

void LRScheduler::load_state_dict(const StateDict& state) {
  groups();
  load_numbers(state, state_dict(), [this](NumberVisitor& numbers) {
    visit_state(numbers);
    visit_rates(optimizer_, numbers);
  });
}

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers,
                           std::vector<int64_t> milestones)
    : LRScheduler(optimizer), schedulers_(std::move(schedulers)), milestones_(std::move(milestones)) {
  GRADUS_CHECK(!schedulers_.empty() && milestones_.size() + 1 == schedulers_.size(), ValueError,
               "SequentialLR needs one milestone fewer than schedules, got ", milestones_.size(), " milestones and ",
               schedulers_.size(), " schedules");
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    GRADUS_CHECK(schedulers_[i], ValueError, "schedule ", i, " of SequentialLR is null");
    GRADUS_CHECK(&schedulers_[i]->optimizer() == &optimizer, ValueError, "schedule ", i,
                 " of SequentialLR belongs to another optimizer");
  }
  for (size_t i = 0; i < milestones_.size(); ++i) {
    const int64_t least = i == 0 ? 1 : milestones_[i - 1] + 1;
    GRADUS_CHECK(milestones_[i] >= least, ValueError, "milestone ", i, " of SequentialLR must be at least ", least,
                 ", got ", milestones_[i]);
  }
  begin();
}

size_t SequentialLR::active(int64_t step_count) const {
  return static_cast<size_t>(std::upper_bound(milestones_.begin(), milestones_.end(), step_count) -
                             milestones_.begin());
}

void SequentialLR::step() {
  const int64_t count = step_count_ + 1;
  const size_t index = active(count);
  if (index > 0 && milestones_[index - 1] == count) schedulers_[index]->begin();
  else schedulers_[index]->step();
  step_count_ = count;
}

void SequentialLR::set_step_count(int64_t step_count) {
  const size_t index = active(step_count);
  schedulers_[index]->set_step_count(index == 0 ? step_count : step_count - milestones_[index - 1]);
  step_count_ = step_count;
}

double SequentialLR::rate(int64_t step_count, size_t group) const {
  const size_t index = active(step_count);
  return schedulers_[index]->rate(index == 0 ? step_count : step_count - milestones_[index - 1], group);
}

void SequentialLR::visit_state(NumberVisitor& visitor) {
  // Passes on the numbers of a part with a prefix before their names.
  class Prefixed final : public NumberVisitor {
   public:
    Prefixed(NumberVisitor& visitor, std::string prefix) : visitor_(visitor), prefix_(std::move(prefix)) {}
    using NumberVisitor::operator();
    void operator()(const std::string& name, double& value) override { visitor_(prefix_ + name, value); }

   private:
    NumberVisitor& visitor_;
    std::string prefix_;
  };
  LRScheduler::visit_state(visitor);
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    Prefixed prefixed(visitor, "schedulers." + std::to_string(i) + ".");
    schedulers_[i]->groups();
    schedulers_[i]->visit_state(prefixed);
  }
}

ReduceLROnPlateauScheduler::ReduceLROnPlateauScheduler(Optimizer& optimizer, SchedulerMode mode, double factor,
                                                       int64_t patience, double threshold, ThresholdMode threshold_mode,
                                                       int64_t cooldown, std::vector<double> min_lr, double eps,
                                                       bool verbose)
    : optimizer_(optimizer), mode_(mode), factor_(factor), patience_(patience), threshold_(threshold),
      threshold_mode_(threshold_mode), cooldown_(cooldown), min_lr_(std::move(min_lr)), eps_(eps), verbose_(verbose),
      best_(mode == min ? INFINITY : -INFINITY) {
  auto check_not_negative = [](const char* name, double value) {
    GRADUS_CHECK(value >= 0 && std::isfinite(value), ValueError, "ReduceLROnPlateau: ", name,
                 " must be finite and not negative, got ", value);
  };
  GRADUS_CHECK(factor > 0 && factor < 1, ValueError, "ReduceLROnPlateau: factor must be in (0, 1), got ", factor);
  check_not_negative("patience", static_cast<double>(patience));
  check_not_negative("threshold", threshold);
  check_not_negative("cooldown", static_cast<double>(cooldown));
  check_not_negative("eps", eps);
  const size_t groups = optimizer.param_groups().size();
  GRADUS_CHECK(min_lr_.size() <= 1 || min_lr_.size() == groups, ValueError, "ReduceLROnPlateau: ", min_lr_.size(),
               " values of min_lr for ", groups, " parameter groups");
  for (double lr : min_lr_) check_not_negative("min_lr", lr);
}

bool ReduceLROnPlateauScheduler::is_better(double metric) const {
  const double sign = mode_ == min ? -1 : 1;
  const double bar = threshold_mode_ == rel ? best_ * (1 + sign * threshold_) : best_ + sign * threshold_;
  return mode_ == min ? metric < bar : metric > bar;
}

void ReduceLROnPlateauScheduler::step(double metric) {
  ++epoch_;
  if (is_better(metric)) {
    best_ = metric;
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ > patience_) {
    reduce();
    cooldown_left_ = cooldown_;
    bad_epochs_ = 0;
  }
}

void ReduceLROnPlateauScheduler::reduce() {
  for (size_t group = 0; group < optimizer_.param_groups().size(); ++group) {
    // Groups that were added later go down to the last minimum.
    const double lowest = min_lr_.empty() ? 0 : min_lr_[std::min(group, min_lr_.size() - 1)];
    const double old = optimizer_.param_groups()[group].options().get_lr(), lr = std::max(old * factor_, lowest);
    if (old - lr <= eps_) continue;
    optimizer_.set_lr(group, lr);
    if (verbose_)
      std::cout << "Epoch " << epoch_ << ": reducing learning rate of group " << group << " to " << lr << std::endl;
  }
}

std::vector<double> ReduceLROnPlateauScheduler::get_last_lr() const { return rates_of(optimizer_); }

void ReduceLROnPlateauScheduler::visit_state(NumberVisitor& visitor) {
  visitor("best", best_);
  visitor("epoch", epoch_);
  visitor("bad_epochs", bad_epochs_);
  visitor("cooldown_left", cooldown_left_);
  visit_rates(optimizer_, visitor);
}

StateDict ReduceLROnPlateauScheduler::state_dict() const {
  StateDict state("Schedule state");
  NumberWriter writer(state);
  const_cast<ReduceLROnPlateauScheduler*>(this)->visit_state(writer);  // changes nothing
  return state;
}

void ReduceLROnPlateauScheduler::load_state_dict(const StateDict& state) {
  load_numbers(state, state_dict(), [this](NumberVisitor& numbers) { visit_state(numbers); });
}

}  // namespace gradus::optim
