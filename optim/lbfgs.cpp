#include <gradus/optim/optimizers.h>

#include <algorithm>
#include <cmath>

#include <gradus/autograd/grad_mode.h>
#include <gradus/autograd/node.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/autograd/ops/shape.h>

namespace gradus::optim {
namespace {

double dot(const Tensor& a, const Tensor& b) { return (a * b).sum().item<double>(); }
double largest(const Tensor& x) { return x.abs().max().item<double>(); }

/// Minimizes the cubic through the losses and slopes of two points between `low` and `high` (Nocedal and Wright,
/// equation 3.59). Returns the midpoint if the cubic has no minimum.
template <class Point>
double cubic_minimum(const Point& a, const Point& b, double low, double high) {
  const Point& left = a.distance <= b.distance ? a : b;
  const Point& right = a.distance <= b.distance ? b : a;
  const double width = right.distance - left.distance;
  const double d1 = left.slope + right.slope - 3 * (right.loss - left.loss) / width;
  const double square = d1 * d1 - left.slope * right.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double minimum = right.distance - width * (right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2);
  return std::min(std::max(minimum, low), high);
}

}  // namespace

void LBFGSOptions::check() const {
  detail::check_not_negative("lr", lr_);
  detail::check_not_negative("tolerance_grad", tolerance_grad_);
  detail::check_not_negative("tolerance_change", tolerance_change_);
  GRADUS_CHECK(max_iter_ > 0 && history_size_ > 0 && max_eval_.value_or(1) > 0, ValueError, "max_iter ", max_iter_,
               ", max_eval and history_size ", history_size_, " must be positive");
  GRADUS_CHECK(!line_search_fn_ || *line_search_fn_ == "strong_wolfe", ValueError,
               "line_search_fn must be \"strong_wolfe\" or absent, got \"", line_search_fn_.value_or(""), "\"");
}

LBFGS::LBFGS(ParamGroups groups, LBFGSOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<LBFGSOptions>(std::move(defaults))) {
  GRADUS_CHECK(param_groups().size() == 1, ValueError, "LBFGS takes one parameter group, got ", param_groups().size());
}
LBFGS::LBFGS(TensorList params, LBFGSOptions defaults)
    : LBFGS(ParamGroups{OptimizerParamGroup(std::move(params))}, std::move(defaults)) {}

Tensor LBFGS::flat_gradient() const {
  TensorList flat;
  for (const Tensor& parameter : parameters()) {
    const Tensor gradient = parameter.grad();
    flat.push_back(
        widened(gradient.defined() ? gradient.detach().reshape(-1) : zeros({parameter.numel()}, parameter.options())));
  }
  return cat(flat);
}

void LBFGS::move(double distance, const Tensor& direction) const {
  int64_t at = 0;
  for (const Tensor& parameter : parameters()) {
    parameter.add_(direction.narrow(0, at, parameter.numel()).reshape(parameter.sizes()), distance);
    at += parameter.numel();
  }
}

/// Computes -H g with the two loops of algorithm 7.4 in Nocedal and Wright.
Tensor LBFGS::direction_for(const Tensor& gradient) const {
  Tensor q = -gradient;
  if (history_.empty()) return q;
  std::vector<double> weights(history_.size()), inverse(history_.size());
  for (size_t i = history_.size(); i-- > 0;) {
    const auto& [step, change] = history_[i];
    inverse[i] = 1 / dot(change, step);
    weights[i] = inverse[i] * dot(step, q);
    q = q - weights[i] * change;
  }
  const auto& [last_step, last_change] = history_.back();
  q = q * (dot(last_change, last_step) / dot(last_change, last_change));
  for (size_t i = 0; i < history_.size(); ++i) {
    const auto& [step, change] = history_[i];
    q = q + (weights[i] - inverse[i] * dot(change, q)) * step;
  }
  return q;
}

/// Finds a point at which the loss has decreased enough and its slope is small enough (the strong Wolfe conditions):
/// first brackets such a point (Nocedal and Wright, algorithm 3.5), then narrows the bracket (algorithm 3.6).
LBFGS::Point LBFGS::strong_wolfe(const std::function<Point(double)>& at, Point start, double distance,
                                 double narrowest) {
  constexpr double kDecrease = 1e-4, kCurvature = 0.9;
  constexpr int kMost = 25;
  const auto too_high = [&](const Point& p) {
    const double allowed = start.loss + kDecrease * p.distance * start.slope;
    return p.loss > allowed;
  };
  const auto flat_enough = [&](const Point& p) { return std::abs(p.slope) <= -kCurvature * start.slope; };

  Point previous = start, current = at(distance), low = start, high = start;
  int tries = 0;
  for (; tries < kMost; ++tries) {
    const bool is_higher = too_high(current) || (tries > 1 && current.loss >= previous.loss);
    if (!is_higher && flat_enough(current)) return current;
    if (is_higher || current.slope >= 0) {
      low = previous;
      break;
    }
    const double least = current.distance + 0.01 * (current.distance - previous.distance);
    const double next = cubic_minimum(previous, current, least, 10 * current.distance);
    previous = std::exchange(current, at(next));
  }
  high = current;

  // From here on, `low` is the end of the bracket with the smaller loss, which may be the left or the right end.
  if (low.loss > high.loss) std::swap(low, high);
  bool little_progress = false;
  for (; tries < kMost; ++tries) {
    const double left = std::min(low.distance, high.distance), right = std::max(low.distance, high.distance);
    if (right - left < narrowest) break;
    double next = cubic_minimum(low, high, left, right);
    const double margin = 0.1 * (right - left);
    const bool at_edge = std::min(right - next, next - left) < margin;
    if (at_edge && (little_progress || next >= right || next <= left)) {
      next = right - next < next - left ? right - margin : left + margin;
      little_progress = false;
    } else {
      little_progress = at_edge;
    }
    Point middle = at(next);
    if (too_high(middle) || middle.loss >= low.loss) {
      high = std::move(middle);
      if (low.loss > high.loss) std::swap(low, high);
      continue;
    }
    if (flat_enough(middle)) return middle;
    if (middle.slope * (high.distance - low.distance) >= 0) high = low;
    low = std::move(middle);
  }
  return low;
}

Tensor LBFGS::step(LossClosure closure) {
  GRADUS_CHECK(closure, ValueError, "LBFGS::step needs a closure that computes the loss and its gradients");
  check_type(param_groups()[0].options());
  const auto& options = static_cast<const LBFGSOptions&>(param_groups()[0].options());
  const NoGradGuard no_grad;
  int64_t calls = 0;
  const auto evaluate = [&] {
    ++calls;
    const AutoGradMode with_grad(true);
    return closure();
  };
  const int64_t most_calls = options.max_eval().value_or(options.max_iter() * 5 / 4);
  const Tensor first_loss = evaluate();
  double loss = first_loss.item<double>();
  Tensor gradient = flat_gradient();
  if (largest(gradient) <= options.tolerance_grad()) return first_loss;

  for (int64_t i = 1; i <= options.max_iter(); ++i) {
    if (++iterations_ > 1) {
      Pair pair{direction_ * distance_, gradient - gradient_};
      if (dot(pair.change, pair.step) > 1e-10) {
        if (std::ssize(history_) == options.history_size()) history_.erase(history_.begin());
        history_.push_back(std::move(pair));
      }
    }
    direction_ = direction_for(gradient);
    gradient_ = gradient;
    const double last_loss = loss;
    distance_ = options.lr() * (iterations_ == 1 ? std::min(1.0, 1 / gradient.abs().sum().item<double>()) : 1.0);
    const double slope = dot(gradient, direction_);
    if (slope > -options.tolerance_change()) break;

    if (options.line_search_fn()) {
      const TensorList all = parameters();
      TensorList before;
      for (const Tensor& parameter : all) before.push_back(parameter.clone());
      const auto at = [&](double distance) {
        move(distance, direction_);
        Point point{distance, evaluate().item<double>(), 0, flat_gradient()};
        point.slope = dot(point.gradient, direction_);
        for (size_t p = 0; p < all.size(); ++p) all[p].copy_(before[p]);
        return point;
      };
      const Point found =
          strong_wolfe(at, {0, loss, slope, gradient}, distance_, options.tolerance_change() / largest(direction_));
      distance_ = found.distance;
      loss = found.loss;
      gradient = found.gradient;
      move(distance_, direction_);
    } else {
      move(distance_, direction_);
      if (i == options.max_iter()) break;  // the gradient at the new point would not be used
      loss = evaluate().item<double>();
      gradient = flat_gradient();
    }
    if (calls >= most_calls || largest(gradient) <= options.tolerance_grad() ||
        largest(direction_) * distance_ <= options.tolerance_change() ||
        std::abs(loss - last_loss) < options.tolerance_change())
      break;
  }
  return first_loss;
}

Optimizer::StateDict LBFGS::state_dict() const {
  StateDict state = Optimizer::state_dict();
  NumberWriter numbers(state, "state.");
  double iterations = static_cast<double>(iterations_), distance = distance_;
  numbers("n_iter", iterations);
  numbers("t", distance);
  if (direction_.defined()) state.insert("state.d", direction_.clone());
  if (gradient_.defined()) state.insert("state.prev_flat_grad", gradient_.clone());
  TensorList steps, changes;
  for (const auto& [step, change] : history_) {
    steps.push_back(step);
    changes.push_back(change);
  }
  if (!steps.empty()) {
    state.insert("state.old_stps", stack(steps));
    state.insert("state.old_dirs", stack(changes));
  }
  return state;
}

void LBFGS::load_state_dict(const StateDict& state) {
  StateReader reader(state);
  int64_t elements = 0;
  for (const Tensor& parameter : parameters()) elements += parameter.numel();
  const auto vectors = [&](const char* key, int64_t dim) {
    if (!reader.contains(key)) return Tensor();
    const Tensor& found = reader.get(key);
    GRADUS_CHECK(found.dim() == dim && found.size(-1) == elements, ShapeError, "state dict entry '", key, "' of shape ",
                 found.sizes(), " does not fit parameters of ", elements, " elements");
    return found.to(parameters()[0].device(), parameters()[0].dtype(), false, true);
  };
  const Tensor direction = vectors("state.d", 1), gradient = vectors("state.prev_flat_grad", 1);
  const Tensor steps = vectors("state.old_stps", 2), changes = vectors("state.old_dirs", 2);
  const double iterations = reader.number("state.n_iter"), distance = reader.number("state.t");
  GRADUS_CHECK(steps.defined() == changes.defined() && (!steps.defined() || steps.sizes() == changes.sizes()) &&
                   iterations >= 0 && (iterations == 0) == !direction.defined(),
               ValueError, "the state dict does not belong to an LBFGS");
  Optimizer::load_state_dict(state);
  history_.clear();
  for (int64_t i = 0; steps.defined() && i < steps.size(0); ++i)
    history_.push_back({steps[i].clone(), changes[i].clone()});
  direction_ = direction;
  gradient_ = gradient;
  iterations_ = static_cast<int64_t>(iterations);
  distance_ = distance;
}

}  // namespace gradus::optim
