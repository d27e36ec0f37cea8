#include <gradus/autograd/ops/nn/loss.h>

#include <cmath>
#include <limits>
#include <numbers>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/nn/activation.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/nn/nn.h>

namespace gradus {

// ---- Softmax and classification ----

namespace {

Tensor softmax_backward(const Tensor& dy, const Tensor& y, int axis, bool log);

struct SoftmaxBackward final : Node {
  Array forward(const Array& dy, const Array& y, int axis, bool log) { return ops::softmax_backward(dy, y, axis, log); }
};

struct Softmax final : Node {  // y = softmax(x) or log_softmax(x) along axis
  Saved y{this, "y"};
  int axis = 0;
  bool log = false;
  const char* name() const override { return log ? "LogSoftmax" : "Softmax"; }
  Array forward(const Array& x, int along, bool logarithm) {
    axis = along, log = logarithm;
    Array Y = ops::softmax(x, axis, log);
    y = own(Y);
    return Y;
  }
  bool backward_in_float32() const override { return GradMode::is_enabled(); }  // otherwise one kernel computes dx
  Grads backward(const Tensor& dy) override { return {softmax_backward(dy, y(), axis, log)}; }
};

// softmax: y (dy - sum(dy y));  log_softmax: dy - exp(y) sum(dy)
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int axis, bool log) {
  if (!GradMode::is_enabled()) return apply<SoftmaxBackward>("softmax_backward", dy, y, axis, log);
  return log ? dy - y.exp() * dy.sum({axis}, true) : y * (dy - (dy * y).sum({axis}, true));
}

struct Pick final : Node {  // y[i] = x[i, target[i]], 0 in ignored rows
  Saved target{this, "target"};
  int64_t ignore_index = 0;
  Shape shape;
  struct Backward final : Node {  // dx[i, target[i]] = dy[i], else 0
    Saved target{this, "target"};
    int64_t ignore_index = 0;
    const char* name() const override { return "PickBackward"; }
    Array forward(const Array& dy, const Array& at, int64_t ignore, const Shape& x_shape) {
      target = at, ignore_index = ignore;
      return ops::pick_backward(dy, at, ignore, x_shape);
    }
    Grads backward(const Tensor& g) override { return {apply<Pick>("pick", g, target.array(), ignore_index)}; }
  };
  Array forward(const Array& x, const Array& at, int64_t ignore) {
    target = at, ignore_index = ignore, shape = x.shape();
    return ops::pick(x, at, ignore);
  }
  Grads backward(const Tensor& dy) override {
    return {apply<Backward>("pick_backward", dy, target.array(), ignore_index, shape)};
  }
};

struct CrossEntropy final : Node {  // loss of logits x at classes target
  Saved x{this, "x"}, log_probabilities{this, "log_probabilities"}, target{this, "target"},
      weight_sum{this, "weight_sum"};
  int64_t ignore_index = 0;
  Reduction reduction = Reduction::mean;

  Array forward(const Array& X, const Array& at, int64_t ignore, Reduction how) {
    ops::CrossEntropyResult result = ops::cross_entropy(X, at, ignore, how);
    ignore_index = ignore, reduction = how;
    if (needs_grad(0)) {
      x = input(0);
      target = at, log_probabilities = result.log_probabilities, weight_sum = result.weight_sum;
    }
    return result.loss;
  }

  // dx = (softmax(x) - onehot(target)) dloss [/ rows], 0 in ignored rows
  Grads backward(const Tensor& dloss) override {
    if (!GradMode::is_enabled())
      return {
          Tensor(ops::cross_entropy_backward(dloss.array(), {Array(), log_probabilities.array(), weight_sum.array()},
                                             target.array(), ignore_index, reduction))};
    const Tensor at = target().unsqueeze(1), X = x();  // (N, 1), (N, C)
    const Tensor classes = arange(X.size(1), X.options().dtype(kLong));
    Tensor scale = reduction == Reduction::mean ? dloss / weight_sum() : dloss;
    if (reduction == Reduction::none) scale = scale.unsqueeze(1);
    const Tensor dx = (softmax(X, 1) - (at == classes).to(X.dtype())) * scale;
    return {where(at == ignore_index, 0.0, dx)};
  }
};

// Returns rows(x, classes) for x (N, C) and classes (N). An input (C) with a scalar target becomes a batch of one row;
// of an input (N, C, d1, …), each position becomes a row.
template <class Rows>
Tensor over_rows(const Tensor& x, const Tensor& target, Reduction reduction, const Rows& rows) {
  if (x.dim() == 1) {
    GRADUS_CHECK(target.dim() == 0, ShapeError, "input of shape ", x.sizes(), " needs a scalar target, got shape ",
                 target.sizes());
  } else if (x.dim() > 2) {
    Shape places = x.sizes();
    places.erase(1);
    GRADUS_CHECK(target.sizes() == places, ShapeError, "input of shape ", x.sizes(), " needs a target of shape ",
                 places, ", got ", target.sizes());
  } else {
    return rows(x, target);
  }
  const Tensor last = x.dim() == 1 ? x : x.movedim(1, -1);
  const Tensor loss = rows(last.reshape({target.numel(), last.size(-1)}), target.reshape({target.numel()}));
  return reduction == Reduction::none ? loss.reshape(target.sizes()) : loss;
}

void check_weight(const Tensor& weight, const Tensor& x, int64_t classes) {
  GRADUS_CHECK(!weight.defined() || weight.sizes() == Shape({classes}), ShapeError, "input of shape ", x.sizes(),
               " needs a weight of shape (", classes, ",), got ", weight.sizes());
}

// Computes the loss of each row i, which is -log_probabilities[i, classes[i]], or 0 if the row is ignored. Then applies
// label smoothing, weights and the reduction.
Tensor likelihood(OpScope& op, const Tensor& log_probabilities, const Tensor& classes, const Tensor& weight,
                  Reduction reduction, int64_t ignore_index, double smoothing) {
  const int64_t count = log_probabilities.size(1);
  check_weight(weight, log_probabilities, count);
  const DType dtype = op.type_of(log_probabilities);
  Tensor losses = -apply<Pick>(op, log_probabilities, classes.array(), ignore_index);  // (N)
  Tensor weights, each;                                                                // shapes (N) and (C)
  if (weight.defined()) {
    each = weight.to(dtype);
    weights = apply<Pick>(op, each.expand(log_probabilities.sizes()), classes.array(), ignore_index);
    losses = losses * weights;
  }
  if (smoothing > 0) {
    const Tensor weighed = weight.defined() ? log_probabilities * each : log_probabilities;
    const Tensor spread = where(classes == ignore_index, 0.0, weighed.sum({1}));
    losses = losses * (1 - smoothing) - spread * (smoothing / static_cast<double>(count));
  }
  if (reduction == Reduction::none) return losses;
  if (reduction == Reduction::sum) return losses.sum();
  if (weight.defined()) return losses.sum() / weights.sum();
  return losses.sum() / Tensor(ops::count_targets(classes.array(), ignore_index, dtype));
}

// Cross-entropy of logits x, where `target` contains class probabilities in x's shape.
Tensor cross_entropy_of_probabilities(const OpScope& op, const Tensor& x, const Tensor& target, const Tensor& weight,
                                      Reduction reduction, double smoothing) {
  const int64_t axis = x.dim() == 1 ? 0 : 1, classes = x.size(axis);
  check_weight(weight, x, classes);
  const DType dtype = op.type_of(x);
  Tensor wanted = target.to(dtype);
  if (smoothing > 0) wanted = wanted * (1 - smoothing) + smoothing / static_cast<double>(classes);
  if (weight.defined()) {
    Shape column = Dims::filled(ndim_of(x), 1);
    column[static_cast<int>(axis)] = classes;
    wanted = wanted * weight.to(dtype).view(column);
  }
  const Tensor losses = -(log_softmax(x, axis) * wanted).sum({axis});
  if (reduction == Reduction::none) return losses;
  if (reduction == Reduction::sum) return losses.sum();
  return x.numel() > 0 ? losses.mean() : losses.sum() / 0.0;  // NaN if there are no classes, as for no rows
}

}  // namespace

Tensor Tensor::softmax(int64_t dim, std::optional<DType> dtype, Loc where) const {
  OpScope op("softmax", where);
  const int axis = axis_of(*this, dim);
  return apply<Softmax>(op, dtype ? to(*dtype) : *this, axis, false);
}

Tensor Tensor::log_softmax(int64_t dim, std::optional<DType> dtype, Loc where) const {
  OpScope op("log_softmax", where);
  const int axis = axis_of(*this, dim);
  return apply<Softmax>(op, dtype ? to(*dtype) : *this, axis, true);
}

Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight, Reduction reduction, int64_t ignore_index,
                Loc where) {
  OpScope op("nll_loss", where);
  const auto of_rows = [&](const Tensor& rows, const Tensor& classes) {
    ops::check_classes(rows.array(), classes.array());
    return likelihood(op, rows, classes, weight, reduction, ignore_index, 0);
  };
  return composed(
      op, [&](const Tensor& x) { return over_rows(x, target, reduction, of_rows); }, x);
}

Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight, Reduction reduction,
                     int64_t ignore_index, double label_smoothing, Loc where) {
  OpScope op("cross_entropy", where);
  GRADUS_CHECK(label_smoothing >= 0 && label_smoothing <= 1, ValueError, "label_smoothing must be in [0, 1], got ",
               label_smoothing);
  if (is_floating(target.dtype()) && x.dim() > 0 && target.sizes() == x.sizes()) {
    const auto of_probabilities = [&](const Tensor& x) {
      return cross_entropy_of_probabilities(op, x, target, weight, reduction, label_smoothing);
    };
    return composed(op, of_probabilities, x);
  }
  const auto of_rows = [&](const Tensor& rows, const Tensor& classes) {
    if (!weight.defined() && label_smoothing == 0)
      return apply<CrossEntropy>(op, rows, classes.array(), ignore_index, reduction);
    ops::check_classes(rows.array(), classes.array());
    return likelihood(op, log_softmax(rows, 1), classes, weight, reduction, ignore_index, label_smoothing);
  };
  return composed(
      op, [&](const Tensor& x) { return over_rows(x, target, reduction, of_rows); }, x);
}

// ---- Other losses ----

namespace {

// Converts x to the type in which losses are computed: float64 for float64, else float32.
Tensor wide(const Tensor& x) { return x.to(x.dtype() == kDouble ? kDouble : kFloat); }

Tensor reduced(const Tensor& losses, Reduction reduction, DType dtype) {
  if (reduction == Reduction::none) return losses.to(dtype);
  return (reduction == Reduction::mean ? losses.mean() : losses.sum()).to(dtype);
}

void check_input(const Tensor& x) { ops::check_floating(x.array(), "input"); }

// Throws unless x broadcasts to the shape of `target` or target to that of x; messages call the second tensor `what`.
// If both had to be expanded, as (4, 1) and (4) to (4, 4), every row would be compared with every other row.
void check_broadcast(const Tensor& x, const Tensor& target, const char* what = "target") {
  check_input(x);
  bool fits = true;
  for (int64_t i = 1; i <= std::min(x.dim(), target.dim()); ++i)
    fits = fits && (x.size(-i) == target.size(-i) || x.size(-i) == 1 || target.size(-i) == 1);
  GRADUS_CHECK(fits, ShapeError, "input of shape ", x.sizes(), " and ", what, " of shape ", target.sizes(),
               " cannot be broadcast to each other");
  const Shape both = broadcast_shapes(x.sizes(), target.sizes());
  GRADUS_CHECK(both == x.sizes() || both == target.sizes(), ShapeError, "input of shape ", x.sizes(), " and ", what,
               " of shape ", target.sizes(), " would both be broadcast to ", both,
               "; give them one shape, for example by squeeze(-1), unsqueeze(-1) or view_as");
}

void check_same_shape(const Tensor& x, const Tensor& target, const char* what = "target") {
  check_input(x);
  GRADUS_CHECK(x.sizes() == target.sizes(), ShapeError, "input of shape ", x.sizes(), " needs a ", what,
               " of the same shape, got ", target.sizes());
}

// Throws unless holds(least, most) is true for the smallest and largest element of x. NaN is rejected, because
// comparisons with it are false. Runs only on the CPU: on a GPU the host would have to wait for the result.
void check_all(const Tensor& x, bool (*holds)(double least, double most), const char* what, const char* range) {
  if (!x.device().is_cpu() || x.numel() == 0) return;
  const Tensor numbers = x.detach();
  const double least = numbers.min().item<double>(), most = numbers.max().item<double>();
  GRADUS_CHECK(holds(least, most), ValueError, what, " must be ", range, ", got numbers from ", least, " to ", most);
}

Tensor difference(const Tensor& x, const Tensor& target) {
  check_broadcast(x, target);
  return wide(x) - wide(target);
}

Tensor clamped_log(const Tensor& x) { return x.log().clamp(-100); }

struct BinaryCrossEntropy final : Node {  // y = -(t log x + (1 - t) log(1 - x)), each log clamped to >= -100
  Saved x{this, "x"}, target{this, "target"};
  Array forward(const Array& X, const Array& t) {
    x = input(0);
    target = input(1);
    const auto log = [](const Array& p) {
      return ops::unary(UnaryOp::clamp, ops::unary(UnaryOp::log, p), {-100, INFINITY});
    };
    const Array rest = ops::binary_scalar(BinaryOp::sub, X, 1, /*scalar_first=*/true);
    const Array other = ops::binary_scalar(BinaryOp::sub, t, 1, /*scalar_first=*/false);  // t - 1
    return ops::binary(BinaryOp::sub, ops::binary(BinaryOp::mul, other, log(rest)),
                       ops::binary(BinaryOp::mul, t, log(X)));
  }
  Grads backward(const Tensor& dy) override {  // finite, even if x is 0 or 1
    const Tensor p = x(), t = target();
    constexpr double kLeast = 1e-12f;  // the float that PyTorch uses, even for doubles
    return {needs_grad(0) ? dy * ((p - t) / ((1 - p) * p).clamp(kLeast)) : Tensor(),
            needs_grad(1) ? dy * (clamped_log(1 - p) - clamped_log(p)) : Tensor()};
  }
};

Tensor weighed(const Tensor& losses, const Tensor& weight) {
  if (!weight.defined()) return losses;
  check_broadcast(losses, weight, "weight");
  return losses * wide(weight);
}

// p-norm of a - b + eps over the last dimension.
Tensor distance(const Tensor& a, const Tensor& b, double p, double eps) { return (a - b + eps).norm(p, {-1}); }

}  // namespace

// ---- Regression ----

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction, Loc where) {
  OpScope op("mse_loss", where);
  return reduced(difference(x, target).square(), reduction, op.type_of(x));
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, Loc where) {
  OpScope op("l1_loss", where);
  return reduced(difference(x, target).abs(), reduction, op.type_of(x));
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction, double beta, Loc where) {
  OpScope op("smooth_l1_loss", where);
  GRADUS_CHECK(beta >= 0, ValueError, "beta must not be negative, got ", beta);
  const Tensor d = difference(x, target).abs();
  if (beta == 0) return reduced(d, reduction, op.type_of(x));
  // Large d are not squared: an infinite d would give the gradient 0 * inf in the branch that is not selected.
  const Tensor is_far = d >= beta, near = gradus::where(is_far, 0.0, d);
  return reduced(gradus::where(is_far, d - 0.5 * beta, near * near * (0.5 / beta)), reduction, op.type_of(x));
}

Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction, double delta, Loc where) {
  OpScope op("huber_loss", where);
  GRADUS_CHECK(delta > 0, ValueError, "delta must be positive, got ", delta);
  const Tensor d = difference(x, target).abs();
  const Tensor is_far = d > delta, near = gradus::where(is_far, 0.0, d);  // as in smooth_l1_loss
  return reduced(gradus::where(is_far, (d - 0.5 * delta) * delta, near * near * 0.5), reduction, op.type_of(x));
}

Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, bool log_input, bool full, double eps,
                        Reduction reduction, Loc where) {
  OpScope op("poisson_nll_loss", where);
  check_broadcast(x, target);
  const Tensor rate = wide(x), t = wide(target);
  Tensor losses = log_input ? rate.exp() - t * rate : rate - t * (rate + eps).log();
  if (full) {
    const Tensor large = gradus::where(t > 1, t, 1.0);
    const Tensor stirling = large * large.log() - large + (large * (2 * std::numbers::pi)).log() * 0.5;
    losses = losses + gradus::where(t > 1, stirling, 0.0);
  }
  return reduced(losses, reduction, op.type_of(x));
}

Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& variance, bool full, double eps,
                         Reduction reduction, Loc where) {
  OpScope op("gaussian_nll_loss", where);
  const Tensor d = difference(x, target);
  const bool one_for_row = variance.dim() == x.dim() - 1;
  const Tensor given = wide(one_for_row ? variance.unsqueeze(-1) : variance);
  check_broadcast(x, given, "variance");
  check_all(
      given, [](double least, double) { return least >= 0; }, "variance", "not negative");
  const Tensor v =
      given + (given.detach().clamp(eps) - given.detach());  // max(variance, eps), but with gradient 1 everywhere
  const Tensor losses = (v.log() + d * d / v) * 0.5;
  return reduced(full ? losses + 0.5 * std::log(2 * std::numbers::pi) : losses, reduction, op.type_of(x));
}

// ---- Probabilities ----

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight, Reduction reduction,
                            Loc where) {
  OpScope op("binary_cross_entropy", where);
  check_same_shape(x, target);
  check_all(
      x, [](double least, double most) { return least >= 0 && most <= 1; }, "input", "between 0 and 1");
  const Tensor losses = apply<BinaryCrossEntropy>(op, wide(x), wide(target));
  return reduced(weighed(losses, weight), reduction, op.type_of(x));
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight,
                                        const Tensor& pos_weight, Reduction reduction, Loc where) {
  OpScope op("binary_cross_entropy_with_logits", where);
  check_same_shape(x, target);
  const Tensor z = wide(x), t = wide(target), log_p = log_sigmoid(z);
  if (pos_weight.defined()) check_broadcast(z, pos_weight, "pos_weight");
  const Tensor on_log = pos_weight.defined() ? log_p * ((wide(pos_weight) - 1) * t + 1) : log_p;
  return reduced(weighed((1 - t) * z - on_log, weight), reduction, op.type_of(x));
}

Tensor kl_div(const Tensor& x, const Tensor& target, KLDivReduction reduction, bool log_target, Loc where) {
  OpScope op("kl_div", where);
  check_broadcast(x, target);
  const Tensor z = wide(x), t = wide(target);
  const Tensor log_t = log_target ? t : gradus::where(t == 0, 1.0, t).log();  // 0 log 0 is 0
  const Tensor losses = (log_target ? t.exp() : t) * (log_t - z);
  const Tensor y = reduced(losses, reduction.reduction, losses.dtype());
  return (reduction.by_rows ? y / static_cast<double>(x.dim() > 0 ? x.size(0) : 1) : y).to(op.type_of(x));
}

Tensor soft_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction, Loc where) {
  OpScope op("soft_margin_loss", where);
  check_broadcast(x, target);
  return reduced(-log_sigmoid(wide(x) * wide(target)), reduction, op.type_of(x));
}

Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target, const Tensor& weight, Reduction reduction,
                                   Loc where) {
  OpScope op("multilabel_soft_margin_loss", where);
  check_same_shape(x, target);
  GRADUS_CHECK(x.dim() > 0, ShapeError, "input must be (…, C), got shape ", x.sizes());
  const Tensor z = wide(x), t = wide(target);
  const Tensor losses = (1 - t) * z - log_sigmoid(z);
  return reduced(weighed(losses, weight).mean({-1}), reduction, op.type_of(x));
}

// ---- Margins ----

Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, double margin, Reduction reduction, Loc where) {
  OpScope op("hinge_embedding_loss", where);
  check_broadcast(x, target);
  const Tensor z = wide(x), t = wide(target);
  const Tensor apart = gradus::where(t != 1, (margin - z).clamp(0), 0.0), together = gradus::where(t != -1, z, 0.0);
  return reduced(apart + together, reduction, op.type_of(x));
}

Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& target, double margin, Reduction reduction,
                           Loc where) {
  OpScope op("margin_ranking_loss", where);
  check_broadcast(x1, x2, "second input"), check_broadcast(x1, target), check_broadcast(x2, target);
  return reduced((-wide(target) * (wide(x1) - wide(x2)) + margin).clamp(0), reduction, op.type_of(x1));
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin,
                           double p, double eps, bool swap, Reduction reduction, Loc where) {
  OpScope op("triplet_margin_loss", where);
  check_broadcast(anchor, positive, "positive"), check_broadcast(anchor, negative, "negative");
  check_broadcast(positive, negative, "negative");
  GRADUS_CHECK(anchor.dim() > 0, ShapeError, "anchor must be (N, D) or (D), got shape ", anchor.sizes());
  const Tensor a = wide(anchor), near = wide(positive), far = wide(negative);
  Tensor away = distance(a, far, p, eps);
  if (swap) away = minimum(away, distance(near, far, p, eps));
  return reduced((distance(a, near, p, eps) - away + margin).clamp(0), reduction, op.type_of(anchor));
}

Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& target, double margin,
                             Reduction reduction, Loc where) {
  OpScope op("cosine_embedding_loss", where);
  check_same_shape(x1, x2, "second input");
  GRADUS_CHECK(target.dim() == 1 ? x1.dim() == 2 && (target.size(0) == x1.size(0) || target.size(0) == 1)
                                 : target.dim() == 0 && x1.dim() == 1,
               ShapeError, "inputs of shape ", x1.sizes(),
               " need (N, D) and a target (N), or (D) and a scalar target, got ", target.sizes());
  const Tensor a = wide(x1), b = wide(x2), t = wide(target);
  constexpr double tiny = 1e-12;  // PyTorch's value
  const Tensor length = (((a * a).sum({-1}) + tiny) * ((b * b).sum({-1}) + tiny)).sqrt();
  const Tensor cosine = (a * b).sum({-1}) / length;
  const Tensor alike = gradus::where(t == 1, 1 - cosine, 0.0);
  const Tensor unlike = gradus::where(t == -1, (cosine - margin).clamp(0), 0.0);
  return reduced(alike + unlike, reduction, op.type_of(x1));
}

Tensor multi_margin_loss(const Tensor& x, const Tensor& target, int64_t p, double margin, const Tensor& weight,
                         Reduction reduction, Loc where) {
  OpScope op("multi_margin_loss", where);
  check_input(x);
  GRADUS_CHECK(p == 1 || p == 2, ValueError, "p must be 1 or 2, got ", p);
  GRADUS_CHECK((x.dim() == 1 && target.dim() == 0) || (x.dim() == 2 && target.sizes() == Shape({x.size(0)})),
               ShapeError, "input must be (N, C) with a target (N), or (C) with a scalar target, got shapes ",
               x.sizes(), " and ", target.sizes());
  const bool single = x.dim() == 1;
  const Tensor z = wide(single ? x.unsqueeze(0) : x), classes = single ? target.unsqueeze(0) : target;
  const int64_t no_class = std::numeric_limits<int64_t>::min();  // an ignore_index that no class has
  const auto pick = [&](const Tensor& from) {
    return -nll_loss(from, classes, {}, Reduction::none, no_class).unsqueeze(1);  // (N, 1)
  };
  const Tensor short_of = (margin - pick(z) + z).clamp(0);
  Tensor terms = p == 2 ? short_of * short_of : short_of;
  if (weight.defined()) {
    check_weight(weight, x, z.size(1));
    terms = terms * pick(wide(weight).expand(z.sizes()));
  }
  const Tensor own = classes.unsqueeze(1) == arange(z.size(1), z.options().dtype(kLong));
  const Tensor losses = gradus::where(own, 0.0, terms).mean({1});
  return reduced(single && reduction == Reduction::none ? losses.squeeze(0) : losses, reduction, op.type_of(x));
}

}  // namespace gradus
