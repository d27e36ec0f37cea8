#include <gradus/optim/one_cycle_lr.h>

#include <cmath>
#include <numbers>

namespace gradus::optim {

namespace {

/// Sets a group's momentum or first beta; an optimizer has one or the other.
class MomentumSetter final : public NumberVisitor {
 public:
  explicit MomentumSetter(double momentum) : momentum_(momentum) {}
  using NumberVisitor::operator();
  void operator()(const std::string& name, double& value) override {
    if (name != "momentum" && name != "betas.0") return;
    value = momentum_;
    found_ = true;
  }
  bool found() const { return found_; }

 private:
  double momentum_;
  bool found_ = false;
};

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
  GRADUS_CHECK(total > 0, ValueError, "OneCycleLR: total_steps must be positive, got ", options_.total_steps());
  GRADUS_CHECK(pct >= 0 && pct <= 1, ValueError, "OneCycleLR: pct_start must be in [0, 1], got ", pct);
  GRADUS_CHECK(options_.div_factor() > 0, ValueError, "OneCycleLR: div_factor must be positive, got ",
               options_.div_factor());
  GRADUS_CHECK(options_.final_div_factor() > 0, ValueError, "OneCycleLR: final_div_factor must be positive, got ",
               options_.final_div_factor());
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
  // A phase without length (pct_start near 0, or one step in all) is over at once.
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
  GRADUS_CHECK(step_count <= options_.total_steps(), ValueError, "OneCycleLR: step ", step_count, " of ",
               options_.total_steps(), "; total_steps is too small");
}

void OneCycleLR::step() {
  check_step_count(step_count() + 1);
  LRScheduler::step();
  set_momenta(step_count());
}

void OneCycleLR::set_step_count(int64_t step_count) {
  check_step_count(step_count);
  LRScheduler::set_step_count(step_count);
  set_momenta(step_count);
}

void OneCycleLR::visit_state(NumberVisitor& visitor) {
  const int64_t before = step_count();
  LRScheduler::visit_state(visitor);
  if (step_count() == before) return;
  check_step_count(step_count());
  set_momenta(step_count());
}

void OneCycleLR::set_momenta(int64_t step_count) {
  if (!options_.cycle_momentum()) return;
  for (size_t group = 0; group < optimizer().param_groups().size(); ++group) {
    OptimizerOptions& options = optimizer().param_groups()[group].options();
    const double highest = of_group(options_.max_momentum(), group), base = of_group(options_.base_momentum(), group);
    MomentumSetter setter(anneal(step_count, [&](Point point) { return point == Point::high ? base : highest; }));
    options.visit(setter);
    GRADUS_CHECK(setter.found(), ValueError, "OneCycleLR: cycle_momentum needs an optimizer with momentum or betas; ",
                 options.name(), " have neither");
  }
}

}  // namespace gradus::optim
