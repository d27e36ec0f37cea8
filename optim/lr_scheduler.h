// Schedules that change learning rates with every epoch, or any other interval between calls of step(). Names and
// values are those of torch.optim.lr_scheduler (the Python classes; LibTorch's C++ has only a few).
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

/// Sets the learning rate of every parameter group. As in PyTorch's Python classes, call step() after each epoch. After
/// n calls the rate is that of epoch n; the constructor sets the rate of epoch 0. The schedule starts from the rate
/// that the group had before any schedule was made. Each step modifies the current rate, so several schedules can act
/// on one optimizer, and changes by the user persist. The optimizer must outlive the schedule.
///
/// To write a schedule, derive from this class, implement rate(), and call begin() at the end of the constructor.
class LRScheduler {
 public:
  explicit LRScheduler(Optimizer& optimizer);
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  virtual void step();
  int64_t step_count() const { return step_count_; }
  /// Moves to a point of the schedule, whatever the current rates are.
  virtual void set_step_count(int64_t step_count);
  /// The current rates of the groups.
  std::vector<double> get_last_lr() const;

  /// The state for a checkpoint, including the groups' rates: "step_count", "base_lr.0", "lr.0", …
  StateDict state_dict() const;
  /// The schedule must have been made with the same arguments as the one that saved `state`. Otherwise throws a
  /// ValueError and changes nothing.
  void load_state_dict(const StateDict& state);

 protected:
  /// Sets the rates of epoch 0.
  void begin() { set_step_count(0); }
  /// The rate of a group after `step_count` calls of step().
  virtual double rate(int64_t step_count, size_t group) const = 0;
  /// The rate of a group after `step_count` calls of step(), computed from its rate before the last call.
  virtual double next_rate(int64_t step_count, size_t group, double /*current*/) const {
    return rate(step_count, group);
  }
  /// Visits all numbers that change with the steps.
  virtual void visit_state(NumberVisitor& visitor);
  /// Throws if there is no such step. Called before the schedule moves.
  virtual void check_step_count(int64_t step_count) const;
  /// Called after the schedule has moved to step_count().
  virtual void moved() {}

  Optimizer& optimizer() const { return optimizer_; }
  double base(size_t group) const { return bases_[group]; }

 private:
  friend class SequentialLR;
  size_t groups();  // the number of groups; adopts groups added since the last call

  Optimizer& optimizer_;
  std::vector<double> bases_;
  int64_t step_count_ = 0;
};

/// Base of schedules that are formulas in the number n of steps and the rate of epoch 0.
class FormulaLR : public LRScheduler {
 protected:
  using Rate = std::function<double(int64_t n, double base)>;
  using NextRate = std::function<double(int64_t n, double base, double current)>;
  using LRScheduler::LRScheduler;
  /// Sets the rates of epoch 0. `rate` is the closed form; `next` computes the rate from the current one, as PyTorch
  /// does.
  void begin(Rate rate, NextRate next);

 private:
  double rate(int64_t step_count, size_t group) const override { return rate_(step_count, base(group)); }
  double next_rate(int64_t step_count, size_t group, double current) const override {
    return next_(step_count, base(group), current);
  }
  Rate rate_;
  NextRate next_;
};

/// base gamma^floor(n / step_size).
struct StepLR final : FormulaLR {
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);
};

/// base gamma^(number of milestones <= n). A milestone that is listed twice counts twice.
struct MultiStepLR final : FormulaLR {
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);
};

/// base gamma^n.
struct ExponentialLR final : FormulaLR {
  ExponentialLR(Optimizer& optimizer, double gamma);
};

/// base factor for n < total_iters, then base. factor is in [0, 1].
struct ConstantLR final : FormulaLR {
  explicit ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, int64_t total_iters = 5);
};

/// base times a factor that moves from start_factor, in (0, 1], to end_factor, in [0, 1], in total_iters equal steps.
struct LinearLR final : FormulaLR {
  explicit LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
                    int64_t total_iters = 5);
};

/// eta_min + (base - eta_min) (1 + cos(pi n / T_max)) / 2. Loshchilov and Hutter, "SGDR", 2017, without restarts. After
/// T_max the rate rises again.
struct CosineAnnealingLR final : FormulaLR {
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min = 0);
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

/// Runs schedules in sequence: schedule i + 1 starts with its epoch 0 in epoch milestones[i].
class SequentialLR final : public LRScheduler {
 public:
  /// Schedules of another optimizer, a wrong number of milestones, and milestones that do not ascend are a ValueError.
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

enum class AnnealStrategy { cos, linear };

/// Of max_lr, base_momentum and max_momentum one number serves all groups, or each group has its own.
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
/// div_factor up to max_lr in the first pct_start of total_steps, then down to the first rate / final_div_factor; with
/// three_phase it comes down to the first rate as fast as it went up, then further. Between those points it follows
/// half a cosine or a line. Momentum (SGD's and RMSprop's, else the first beta) goes the opposite way, from
/// max_momentum to base_momentum and back; it is an option of the optimizer, so steps replayed from a captured graph do
/// not see it, and a training::CapturedStep captures each step anew.
///
/// step() is called after each batch; more than total_steps calls are a ValueError, as are options out of range and
/// cycle_momentum with an optimizer that has no momentum.
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
  /// Sets the momenta.
  void moved() override;

  OneCycleLROptions options_;
  std::vector<Phase> phases_;
};

/// torch::optim::ReduceLROnPlateauScheduler. After each epoch step(metric) compares the metric with the best one so
/// far; after more than `patience` epochs without a better one the rates are multiplied by `factor`, down to `min_lr`
/// (one for all groups, one for each, or none). Better means by more than `threshold`: a fraction of the best (rel) or
/// a difference (abs). `cooldown` epochs after a reduction do not count. Changes of at most eps are not made.
class ReduceLROnPlateauScheduler {
 public:
  enum SchedulerMode { min, max };
  enum ThresholdMode { rel, abs };
  /// factor not in (0, 1), negative numbers or a wrong number of minima are a ValueError.
  explicit ReduceLROnPlateauScheduler(Optimizer& optimizer, SchedulerMode mode = min, double factor = 0.1,
                                      int64_t patience = 10, double threshold = 1e-4,
                                      ThresholdMode threshold_mode = rel, int64_t cooldown = 0,
                                      std::vector<double> min_lr = {}, double eps = 1e-8, bool verbose = false);
  ReduceLROnPlateauScheduler(const ReduceLROnPlateauScheduler&) = delete;
  ReduceLROnPlateauScheduler& operator=(const ReduceLROnPlateauScheduler&) = delete;

  /// A NaN is never better.
  void step(double metric);
  double best() const { return best_; }
  std::vector<double> get_last_lr() const;

  /// What a checkpoint needs, the groups' rates included.
  StateDict state_dict() const;
  /// What does not fit is a ValueError, and nothing changes.
  void load_state_dict(const StateDict& state);

 private:
  bool is_better(double metric) const;
  void reduce();
  void visit_state(NumberVisitor& visitor);

  Optimizer& optimizer_;
  SchedulerMode mode_;
  double factor_;
  int64_t patience_;
  double threshold_;
  ThresholdMode threshold_mode_;
  int64_t cooldown_;
  std::vector<double> min_lr_;
  double eps_;
  bool verbose_;
  double best_;
  int64_t epoch_ = 0, bad_epochs_ = 0, cooldown_left_ = 0;
};

/// Its name in Python.
using ReduceLROnPlateau = ReduceLROnPlateauScheduler;

}  // namespace gradus::optim
