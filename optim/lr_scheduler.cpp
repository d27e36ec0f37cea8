#include <gradus/optim/lr_scheduler.h>

#include <cmath>
#include <numbers>

namespace gradus::optim {

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(optimizer), bases_(get_last_lr()) {}

std::vector<double> LRScheduler::get_last_lr() const {
  std::vector<double> rates;
  for (const OptimizerParamGroup& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void LRScheduler::step() { set_step_count(step_count_ + 1); }

void LRScheduler::set_step_count(int64_t step_count) {
  step_count_ = step_count;
  for (size_t group = 0; group < bases_.size(); ++group) optimizer_.set_lr(group, rate(step_count, bases_[group]));
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  GRADUS_CHECK(step_size > 0, ValueError, "step_size must be positive, got ", step_size);
}

double StepLR::rate(int64_t step_count, double base) const {
  return base * std::pow(gamma_, static_cast<double>(step_count / step_size_));
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min)
    : LRScheduler(optimizer), T_max_(T_max), eta_min_(eta_min) {
  GRADUS_CHECK(T_max > 0, ValueError, "T_max must be positive, got ", T_max);
}

double CosineAnnealingLR::rate(int64_t step_count, double base) const {
  const double angle = std::numbers::pi * static_cast<double>(step_count) / static_cast<double>(T_max_);
  return eta_min_ + (base - eta_min_) * (1 + std::cos(angle)) / 2;
}

}  // namespace gradus::optim
