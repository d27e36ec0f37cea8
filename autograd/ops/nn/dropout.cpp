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
  Grads backward(const Tensor& g) override {
    OpScope op("dropout_backward", Loc{});
    return {apply<DropoutBackward>(op, g, mask.array(), p)};
  }
};

struct Dropout final : DropoutBackward {  // y = x mask / (1 - p), with the same gradient
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

// Ones for dropout to act on: of x's shape, or one for each channel of x (N, C, …).
Tensor ones_for(const Tensor& x, bool channels) {
  ops::check_floating(x.array(), "input");
  const NoGradGuard no_grad;
  if (!channels) return ones_like(x);
  GRADUS_CHECK(x.dim() >= 2, ShapeError, "input must have at least 2 dimensions (N, C, …), got shape ", x.sizes());
  Shape shape = Dims::filled(static_cast<int>(x.dim()), 1);
  shape[0] = x.size(0), shape[1] = x.size(1);
  return ones(shape, x.options());
}

// x * scale + shift preserves mean and variance; before that, dropped elements are set to SELU's lower limit, -alpha'.
struct AlphaNoise {
  Tensor scale, shift;
  AlphaNoise(const Tensor& x, double p, bool channels) {
    constexpr double alpha = 1.7580993408473766;
    const double a = p < 1 ? 1 / std::sqrt((alpha * alpha * p + 1) * (1 - p)) : 0;
    const Tensor kept = dropout(ones_for(x, channels), p, true) * (1 - p);  // 1 or 0
    scale = kept * a;
    shift = (kept - 1) * (alpha * a) + alpha * a * p;
  }
};

Tensor run_alpha(const char* name, const Tensor& x, double p, bool train, bool channels, Loc where) {
  OpScope op(name, where);
  if (!drops(p, train)) return x;
  const auto noisy = [&](const Tensor& x) {
    const AlphaNoise noise(x, p, channels);
    return x * noise.scale + noise.shift;
  };
  return composed(op, noisy, x);
}

const Tensor& run_alpha_in_place(const char* name, const Tensor& x, double p, bool train, bool channels, Loc where) {
  OpScope op(name, where);
  if (!drops(p, train)) return x;
  if (is_half(x.dtype())) return x.copy_(run_alpha(name, x, p, train, channels, where));
  const AlphaNoise noise(x, p, channels);
  return x.mul_(noise.scale).add_(noise.shift);
}

const Tensor& run_in_place(const char* name, const Tensor& x, double p, bool train, bool channels, Loc where) {
  OpScope op(name, where);
  if (!drops(p, train)) return x;
  const Tensor scale = dropout(widened(ones_for(x, channels)), p, true);
  return is_half(x.dtype()) ? x.copy_(widened(x) * scale) : x.mul_(scale);
}

Tensor run_channels(const char* name, const Tensor& x, double p, bool train, Loc where) {
  OpScope op(name, where);
  if (!drops(p, train)) return x;
  return composed(
      op, [&](const Tensor& x) { return x * dropout(ones_for(x, true), p, true); }, x);
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool train, Loc where) {
  OpScope op("dropout", where);
  return drops(p, train) ? apply<Dropout>(op, x, p) : x;
}

const Tensor& dropout_(const Tensor& x, double p, bool train, Loc where) {
  return run_in_place("dropout_", x, p, train, false, where);
}
Tensor feature_dropout(const Tensor& x, double p, bool train, Loc where) {
  return run_channels("feature_dropout", x, p, train, where);
}
const Tensor& feature_dropout_(const Tensor& x, double p, bool train, Loc where) {
  return run_in_place("feature_dropout_", x, p, train, true, where);
}
Tensor dropout2d(const Tensor& x, double p, bool train, Loc where) {
  return run_channels("dropout2d", x, p, train, where);
}
Tensor alpha_dropout(const Tensor& x, double p, bool train, Loc where) {
  return run_alpha("alpha_dropout", x, p, train, false, where);
}
const Tensor& alpha_dropout_(const Tensor& x, double p, bool train, Loc where) {
  return run_alpha_in_place("alpha_dropout_", x, p, train, false, where);
}
Tensor feature_alpha_dropout(const Tensor& x, double p, bool train, Loc where) {
  return run_alpha("feature_alpha_dropout", x, p, train, true, where);
}
const Tensor& feature_alpha_dropout_(const Tensor& x, double p, bool train, Loc where) {
  return run_alpha_in_place("feature_alpha_dropout_", x, p, train, true, where);
}

}  // namespace gradus
