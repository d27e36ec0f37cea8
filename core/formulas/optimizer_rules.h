// The update rules of optimizers. Each formula is written once and used for numbers (naive, cuda), for vectors (openmp)
// and for whole arrays (the default body of Backend::optimizer_step).
//
// A rule is a struct of options. Its function `prepare` computes the constants of the current step from the StepBlock
// and returns them as a Step. The Step updates one element p from its gradient g and up to three state values s1, s2,
// s3; a rule ignores the states that it does not need. The formulas are templates over three numeric types:
//   S   type of the block's values: double, or an array of one element
//   C   constants in the type that elements are computed in: float or double, or an array of one element
//   V   elements in that type: C itself, a vector of C, or an array
// Formulas therefore use only arithmetic, comparisons, sqrt, select, maximum and sign.
#pragma once

#include <array>
#include <cmath>
#include <variant>

#include <gradus/core/array/dtype.h>
#include <gradus/core/options.h>

namespace gradus {
namespace rules {

using std::sqrt;  // for numbers; argument-dependent lookup finds the sqrt of vectors and arrays

/// condition ? a : b. Vectors and arrays have their own overloads.
template <class V>
GRADUS_HOST_DEVICE V select(bool condition, V a, V b) {
  return condition ? a : b;
}
/// The larger of a and b; NaN if either is NaN.
template <class V>
GRADUS_HOST_DEVICE V maximum(V a, V b) {
  return select(a <= b, b, select(b < a, a, a + b));
}
/// -1, 0 or 1; NaN for NaN.
template <class V>
GRADUS_HOST_DEVICE V sign(V x) {
  return select(x > V(0), V(1), select(x < V(0), V(-1), x));
}

/// The decay rate of an exponential average. The host computes its logarithm once, and powers are computed from the
/// logarithm. This keeps 1 - value^t precise and is faster on a GPU than `pow` in double.
struct Decay {
  double value, logarithm;
  Decay(double value_) : value(value_), logarithm(std::log(value_)) {}  // NOLINT(google-explicit-constructor)
};
/// decay^t and 1 - decay^t
GRADUS_HOST_DEVICE inline double power(const Decay& decay, double t) { return std::exp(t * decay.logarithm); }
GRADUS_HOST_DEVICE inline double one_minus_power(const Decay& decay, double t) {
  return -std::expm1(t * decay.logarithm);
}

/// The StepBlock's entries; `step` is the number of steps, including the current one.
template <class S>
struct BlockValues {
  S step, learning_rate, gradient_scale, momentum_product;
};

/// The exponential averages of Adam and its variants: m of the gradient g and v of g².
///   m += (1 - beta1) (g - m);   v = beta2 v + (1 - beta2) g²
template <class C>
struct Moments {
  C take1, keep2, take2;
  template <class V>
  GRADUS_HOST_DEVICE void update(V& m, V& v, const V& g) const {
    m = m + take1 * (g - m);
    v = keep2 * v + take2 * g * g;
  }
};
template <class C>
GRADUS_HOST_DEVICE Moments<C> moments(const Decay& beta1, const Decay& beta2) {
  return {C(1 - beta1.value), C(beta2.value), C(1 - beta2.value)};
}

/// Options shared by all rules. Weight decay is added to the gradient, or, if decoupled (Loshchilov and Hutter,
/// "Decoupled weight decay regularization", 2019), multiplies the parameter by 1 - lr weight_decay.
struct Common {
  double weight_decay = 0;
  bool decoupled = false, maximize = false;
};

/// The names of the states s1, s2 and s3 in a state dict, as in PyTorch. Null for states that the rule does not need.
using StateNames = std::array<const char*, 3>;

/// torch.optim.SGD; s1 is the momentum buffer b, needed if momentum != 0.
///   b = momentum b + (1 - dampening) g, b = g in the first step;   p -= lr (nesterov ? g + momentum b : b)
struct Sgd : Common {
  static constexpr const char* kName = "sgd_step";
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  GRADUS_FIELDS(weight_decay, decoupled, maximize, momentum, dampening, nesterov)
  StateNames state_names() const { return {momentum != 0 ? "momentum_buffer" : nullptr}; }  ///< the name of b

  template <class C>
  struct Step {
    C lr, keep, take;
    decltype(C() <= C()) first;
    bool has_momentum, nesterov;
    template <class V>
    GRADUS_HOST_DEVICE void operator()(V& p, V g, V& buffer, V&, V&) const {
      if (has_momentum) {
        buffer = select(first, g, keep * buffer + take * g);  // the first step does not apply dampening
        if (nesterov) g = g + keep * buffer;
        else g = buffer;
      }
      p = p - lr * g;
    }
  };
  template <class C, class S>
  GRADUS_HOST_DEVICE Step<C> prepare(const BlockValues<S>& block) const {
    return {C(block.learning_rate), C(momentum), C(1 - dampening), block.step <= 1.0, momentum != 0, nesterov};
  }
};

/// Kingma and Ba, "Adam: a method for stochastic optimization", 2015, as torch.optim.Adam and (decoupled) AdamW. s1 and
/// s2 are the moments m and v. With amsgrad (Reddi, Kale and Kumar, "On the convergence of Adam and beyond", 2018) s3
/// is the largest v so far, which replaces v in the last line.
///   m += (1 - beta1) (g - m);   v = beta2 v + (1 - beta2) g²
///   p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
struct Adam : Common {
  static constexpr const char* kName = "adam_step";
  Decay beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  bool amsgrad = false;
  GRADUS_FIELDS(weight_decay, decoupled, maximize, beta1, beta2, eps, amsgrad)
  /// The names of m, v and the largest v.
  StateNames state_names() const { return {"exp_avg", "exp_avg_sq", amsgrad ? "max_exp_avg_sq" : nullptr}; }

  template <class C>
  struct Step {
    Moments<C> moments;
    C rate, inverse_root_bias2, eps;
    bool amsgrad;
    template <class V>
    GRADUS_HOST_DEVICE void operator()(V& p, V g, V& m, V& v, V& largest) const {
      moments.update(m, v, g);
      if (amsgrad) largest = maximum(largest, v);
      p = p - rate * m / (sqrt(amsgrad ? largest : v) * inverse_root_bias2 + eps);
    }
  };
  template <class C, class S>
  GRADUS_HOST_DEVICE Step<C> prepare(const BlockValues<S>& block) const {
    return {rules::moments<C>(beta1, beta2), C(block.learning_rate / one_minus_power(beta1, block.step)),
            C(1.0 / sqrt(one_minus_power(beta2, block.step))), C(eps), amsgrad};
  }
};

/// torch.optim.RMSprop (Hinton, "Neural networks for machine learning", lecture 6e, 2012; centered: Graves, "Generating
/// sequences with recurrent neural networks", 2013). s1 is the mean square v, s2 (if centered) the mean gradient a, s3
/// (with momentum) the buffer b.
///   v = alpha v + (1 - alpha) g²;   a = alpha a + (1 - alpha) g;   d = g / (sqrt(v - a²) + eps), a = 0 if not centered
///   b = momentum b + d;   p -= lr b, or lr d without momentum
struct Rmsprop : Common {
  static constexpr const char* kName = "rmsprop_step";
  double alpha = 0.99, eps = 1e-8, momentum = 0;
  bool centered = false;
  GRADUS_FIELDS(weight_decay, decoupled, maximize, alpha, eps, momentum, centered)
  /// The names of v, a and b.
  StateNames state_names() const {
    return {"square_avg", centered ? "grad_avg" : nullptr, momentum != 0 ? "momentum_buffer" : nullptr};
  }

  template <class C>
  struct Step {
    C lr, keep, take, eps, momentum;
    bool centered, has_momentum;
    template <class V>
    GRADUS_HOST_DEVICE void operator()(V& p, V g, V& v, V& mean, V& buffer) const {
      v = keep * v + take * g * g;
      V variance = v;
      if (centered) {
        mean = keep * mean + take * g;
        variance = v - mean * mean;
      }
      V update = g / (sqrt(variance) + eps);
      if (has_momentum) update = buffer = momentum * buffer + update;
      p = p - lr * update;
    }
  };
  template <class C, class S>
  GRADUS_HOST_DEVICE Step<C> prepare(const BlockValues<S>& block) const {
    return {C(block.learning_rate), C(alpha), C(1 - alpha), C(eps), C(momentum), centered, momentum != 0};
  }
};

/// Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011, as torch.optim.Adagrad; s1 is the sum of squares.
///   sum += g²;   p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps)
struct Adagrad : Common {
  static constexpr const char* kName = "adagrad_step";
  double lr_decay = 0, eps = 1e-10;
  GRADUS_FIELDS(weight_decay, decoupled, maximize, lr_decay, eps)
  StateNames state_names() const { return {"sum"}; }

  template <class C>
  struct Step {
    C rate, eps;
    template <class V>
    GRADUS_HOST_DEVICE void operator()(V& p, V g, V& sum, V&, V&) const {
      sum = sum + g * g;
      p = p - rate * g / (sqrt(sum) + eps);
    }
  };
  template <class C, class S>
  GRADUS_HOST_DEVICE Step<C> prepare(const BlockValues<S>& block) const {
    return {C(block.learning_rate / (1.0 + (block.step - 1.0) * lr_decay)), C(eps)};
  }
};

/// Dozat, "Incorporating Nesterov momentum into Adam", 2016, as torch.optim.NAdam since 2.0; m and v as in Adam. The
/// block holds M, the product of mu_1 … mu_t, where mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2).
///   p -= lr ((1 - mu_t) / (1 - M) g + mu_{t+1} / (1 - M mu_{t+1}) m) / (sqrt(v / (1 - beta2^t)) + eps)
struct Nadam : Common {
  static constexpr const char* kName = "nadam_step";
  Decay beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8, momentum_decay = 4e-3;
  Decay momentum_base = 0.96;
  GRADUS_FIELDS(weight_decay, decoupled, maximize, beta1, beta2, momentum_base, eps, momentum_decay)
  StateNames state_names() const { return {"exp_avg", "exp_avg_sq"}; }  ///< the names of m and v

  template <class C>
  struct Step {
    Moments<C> moments;
    C gradient_rate, moment_rate, inverse_root_bias2, eps;
    template <class V>
    GRADUS_HOST_DEVICE void operator()(V& p, V g, V& m, V& v, V&) const {
      moments.update(m, v, g);
      p = p - (gradient_rate * g + moment_rate * m) / (sqrt(v) * inverse_root_bias2 + eps);
    }
  };
  /// mu_t
  template <class S>
  GRADUS_HOST_DEVICE S momentum_at(const S& t) const {
    return beta1.value * (1.0 - 0.5 * power(momentum_base, t * momentum_decay));
  }
  template <class C, class S>
  GRADUS_HOST_DEVICE Step<C> prepare(const BlockValues<S>& block) const {
    const S next = momentum_at(block.step + 1.0);
    return {rules::moments<C>(beta1, beta2),
            C(block.learning_rate * (1.0 - momentum_at(block.step)) / (1.0 - block.momentum_product)),
            C(block.learning_rate * next / (1.0 - block.momentum_product * next)),
            C(1.0 / sqrt(one_minus_power(beta2, block.step))), C(eps)};
  }
};

/// Liu et al., "On the variance of the adaptive learning rate and beyond", 2020, as torch.optim.RAdam; m and v as in
/// Adam.
///   rho_inf = 2 / (1 - beta2) - 1;   rho = rho_inf - 2 t beta2^t / (1 - beta2^t);   u = m / (1 - beta1^t)
///   rho > 5: p -= lr r u sqrt(1 - beta2^t) / (sqrt(v) + eps),
///            r² = (rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho)
///   else:    p -= lr u
struct Radam : Common {
  static constexpr const char* kName = "radam_step";
  Decay beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  GRADUS_FIELDS(weight_decay, decoupled, maximize, beta1, beta2, eps)
  StateNames state_names() const { return {"exp_avg", "exp_avg_sq"}; }  ///< the names of m and v

  template <class C>
  struct Step {
    Moments<C> moments;
    C rate, rectification, eps;
    decltype(C() > C()) rectified;
    template <class V>
    GRADUS_HOST_DEVICE void operator()(V& p, V g, V& m, V& v, V&) const {
      moments.update(m, v, g);
      const V update = rate * m;
      p = p - select(rectified, rectification * update / (sqrt(v) + eps), update);
    }
  };
  template <class C, class S>
  GRADUS_HOST_DEVICE Step<C> prepare(const BlockValues<S>& block) const {
    const double rho_inf = 2 / (1 - beta2.value) - 1, scale = rho_inf / ((rho_inf - 4) * (rho_inf - 2));
    const S bias2 = one_minus_power(beta2, block.step);
    const S rho = rho_inf - 2.0 * block.step * power(beta2, block.step) / bias2;
    return {rules::moments<C>(beta1, beta2), C(block.learning_rate / one_minus_power(beta1, block.step)),
            C(sqrt(scale * (rho - 4.0) * (rho - 2.0) / rho * bias2)), C(eps), rho > 5.0};
  }
};

/// Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2; s1 is the momentum m.
///   p -= lr sign(beta1 m + (1 - beta1) g);   m = beta2 m + (1 - beta2) g
struct Lion : Common {
  static constexpr const char* kName = "lion_step";
  double beta1 = 0.9, beta2 = 0.99;
  GRADUS_FIELDS(weight_decay, decoupled, maximize, beta1, beta2)
  StateNames state_names() const { return {"exp_avg"}; }  ///< the name of m

  template <class C>
  struct Step {
    C lr, keep1, take1, keep2, take2;
    template <class V>
    GRADUS_HOST_DEVICE void operator()(V& p, V g, V& m, V&, V&) const {
      p = p - lr * sign(keep1 * m + take1 * g);
      m = keep2 * m + take2 * g;
    }
  };
  template <class C, class S>
  GRADUS_HOST_DEVICE Step<C> prepare(const BlockValues<S>& block) const {
    return {C(block.learning_rate), C(beta1), C(1 - beta1), C(beta2), C(1 - beta2)};
  }
};

/// All rules, as arguments of the template List.
template <template <class...> class List>
using All = List<Sgd, Adam, Rmsprop, Adagrad, Nadam, Radam, Lion>;

/// The complete update of an element: the part shared by all rules, then the rule's own formula.
template <class Rule, class C>
struct FullStep {
  C scale, decay, shrink;
  typename Rule::template Step<C> own;
  template <class V>
  GRADUS_HOST_DEVICE void operator()(V& p, V gradient, V& s1, V& s2, V& s3) const {
    const V g = scale * gradient + decay * p;
    p = shrink * p;
    own(p, g, s1, s2, s3);
  }
};
template <class C, class Rule, class S>
GRADUS_HOST_DEVICE FullStep<Rule, C> full_step(const Rule& rule, const BlockValues<S>& block) {
  return {C(block.gradient_scale * (rule.maximize ? -1.0 : 1.0)), C(rule.decoupled ? 0.0 : rule.weight_decay),
          C(1.0 - block.learning_rate * (rule.decoupled ? rule.weight_decay : 0.0)), rule.template prepare<C>(block)};
}

}  // namespace rules

/// The rule of an optimizer step, with its options.
struct OptimizerRule : rules::All<std::variant> {
  using rules::All<std::variant>::variant;
  /// Calls f with the rule.
  template <class F>
  decltype(auto) visit(const F& f) const {
    return std::visit(f, static_cast<const rules::All<std::variant>&>(*this));
  }
  /// The state names of the rule.
  rules::StateNames state_names() const {
    return visit([](const auto& rule) { return rule.state_names(); });
  }
};

}  // namespace gradus
