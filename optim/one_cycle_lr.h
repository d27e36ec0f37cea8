// The one-cycle policy.
#pragma once

#include <gradus/optim/lr_scheduler.h>

namespace gradus::optim {

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
  void step() override;
  void set_step_count(int64_t step_count) override;

 private:
  enum class Point { low, high, end };
  struct Phase {
    double last_step;
    Point from, to;
  };
  double rate(int64_t step_count, size_t group) const override;
  void visit_state(NumberVisitor& visitor) override;
  template <class PointValue>
  double anneal(int64_t step_count, PointValue value) const;
  void check_step_count(int64_t step_count) const;
  void set_momenta(int64_t step_count);

  OneCycleLROptions options_;
  std::vector<Phase> phases_;
};

}  // namespace gradus::optim
