#include <gradus/autograd/ops/loss.h>

#include <gradus/autograd/composed.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/core/ops/nn/loss.h>

namespace gradus {
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
  bool backward_in_float32() const override { return GradMode::is_enabled(); }  // else one kernel computes it
  Grads backward(const Tensor& dy) override { return {softmax_backward(dy, y(), axis, log)}; }
};

// softmax: y (dy - sum(dy y));  log_softmax: dy - exp(y) sum(dy)
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int axis, bool log) {
  if (!GradMode::is_enabled()) {
    OpScope op("softmax_backward", Loc{});
    return apply<SoftmaxBackward>(op, dy, y, axis, log);
  }
  if (y.dim() == 0) return dy * 0.0;
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
    Grads backward(const Tensor& g) override {
      OpScope op("pick", Loc{});
      return {apply<Pick>(op, g, target.array(), ignore_index)};
    }
  };
  Array forward(const Array& x, const Array& at, int64_t ignore) {
    target = at, ignore_index = ignore, shape = x.shape();
    return ops::pick(x, at, ignore);
  }
  Grads backward(const Tensor& dy) override {
    OpScope op("pick_backward", Loc{});
    return {apply<Backward>(op, dy, target.array(), ignore_index, shape)};
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
    const Tensor classes = arange(X.size(1), TensorOptions(kLong).device(X.device()));
    Tensor scale = reduction == Reduction::mean ? dloss / weight_sum() : dloss;
    if (reduction == Reduction::none) scale = scale.unsqueeze(1);
    const Tensor dx = (softmax(X, 1) - (at == classes).to(X.dtype())) * scale;
    return {where(at == ignore_index, 0.0, dx)};
  }
};

// Calls rows(x (N, C), classes (N)). An input (C) with a scalar target is treated as a batch of one; each position of
// (N, C, d1, …) is treated as a row.
template <class Rows>
Tensor over_rows(const Tensor& x, const Tensor& target, Reduction reduction, Rows&& rows) {
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
  Dims order = {0};  // moves the classes to the end
  for (int i = 2; i < x.dim(); ++i) order.push_back(i);
  order.push_back(1);
  const Tensor last = x.dim() == 1 ? x : x.permute(order);
  const Tensor loss = rows(last.reshape({target.numel(), last.size(-1)}), target.reshape({target.numel()}));
  return reduction == Reduction::none ? loss.reshape(target.sizes()) : loss;
}

void check_weight(const Tensor& weight, const Tensor& x, int64_t classes) {
  GRADUS_CHECK(!weight.defined() || weight.sizes() == Shape({classes}), ShapeError, "input of shape ", x.sizes(),
               " needs a weight of shape (", classes, ",), got ", weight.sizes());
}

// -log_probabilities[i, target[i]] for each row, 0 for ignored rows, with label smoothing and weights applied.
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
                                      Reduction reduction, double smoothing, Loc where) {
  const int64_t axis = x.dim() == 1 ? 0 : 1, classes = x.size(axis);
  check_weight(weight, x, classes);
  const DType dtype = op.type_of(x);
  Tensor wanted = target.to(dtype);
  if (smoothing > 0) wanted = wanted * (1 - smoothing) + smoothing / static_cast<double>(classes);
  if (weight.defined()) {
    Shape column = Dims::filled(static_cast<int>(x.dim()), 1);
    column[static_cast<int>(axis)] = classes;
    wanted = wanted * weight.to(dtype).view(column);
  }
  const Tensor losses = -(log_softmax(x, axis, {}, where) * wanted).sum({axis});
  if (reduction == Reduction::none) return losses;
  if (reduction == Reduction::sum) return losses.sum();
  return x.numel() > 0 ? losses.mean() : losses.sum() / 0.0;  // without classes NaN, as without rows
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype, Loc where) {
  OpScope op("softmax", where);
  const int axis = normalize_axis(dim, static_cast<int>(x.dim()));
  return apply<Softmax>(op, dtype ? x.to(*dtype) : x, axis, false);
}

Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype, Loc where) {
  OpScope op("log_softmax", where);
  const int axis = normalize_axis(dim, static_cast<int>(x.dim()));
  return apply<Softmax>(op, dtype ? x.to(*dtype) : x, axis, true);
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
      return cross_entropy_of_probabilities(op, x, target, weight, reduction, label_smoothing, where);
    };
    return composed(op, of_probabilities, x);
  }
  const auto of_rows = [&](const Tensor& rows, const Tensor& classes) {
    if (!weight.defined() && label_smoothing == 0)
      return apply<CrossEntropy>(op, rows, classes.array(), ignore_index, reduction);
    ops::check_classes(rows.array(), classes.array());
    return likelihood(op, log_softmax(rows, 1, {}, where), classes, weight, reduction, ignore_index, label_smoothing);
  };
  return composed(
      op, [&](const Tensor& x) { return over_rows(x, target, reduction, of_rows); }, x);
}

}  // namespace gradus
