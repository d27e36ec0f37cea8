// Learning-rate schedules. Call step() after each epoch, or after each batch for a schedule that counts batches. Names
// and values are those of PyTorch's Python classes in torch.optim.lr_scheduler; LibTorch's C++ has only a few of them.
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

/// Base of all schedules: saves and loads the numbers that a schedule changes.
class Schedule : NoCopy {
 public:
  virtual ~Schedule() = default;
  /// The current rates of the groups.
  std::vector<double> get_last_lr() const;
  /// The state for a checkpoint, including the groups' rates: "lr.0", …, and "step_count", "base_lr.0", … of an
  /// LRScheduler.
  StateDict state_dict() const;
  /// The schedule must have been made with the same arguments as the one that saved `state`. Otherwise throws a
  /// ValueError and changes nothing.
  void load_state_dict(const StateDict& state);

 protected:
  explicit Schedule(Optimizer& optimizer) : optimizer_(optimizer) {}
  /// Calls the visitor with each number that step() changes, except the groups' rates.
  virtual void visit_state(NumberVisitor& visitor) = 0;
  Optimizer& optimizer() const { return optimizer_; }

 private:
  void visit_numbers(NumberVisitor& visitor);
  Optimizer& optimizer_;
};

/// Sets the learning rate of every parameter group. As in PyTorch's Python classes, call step() after each epoch. After
/// n calls the rate is that of epoch n; the constructor sets the rate of epoch 0. The schedule starts from the rate
/// that the group had before any schedule was made. Each step modifies the current rate, so several schedules can act
/// on one optimizer, and changes by the user persist. The optimizer must outlive the schedule.
///
/// To write a schedule, derive from this class, implement rate(), and call begin() at the end of the constructor.
class LRScheduler : public Schedule {
 public:
  explicit LRScheduler(Optimizer& optimizer);

  virtual void step();
  int64_t step_count() const { return step_count_; }
  /// Sets the rates to those after `step_count` calls of step(), regardless of the current rates.
  virtual void set_step_count(int64_t step_count);

 protected:
  /// Sets the rates of epoch 0.
  void begin() { set_step_count(0); }
  /// The rate of a group after `step_count` calls of step().
  virtual double rate(int64_t step_count, size_t group) const = 0;
  /// The rate of a group after `step_count` calls of step(), computed from its rate before the last call.
  virtual double next_rate(int64_t step_count, size_t group, double /*current*/) const {
    return rate(step_count, group);
  }
  void visit_state(NumberVisitor& visitor) override;
  /// Throws if the schedule has no step with this number. Called before the schedule moves to the step.
  virtual void check_step_count(int64_t step_count) const;
  /// Called after the schedule has moved to step_count().
  virtual void moved() {}
  double base(size_t group) const { return bases_[group]; }

 private:
  friend class SequentialLR;
  /// Stores the initial rates of groups that were added since the last call. Returns the number of groups.
  size_t groups();

  std::vector<double> bases_;
  int64_t step_count_ = 0;
};

/// Base of schedules whose rate is a formula of n, the number of steps, and of base, the rate of epoch 0.
class FormulaLR : public LRScheduler {
 protected:
  using Rate = std::function<double(int64_t n, double base)>;
  using NextRate = std::function<double(int64_t n, double base, double current)>;
  using LRScheduler::LRScheduler;
  /// Sets the rates of epoch 0. `rate` computes the rate of any step from n and base. step() calls `next`, which
  /// computes the rate from the previous one, as PyTorch does.
  void begin(Rate rate, NextRate next);
  /// The same for schedules with rate = base gamma^drops(n). A negative or infinite gamma is a ValueError that names
  /// the schedule.
  void begin_drops(const char* schedule, double gamma, std::function<int64_t(int64_t n)> drops);

 private:
  double rate(int64_t step_count, size_t group) const override { return rate_(step_count, base(group)); }
  double next_rate(int64_t step_count, size_t group, double current) const override {
    return next_(step_count, base(group), current);
  }
  Rate rate_;
  NextRate next_;
};

/// rate = base gamma^floor(n / step_size).
struct StepLR final : FormulaLR {
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);
};

/// rate = base gamma^(number of milestones <= n). A milestone that is listed twice counts twice.
struct MultiStepLR final : FormulaLR {
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);
};

/// rate = base gamma^n.
struct ExponentialLR final : FormulaLR {
  ExponentialLR(Optimizer& optimizer, double gamma);
};

/// rate = base factor for n < total_iters, then base. factor must be in [0, 1].
struct ConstantLR final : FormulaLR {
  explicit ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, int64_t total_iters = 5);
};

/// rate = base times a factor that changes from start_factor to end_factor in total_iters equal steps. start_factor
/// must be in (0, 1], end_factor in [0, 1].
struct LinearLR final : FormulaLR {
  explicit LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
                    int64_t total_iters = 5);
};

/// rate = eta_min + (base - eta_min) (1 + cos(pi n / T_max)) / 2. Loshchilov and Hutter, "SGDR", 2017, without
/// restarts. After T_max the rate rises again.
struct CosineAnnealingLR final : FormulaLR {
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min = 0);
};

/// rate = base f(n). There is one function f for all groups, or one for each group.
class LambdaLR final : public LRScheduler {
 public:
  using Function = std::function<double(int64_t)>;
  LambdaLR(Optimizer& optimizer, Function function) : LambdaLR(optimizer, std::vector<Function>{std::move(function)}) {}
  LambdaLR(Optimizer& optimizer, std::vector<Function> functions);

 private:
  double rate(int64_t step_count, size_t group) const override;
  std::vector<Function> functions_;
};

/// Runs schedules one after another: in epoch milestones[i], schedule i + 1 begins with its epoch 0.
class SequentialLR final : public LRScheduler {
 public:
  /// Throws a ValueError if a schedule belongs to another optimizer, or if the milestones do not ascend or are not one
  /// fewer than the schedules.
  SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers,
               std::vector<int64_t> milestones);
  void step() override;
  void set_step_count(int64_t step_count) override;

 private:
  double rate(int64_t step_count, size_t group) const override;
  void visit_state(NumberVisitor& visitor) override;
  /// Index of the schedule that sets the rates after `step_count` steps.
  size_t active(int64_t step_count) const;
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
  std::vector<int64_t> starts_;  // the epoch in which each schedule begins: 0 and the milestones
};

enum class AnnealStrategy { cos, linear };

/// max_lr, base_momentum and max_momentum are one number for all groups, or one number for each group.
struct OneCycleLROptions {
  using Numbers = std::vector<double>;
  OneCycleLROptions(double max_lr, int64_t total_steps) : max_lr_({max_lr}), total_steps_(total_steps) {}
  OneCycleLROptions(Numbers max_lr, int64_t total_steps) : max_lr_(std::move(max_lr)), total_steps_(total_steps) {}
  GRADUS_ARG(Numbers, max_lr);
  GRADUS_ARG(int64_t, total_steps);
  GRADUS_ARG(double, pct_start) = 0.3;
  GRADUS_ARG(AnnealStrategy, anneal_strategy) = AnnealStrategy::cos;
  GRADUS_ARG(bool, cycle_momentum) = true;
  GRADUS_ARG(Numbers, base_momentum) = {0.85};
  GRADUS_ARG(Numbers, max_momentum) = {0.95};
  GRADUS_ARG(double, div_factor) = 25;
  GRADUS_ARG(double, final_div_factor) = 1e4;
  GRADUS_ARG(bool, three_phase) = false;
};

/// torch.optim.lr_scheduler.OneCycleLR (Smith and Topin, "Super-convergence", 2018): the rate goes from max_lr /
/// div_factor up to max_lr in the first pct_start of total_steps, then down to the first rate / final_div_factor. With
/// three_phase it first returns to the first rate in as many steps as it rose, then falls further. Each phase follows
/// half a cosine or a line. Momentum (of SGD and RMSprop; for other optimizers the first beta) changes in the opposite
/// direction, from max_momentum to base_momentum and back. Because momentum is an option of the optimizer and not in
/// device memory, steps replayed from a captured graph do not see its changes; a training::CapturedStep therefore
/// captures each step again.
///
/// Call step() after each batch. More than total_steps calls are a ValueError, as are options out of range and
/// cycle_momentum with an optimizer that has neither momentum nor betas.
class OneCycleLR final : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, OneCycleLROptions options);

 private:
  enum class Point { low, high, end };
  struct Phase {
    double last_step;
    Point from, to;
  };
  double rate(int64_t step_count, size_t group) const override;
  template <class PointValue>
  double anneal(int64_t step_count, PointValue value) const;
  void check_step_count(int64_t step_count) const override;
  /// Sets the momentum of each group.
  void moved() override;

  OneCycleLROptions options_;
  std::vector<Phase> phases_;
};

/// torch::optim::ReduceLROnPlateauScheduler. Call step(metric) after each epoch. When the metric has not improved for
/// more than `patience` epochs, the rates are multiplied by `factor`, but do not fall below `min_lr` (one number for
/// all groups, one for each group, or none for 0). The metric improves if it exceeds the best metric so far by more
/// than `threshold` (or, in mode min, falls below it), which is a fraction of the best metric (rel) or a difference
/// (abs). The `cooldown` epochs after a reduction are not counted. A reduction by at most `eps` is not made.
class ReduceLROnPlateauScheduler : public Schedule {
 public:
  enum SchedulerMode { min, max };
  enum ThresholdMode { rel, abs };
  /// Throws a ValueError if factor is not in (0, 1), if a number is negative, or if min_lr has a wrong number of
  /// elements.
  explicit ReduceLROnPlateauScheduler(Optimizer& optimizer, SchedulerMode mode = min, double factor = 0.1,
                                      int64_t patience = 10, double threshold = 1e-4,
                                      ThresholdMode threshold_mode = rel, int64_t cooldown = 0,
                                      std::vector<double> min_lr = {}, double eps = 1e-8, bool verbose = false);

  /// Reports the metric of an epoch and reduces the rates if necessary. A NaN is never an improvement.
  void step(double metric);
  double best() const { return best_; }

 private:
  bool is_better(double metric) const;
  void reduce();
  void visit_state(NumberVisitor& visitor) override;

  SchedulerMode mode_;
  ThresholdMode threshold_mode_;
  double factor_, threshold_, eps_;
  int64_t patience_, cooldown_;
  std::vector<double> min_lr_;
  bool verbose_;
  double best_;
  int64_t epoch_ = 0, bad_epochs_ = 0, cooldown_left_ = 0;
};

/// The name of ReduceLROnPlateauScheduler in PyTorch's Python interface.
using ReduceLROnPlateau = ReduceLROnPlateauScheduler;

}  // namespace gradus::optim
