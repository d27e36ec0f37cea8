#include <gradus/autograd/ops/nn/dropout.h>

#include <cmath>

#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/creation.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/core/ops/nn/nn.h>

namespace gradus {
namespace {

struct DropoutBackward : Node {  // dx = dy mask / (1 - p), linear in dy
  Saved mask{this, "mask"};
  double p = 0;
  Array forward(const Array& dy, const Array& kept, double probability) {
    mask = kept, p = probability;
    return ops::dropout_backward(dy, kept, p);
  }
  Grads backward(const Tensor& g) override { return {apply<DropoutBackward>("dropout_backward", g, mask.array(), p)}; }
};

struct Dropout final : DropoutBackward {  // y = x mask / (1 - p); dx has the same form, so backward is inherited
  Array forward(const Array& x, double probability) {
    p = probability;
    auto [y, kept] = ops::dropout(x, p);
    mask = kept;
    return y;
  }
};

// True if elements are dropped.
bool drops(double p, bool train) {
  GRADUS_CHECK(p >= 0 && p <= 1, ValueError, "dropout probability must be in [0, 1], got ", p);
  return train && p > 0;
}

// Returns ones, which dropout turns into random factors: of x's shape, or one for each channel of x (N, C, …).
Tensor ones_for(const Tensor& x, bool channels) {
  ops::check_floating(x.array(), "input");
  const NoGradGuard no_grad;
  if (!channels) return ones_like(x);
  GRADUS_CHECK(x.dim() >= 2, ShapeError, "input must have at least 2 dimensions (N, C, …), got shape ", x.sizes());
  Shape shape = Dims::filled(ndim_of(x), 1);
  shape[0] = x.size(0), shape[1] = x.size(1);
  return ones(shape, x.options());
}

// Which form of dropout a function computes.
struct Kind {
  bool channels = false;  // drops whole channels of x (N, C, …) instead of single elements
  bool alpha = false;     // alpha dropout: sets dropped elements to SELU's lower limit, -alpha', instead of 0
};

// The random factors of one call: y = x scale + shift. Only alpha dropout has a shift. Its scale and shift set dropped
// elements to -alpha' and then restore mean 0 and variance 1.
struct Noise {
  Tensor scale, shift;
  Noise(const Tensor& x, double p, Kind kind) : scale(dropout(ones_for(x, kind.channels), p, true)) {
    if (!kind.alpha) return;
    constexpr double alpha = 1.7580993408473766;
    const double a = p < 1 ? 1 / std::sqrt((alpha * alpha * p + 1) * (1 - p)) : 0;
    const Tensor kept = scale * (1 - p);  // 1 or 0
    scale = kept * a;
    shift = (kept - 1) * (alpha * a) + alpha * a * p;
  }
};

Tensor dropped(const char* name, const Tensor& x, double p, bool train, Kind kind, Loc where) {
  OpScope op(name, where);
  if (!drops(p, train)) return x;
  const auto noisy = [&](const Tensor& x) {
    const Noise noise(x, p, kind);
    return kind.alpha ? x * noise.scale + noise.shift : x * noise.scale;
  };
  return composed(op, noisy, x);
}

const Tensor& drop_in_place(const char* name, const Tensor& x, double p, bool train, Kind kind, Loc where) {
  OpScope op(name, where);
  if (!drops(p, train)) return x;
  if (is_half(x.dtype())) return x.copy_(dropped(name, x, p, train, kind, where));
  const Noise noise(x, p, kind);
  x.mul_(noise.scale);
  return kind.alpha ? x.add_(noise.shift) : x;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool train, Loc where) {
  OpScope op("dropout", where);
  return drops(p, train) ? apply<Dropout>(op, x, p) : x;
}

const Tensor& dropout_(const Tensor& x, double p, bool train, Loc where) {
  return drop_in_place("dropout_", x, p, train, {}, where);
}
Tensor feature_dropout(const Tensor& x, double p, bool train, Loc where) {
  return dropped("feature_dropout", x, p, train, {.channels = true}, where);
}
const Tensor& feature_dropout_(const Tensor& x, double p, bool train, Loc where) {
  return drop_in_place("feature_dropout_", x, p, train, {.channels = true}, where);
}
Tensor dropout2d(const Tensor& x, double p, bool train, Loc where) {
  return dropped("dropout2d", x, p, train, {.channels = true}, where);
}
Tensor alpha_dropout(const Tensor& x, double p, bool train, Loc where) {
  return dropped("alpha_dropout", x, p, train, {.alpha = true}, where);
}
const Tensor& alpha_dropout_(const Tensor& x, double p, bool train, Loc where) {
  return drop_in_place("alpha_dropout_", x, p, train, {.alpha = true}, where);
}
Tensor feature_alpha_dropout(const Tensor& x, double p, bool train, Loc where) {
  return dropped("feature_alpha_dropout", x, p, train, {true, true}, where);
}
const Tensor& feature_alpha_dropout_(const Tensor& x, double p, bool train, Loc where) {
  return drop_in_place("feature_alpha_dropout_", x, p, train, {true, true}, where);
}

}  // namespace gradus
