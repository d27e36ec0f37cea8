// The optimizers. Each RuleOptimizer applies a formula of core/formulas/optimizer_rules.h to every element of a
// parameter. LBFGS computes its steps from all parameters together. Each optimizer is a class, not an alias, because
// checkpoints contain the name of the class.
#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus::optim {

// ---- Momentum: SGD, and Lion, which uses only the sign of the momentum ----

struct SGDOptions final : OptimizerCloneableOptions<SGDOptions> {
  SGDOptions(double lr) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  void check() const override;
  OptimizerRule rule() const override;
  GRADUS_FIELDS(lr_, momentum_, dampening_, weight_decay_, nesterov_, maximize_)
  GRADUS_ARG(double, lr);
  GRADUS_ARG(double, momentum) = 0;
  GRADUS_ARG(double, dampening) = 0;
  GRADUS_ARG(double, weight_decay) = 0;
  GRADUS_ARG(bool, nesterov) = false;
  /// If true, moves along the gradient instead of against it, which maximizes the loss.
  GRADUS_ARG(bool, maximize) = false;
};

/// torch.optim.SGD. With gradient g, parameter p and momentum buffer b:
///   g = g + weight_decay p;   b = momentum b + (1 - dampening) g (in the first step b = g);
///   p = p - lr (nesterov ? g + momentum b : b)
/// A negative lr, momentum or weight_decay is a ValueError, as is nesterov without momentum or with dampening.
struct SGD : RuleOptimizer<SGDOptions> {
  using RuleOptimizer::RuleOptimizer;
};

struct LionOptions final : detail::CheckedOptions<LionOptions> {
  LionOptions(double lr = 1e-4) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  OptimizerRule rule() const override;
  GRADUS_FIELDS(lr_, betas_, weight_decay_, maximize_)
  GRADUS_ARG(double, lr);
  GRADUS_ARG(Betas, betas) = {0.9, 0.99};
  GRADUS_ARG(double, weight_decay) = 0;
  /// If true, moves along the gradient instead of against it, which maximizes the loss.
  GRADUS_ARG(bool, maximize) = false;
};

/// Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2 (not in PyTorch). With gradient g:
///   p = p (1 - lr weight_decay);   p = p - lr sign(beta1 m + (1 - beta1) g);   m = beta2 m + (1 - beta2) g
/// Every step changes every element by lr, so suitable learning rates are 3 to 10 times smaller than Adam's, and
/// suitable weight decays are larger by the same factor. Negative options or betas outside [0, 1) are a ValueError.
struct Lion : RuleOptimizer<LionOptions> {
  using RuleOptimizer::RuleOptimizer;
};

// ---- Averages of the gradient and of its square: Adam, AdamW, NAdam and RAdam ----

/// Options of Adam and of AdamW, in which the weight decay does not change the gradient.
template <bool kDecoupled>
struct AdamOptionsOf final : detail::CheckedOptions<AdamOptionsOf<kDecoupled>> {
  AdamOptionsOf(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  const char* name() const override { return kDecoupled ? "AdamWOptions" : "AdamOptions"; }
  OptimizerRule rule() const override;
  GRADUS_FIELDS(lr_, betas_, eps_, weight_decay_, amsgrad_, maximize_)
  GRADUS_ARG(double, lr);
  GRADUS_ARG(NumberVisitor::Betas, betas) = {0.9, 0.999};
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(double, weight_decay) = kDecoupled ? 1e-2 : 0;
  /// If true, divides by the largest second moment of all steps so far instead of the current one.
  GRADUS_ARG(bool, amsgrad) = false;
  /// If true, moves along the gradient instead of against it, which maximizes the loss.
  GRADUS_ARG(bool, maximize) = false;
};
using AdamOptions = AdamOptionsOf<false>;
using AdamWOptions = AdamOptionsOf<true>;

/// Kingma and Ba, "Adam: a method for stochastic optimization", 2015, as torch.optim.Adam. In step t with gradient g:
///   g = g + weight_decay p;   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g²
///   p = p - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)
/// With amsgrad (Reddi, Kale and Kumar, "On the convergence of Adam and beyond", 2018) the largest v so far replaces v.
/// Negative options or betas outside [0, 1) are a ValueError.
struct Adam : RuleOptimizer<AdamOptions> {
  using RuleOptimizer::RuleOptimizer;
};

/// Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, as torch.optim.AdamW. Unlike in Adam, weight
/// decay does not change the gradient but shrinks the parameter before the step: p = p (1 - lr weight_decay).
struct AdamW : RuleOptimizer<AdamWOptions> {
  using RuleOptimizer::RuleOptimizer;
};

struct NAdamOptions final : detail::CheckedOptions<NAdamOptions> {
  NAdamOptions(double lr = 2e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  OptimizerRule rule() const override;
  /// Increments the step count t, then multiplies M by mu_t; NAdam's formula below defines both.
  void advance(const Array& block) const override;
  Counters counters() const override;
  GRADUS_FIELDS(lr_, betas_, eps_, weight_decay_, momentum_decay_, decoupled_weight_decay_, maximize_)
  GRADUS_ARG(double, lr);
  GRADUS_ARG(Betas, betas) = {0.9, 0.999};
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(double, weight_decay) = 0;
  GRADUS_ARG(double, momentum_decay) = 4e-3;
  /// If true, weight decay shrinks the parameter as in AdamW instead of changing the gradient.
  GRADUS_ARG(bool, decoupled_weight_decay) = false;
  /// If true, moves along the gradient instead of against it, which maximizes the loss.
  GRADUS_ARG(bool, maximize) = false;
};

/// Dozat, "Incorporating Nesterov momentum into Adam", 2016, as torch.optim.NAdam of PyTorch 2 (PyTorch 1.13 multiplies
/// mu_t twice into M mu_{t+1}). In step t with gradient g, m and v as in Adam, and M = mu_1 … mu_t:
///   mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2)
///   p = p - lr ((1 - mu_t) / (1 - M) g + mu_{t+1} / (1 - M mu_{t+1}) m) / (sqrt(v / (1 - beta2^t)) + eps)
/// Negative options or betas outside [0, 1) are a ValueError.
struct NAdam : RuleOptimizer<NAdamOptions> {
  using RuleOptimizer::RuleOptimizer;
};

struct RAdamOptions final : detail::CheckedOptions<RAdamOptions> {
  RAdamOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  OptimizerRule rule() const override;
  GRADUS_FIELDS(lr_, betas_, eps_, weight_decay_, decoupled_weight_decay_, maximize_)
  GRADUS_ARG(double, lr);
  GRADUS_ARG(Betas, betas) = {0.9, 0.999};
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(double, weight_decay) = 0;
  /// If true, weight decay shrinks the parameter as in AdamW instead of changing the gradient.
  GRADUS_ARG(bool, decoupled_weight_decay) = false;
  /// If true, moves along the gradient instead of against it, which maximizes the loss.
  GRADUS_ARG(bool, maximize) = false;
};

/// Liu et al., "On the variance of the adaptive learning rate and beyond", 2020, as torch.optim.RAdam. In step t, m and
/// v as in Adam:
///   rho_inf = 2 / (1 - beta2) - 1;   rho = rho_inf - 2 t beta2^t / (1 - beta2^t);   u = m / (1 - beta1^t)
///   rho > 5: p = p - lr r u sqrt(1 - beta2^t) / (sqrt(v) + eps),
///            r² = (rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho);   else p = p - lr u
/// Negative options or betas outside [0, 1) are a ValueError.
struct RAdam : RuleOptimizer<RAdamOptions> {
  using RuleOptimizer::RuleOptimizer;
};

// ---- Division by the root of an average (RMSprop) or of the sum (Adagrad) of squared gradients ----

struct RMSpropOptions final : detail::CheckedOptions<RMSpropOptions> {
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  void check() const override;
  OptimizerRule rule() const override;
  GRADUS_FIELDS(lr_, alpha_, eps_, weight_decay_, momentum_, centered_, maximize_)
  GRADUS_ARG(double, lr);
  GRADUS_ARG(double, alpha) = 0.99;
  GRADUS_ARG(double, eps) = 1e-8;
  GRADUS_ARG(double, weight_decay) = 0;
  GRADUS_ARG(double, momentum) = 0;
  GRADUS_ARG(bool, centered) = false;
  /// If true, moves along the gradient instead of against it, which maximizes the loss.
  GRADUS_ARG(bool, maximize) = false;
};

/// torch.optim.RMSprop: Hinton, "Neural networks for machine learning", lecture 6e, 2012; centered as in Graves,
/// "Generating sequences with recurrent neural networks", 2013. With gradient g (a = 0 unless centered):
///   g = g + weight_decay p;   v = alpha v + (1 - alpha) g²;   a = alpha a + (1 - alpha) g
///   b = momentum b + g / (sqrt(v - a²) + eps);   p = p - lr b
/// Negative options or alpha above 1 are a ValueError.
struct RMSprop : RuleOptimizer<RMSpropOptions> {
  using RuleOptimizer::RuleOptimizer;
};

struct AdagradOptions final : detail::CheckedOptions<AdagradOptions> {
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  OptimizerRule rule() const override;
  double initial_state() const override { return initial_accumulator_value_; }
  GRADUS_FIELDS(lr_, lr_decay_, weight_decay_, initial_accumulator_value_, eps_, maximize_)
  GRADUS_ARG(double, lr);
  GRADUS_ARG(double, lr_decay) = 0;
  GRADUS_ARG(double, weight_decay) = 0;
  /// Initial value of the sum of squared gradients.
  GRADUS_ARG(double, initial_accumulator_value) = 0;
  GRADUS_ARG(double, eps) = 1e-10;
  /// If true, moves along the gradient instead of against it, which maximizes the loss.
  GRADUS_ARG(bool, maximize) = false;
};

/// Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization", 2011, as
/// torch.optim.Adagrad. In step t with gradient g:
///   g = g + weight_decay p;   sum = sum + g²;   p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps)
/// Negative options are a ValueError.
struct Adagrad : RuleOptimizer<AdagradOptions> {
  using RuleOptimizer::RuleOptimizer;
};

// ---- L-BFGS ----

struct LBFGSOptions final : OptimizerCloneableOptions<LBFGSOptions> {
  LBFGSOptions(double lr = 1) : lr_(lr) {}  // NOLINT(google-explicit-constructor)
  void check() const override;
  GRADUS_FIELDS(lr_, max_iter_, tolerance_grad_, tolerance_change_, history_size_)
  GRADUS_ARG(double, lr);
  /// Maximum numbers of iterations and of closure calls in a step. max_eval defaults to 5/4 max_iter.
  GRADUS_ARG(int64_t, max_iter) = 20;
  GRADUS_ARG(std::optional<int64_t>, max_eval) = absent<int64_t>();
  /// step() ends when the largest gradient element is at most tolerance_grad, or when an iteration changes the loss or
  /// every parameter by at most tolerance_change.
  GRADUS_ARG(double, tolerance_grad) = 1e-7;
  GRADUS_ARG(double, tolerance_change) = 1e-9;
  /// Number of past iterations from which the inverse Hessian is approximated.
  GRADUS_ARG(int64_t, history_size) = 100;
  /// "strong_wolfe", or absent. If absent, there is no line search: every iteration moves by lr times its direction.
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
  explicit LBFGS(ParamGroups groups, LBFGSOptions defaults = {});
  explicit LBFGS(TensorList params, LBFGSOptions defaults = {});
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
    Tensor step, change;  // how parameters and gradient changed in one iteration, shape (n)
  };
  Tensor flat_gradient() const;
  void move(double distance, const Tensor& direction) const;
  Tensor direction_for(const Tensor& gradient) const;
  static Point strong_wolfe(const std::function<Point(double)>& at, Point start, double distance, double narrowest);

  std::vector<Pair> history_;
  Tensor direction_, gradient_;  // of the last iteration, shape (n)
  double distance_ = 0;          // factor of direction_ in the last iteration's move
  int64_t iterations_ = 0;
};

}  // namespace gradus::optim
