// A learning rate that falls when a metric no longer improves.
#pragma once

#include <limits>
#include <vector>

#include <gradus/optim/optimizer.h>

namespace gradus::optim {

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
