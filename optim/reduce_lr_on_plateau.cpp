#include <gradus/optim/reduce_lr_on_plateau.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace gradus::optim {

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

std::vector<double> ReduceLROnPlateauScheduler::get_last_lr() const {
  std::vector<double> rates;
  for (const OptimizerParamGroup& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void ReduceLROnPlateauScheduler::visit_state(NumberVisitor& visitor) {
  visitor("best", best_);
  visitor("epoch", epoch_);
  visitor("bad_epochs", bad_epochs_);
  visitor("cooldown_left", cooldown_left_);
  std::vector<double> rates = get_last_lr();
  for (size_t group = 0; group < rates.size(); ++group) {
    visitor("lr." + std::to_string(group), rates[group]);
    optimizer_.set_lr(group, rates[group]);
  }
}

StateDict ReduceLROnPlateauScheduler::state_dict() const {
  StateDict state("Schedule state");
  NumberWriter writer(state);
  const_cast<ReduceLROnPlateauScheduler*>(this)->visit_state(writer);  // changes nothing
  return state;
}

void ReduceLROnPlateauScheduler::load_state_dict(const StateDict& state) {
  const OpContext context("scheduler load_state_dict");
  const StateDict before = state_dict();
  const auto read = [this](const StateDict& from) {
    StateReader reader(from);
    NumberReader numbers(reader);
    visit_state(numbers);
    reader.check_all_used("schedule");
  };
  try {
    read(state);
  } catch (...) {
    read(before);
    throw;
  }
}

}  // namespace gradus::optim
