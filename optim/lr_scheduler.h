// Learning rates that change with the epoch, or whatever one call of step() stands for. Names and values are those of
// torch.optim.lr_scheduler (the Python classes; LibTorch's C++ has but few of them).
//
// Warm-up, then cosine:
//   SequentialLR schedule(optimizer, {std::make_shared<LinearLR>(optimizer, 0.1, 1.0, 5),
//                                     std::make_shared<CosineAnnealingLR>(optimizer, 95)}, {5});
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <gradus/optim/optimizer.h>

namespace gradus::optim {

/// Sets the learning rate of every parameter group. As in PyTorch's Python classes, call step() after each epoch: n
/// calls leave the rate of epoch n, the first being 0, which a new schedule sets at once. It starts from the rate that
/// the group had before any schedule was made. Each step changes the rate that is there, so several schedules may act
/// on one optimizer, and what a user changes between steps stays changed. The optimizer must outlive the schedule.
///
/// A schedule of your own: derive, give rate(), and call begin() at the end of the constructor.
class LRScheduler {
 public:
  explicit LRScheduler(Optimizer& optimizer);
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  virtual void step();
  int64_t step_count() const { return step_count_; }
  /// Goes to a point of the schedule, whatever the rates are now.
  virtual void set_step_count(int64_t step_count);
  /// The rates that the groups have now.
  std::vector<double> get_last_lr() const;

  /// What a checkpoint needs, the groups' rates included: "step_count", "base_lr.0", "lr.0", …
  StateDict state_dict() const;
  /// The schedule must be made as the one that `state` came from. What does not fit is a ValueError, and nothing
  /// changes.
  void load_state_dict(const StateDict& state);

 protected:
  /// Sets the rates of epoch 0.
  void begin() { set_step_count(0); }
  /// A group's rate after `step_count` calls of step().
  virtual double rate(int64_t step_count, size_t group) const = 0;
  /// The same from the group's rate before the last call.
  virtual double next_rate(int64_t step_count, size_t group, double /*current*/) const {
    return rate(step_count, group);
  }
  /// Shows what changes with the steps.
  virtual void visit_state(NumberVisitor& visitor);

  Optimizer& optimizer() const { return optimizer_; }
  double base(size_t group) const { return bases_[group]; }

 private:
  friend class SequentialLR;
  size_t groups();  // how many there are; adopts those added since

  Optimizer& optimizer_;
  std::vector<double> bases_;
  int64_t step_count_ = 0;
};

/// base gamma^floor(n / step_size).
class StepLR final : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 private:
  double rate(int64_t step_count, size_t group) const override;
  double next_rate(int64_t step_count, size_t group, double current) const override;
  int64_t step_size_;
  double gamma_;
};

/// base gamma^(milestones <= n). A milestone that is listed twice counts twice.
class MultiStepLR final : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);

 private:
  double rate(int64_t step_count, size_t group) const override;
  double next_rate(int64_t step_count, size_t group, double current) const override;
  std::vector<int64_t> milestones_;  // ascending
  double gamma_;
};

/// base gamma^n.
class ExponentialLR final : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma);

 private:
  double rate(int64_t step_count, size_t group) const override;
  double next_rate(int64_t step_count, size_t group, double current) const override;
  double gamma_;
};

/// base factor for n < total_iters, then base. factor is in [0, 1].
class ConstantLR final : public LRScheduler {
 public:
  explicit ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, int64_t total_iters = 5);

 private:
  double rate(int64_t step_count, size_t group) const override;
  double next_rate(int64_t step_count, size_t group, double current) const override;
  double factor_;
  int64_t total_iters_;
};

/// base times a factor that goes from start_factor, in (0, 1], to end_factor, in [0, 1], in total_iters equal steps.
class LinearLR final : public LRScheduler {
 public:
  explicit LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
                    int64_t total_iters = 5);

 private:
  double rate(int64_t step_count, size_t group) const override;
  double next_rate(int64_t step_count, size_t group, double current) const override;
  double start_factor_, end_factor_;
  int64_t total_iters_;
};

/// eta_min + (base - eta_min) (1 + cos(pi n / T_max)) / 2. Loshchilov and Hutter, "SGDR", 2017, without restarts;
/// behind T_max it rises again.
class CosineAnnealingLR final : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min = 0);

 private:
  double rate(int64_t step_count, size_t group) const override;
  double next_rate(int64_t step_count, size_t group, double current) const override;
  int64_t T_max_;
  double eta_min_;
};

/// base f(n), with one function for all groups or one for each.
class LambdaLR final : public LRScheduler {
 public:
  using Function = std::function<double(int64_t)>;
  LambdaLR(Optimizer& optimizer, Function function) : LambdaLR(optimizer, std::vector<Function>{std::move(function)}) {}
  LambdaLR(Optimizer& optimizer, std::vector<Function> functions);

 private:
  double rate(int64_t step_count, size_t group) const override;
  std::vector<Function> functions_;
};

/// Schedules one after the other: schedule i + 1 begins, at its epoch 0, in epoch milestones[i].
class SequentialLR final : public LRScheduler {
 public:
  /// Schedules of another optimizer, or milestones that are not ascending or not one fewer, are a ValueError.
  SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers,
               std::vector<int64_t> milestones);
  void step() override;
  void set_step_count(int64_t step_count) override;

 private:
  double rate(int64_t step_count, size_t group) const override;
  void visit_state(NumberVisitor& visitor) override;
  size_t active(int64_t step_count) const;
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
  std::vector<int64_t> milestones_;
};

}  // namespace gradus::optim
