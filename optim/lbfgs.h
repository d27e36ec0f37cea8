// L-BFGS.
#pragma once

#include <vector>

#include <gradus/optim/optimizer.h>

namespace gradus::optim {

class LBFGSOptions final : public OptimizerCloneableOptions<LBFGSOptions> {
 public:
  LBFGSOptions(double lr = 1) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return "LBFGSOptions"; }
  void check() const override;
  GRADUS_FIELDS(lr_, max_iter_, tolerance_grad_, tolerance_change_, history_size_)
  GRADUS_ARG(double, lr);
  /// Maximum numbers of iterations and of closure calls in a step. max_eval defaults to 5/4 max_iter.
  GRADUS_ARG(int64_t, max_iter) = 20;
  GRADUS_ARG(std::optional<int64_t>, max_eval) = absent<int64_t>();
  /// A step ends when the largest gradient element, or the change of the loss or of every parameter, is at most the
  /// tolerance.
  GRADUS_ARG(double, tolerance_grad) = 1e-7;
  GRADUS_ARG(double, tolerance_change) = 1e-9;
  /// Number of pairs of step and gradient change that are kept.
  GRADUS_ARG(int64_t, history_size) = 100;
  /// "strong_wolfe". Without a line search, every iteration moves lr along its direction.
  GRADUS_ARG(std::optional<std::string>, line_search_fn);
};

/// Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", 1989, as torch.optim.LBFGS. Steps
/// along -H g, where H approximates the inverse Hessian from the last steps s and gradient changes y (Nocedal and
/// Wright, "Numerical optimization", 2006: algorithm 7.4; line search by algorithms 3.5 and 3.6 with cubic
/// interpolation).
///   optimizer.step([&] { optimizer.zero_grad(); Tensor loss = …; loss.backward(); return loss; });
/// step() requires a closure, calls it several times and returns its first loss. Suitable for few parameters and
/// gradients without noise. Takes one parameter group; more groups or invalid options are a ValueError.
class LBFGS final : public Optimizer {
 public:
  explicit LBFGS(std::vector<OptimizerParamGroup> groups, LBFGSOptions defaults = {});
  explicit LBFGS(std::vector<Tensor> params, LBFGSOptions defaults = {});
  Tensor step(LossClosure closure = nullptr) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  /// A point of the line x + distance * direction: the loss, its slope along the line, and the gradient.
  struct Point {
    double distance, loss, slope;
    Tensor gradient;
  };
  struct Pair {
    Tensor step, change;  // changes of the parameters and of the gradient, (n)
  };
  Tensor flat_gradient() const;
  void move(double distance, const Tensor& direction) const;
  Tensor direction_for(const Tensor& gradient) const;
  static Point strong_wolfe(const std::function<Point(double)>& at, Point start, double distance, double narrowest);

  std::vector<Pair> history_;
  Tensor direction_, gradient_;  // of the last iteration, (n)
  double distance_ = 0;          // length of the last iteration's move
  int64_t iterations_ = 0;
};

}  // namespace gradus::optim
