// Learning rates that change with the epoch, or whatever one call of step() stands for.
#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus::optim {

/// Sets the learning rate of every parameter group from the number of step() calls so far and from what the group had
/// when the scheduler was made. As in PyTorch's Python classes, call it after each epoch: n calls leave the rate of
/// epoch n, the first being 0.
class LRScheduler {
 public:
  explicit LRScheduler(Optimizer& optimizer);
  virtual ~LRScheduler() = default;

  void step();
  int64_t step_count() const { return step_count_; }
  /// Goes to a point of the schedule, when a run is resumed.
  void set_step_count(int64_t step_count);
  /// The rates that the groups have now.
  std::vector<double> get_last_lr() const;

 protected:
  /// The rate after `step_count` calls of step().
  virtual double rate(int64_t step_count, double base) const = 0;

 private:
  Optimizer& optimizer_;
  std::vector<double> bases_;
  int64_t step_count_ = 0;
};

/// base gamma^floor(n / step_size).
class StepLR final : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 private:
  double rate(int64_t step_count, double base) const override;
  int64_t step_size_;
  double gamma_;
};

/// eta_min + (base - eta_min) (1 + cos(pi n / T_max)) / 2. Loshchilov and Hutter, "SGDR", 2017, without restarts.
class CosineAnnealingLR final : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min = 0);

 private:
  double rate(int64_t step_count, double base) const override;
  int64_t T_max_;
  double eta_min_;
};

}  // namespace gradus::optim
