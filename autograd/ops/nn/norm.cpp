#include <gradus/autograd/ops/nn/norm.h>

#include <cmath>

#include <gradus/autograd/checkpoint.h>
#include <gradus/autograd/engine.h>
#include <gradus/autograd/op_scope.h>
#include <gradus/autograd/ops/elementwise.h>
#include <gradus/autograd/ops/nn/image.h>
#include <gradus/autograd/ops/reduce.h>
#include <gradus/core/op_lists.h>
#include <gradus/core/ops/nn/nn.h>
#include <gradus/core/registry.h>

namespace gradus {
namespace {

// The shapes that x and the parameters have during a normalisation.
struct NormGeometry {
  Shape shape;        // x's shape; group_norm splits the channels into groups
  uint32_t axes = 0;  // axes of `shape` over which statistics are computed
  Shape parameters;   // shape of weight and bias, with a 1 for each dimension of `shape` that they lack
};

// The running statistics that the caller passed; arrays that it did not pass are undefined.
struct Running {
  ops::KeptStatistics kept;
  bool use = false;  // true: they normalise x; false: the statistics of x itself do
};

// y = (x - mean) / sqrt(variance + eps) * weight + bias, or the ReLU of that plus residual
struct Normalize final : Node, BackwardOfSum {
  Saved x{this, "x"}, weight{this, "weight"}, mean{this, "mean"}, variance{this, "variance"}, y{this, "y"},
      bias{this, "bias"};
  NormGeometry geometry;
  Shape weight_shape;
  double eps = 0;
  bool fixed = false;                // the value of Running::use
  bool relu = false, alone = false;  // alone: relu is true and there is no residual
  const char* name() const override { return relu ? "NormalizeReLU" : "Normalize"; }

  Array forward(const Array& X, const Array& w, const Array& b, const NormGeometry& g, double epsilon,
                const Running& running, bool with_relu = false, const Array& residual = {}) {
    GRADUS_CHECK(epsilon >= 0, ValueError, "eps must not be negative, got ", epsilon);
    geometry = g, eps = epsilon, fixed = running.use, relu = with_relu, alone = relu && !residual.defined();
    weight_shape = w.defined() ? w.shape() : b.defined() ? b.shape() : Shape();
    const auto parameter = [&](const Array& p) { return p.defined() ? ops::reshape(p, g.parameters) : p; };
    const Shape statistics = reduced_shape(g.shape, g.axes, true);
    const auto given = [&](const Array& p) { return fixed ? ops::reshape(p, statistics) : Array(); };
    // When a checkpointed function is recomputed, the first run has already updated the running statistics.
    const bool counts = !fixed && !autograd::is_recomputing();
    const ops::Normalized result =
        ops::normalize(ops::reshape(X, g.shape), g.axes, parameter(w), parameter(b), eps, given(running.kept.mean),
                       given(running.kept.variance), relu, residual, counts ? running.kept : ops::KeptStatistics());
    if (needs_grad(0) || needs_grad(1)) x = input(0);
    const bool masks = alone && needs_grad(1);  // backward recomputes the ReLU mask from weight and bias
    if (w.defined() && (needs_grad(0) || masks)) weight = input(1);
    if (b.defined() && alone && (needs_grad(0) || masks)) bias = input(2);
    if (needs_grad(0) || needs_grad(1)) mean = result.mean, variance = result.variance;
    Array Y = ops::reshape(result.y, X.shape());
    if (relu) y = own(Y);
    return Y;
  }

  bool accepts_sum() const override {
    return relu && current_backend(outputs()[0].device.type()).can(Fusion::sum_of_gradients);
  }
  Grads backward(const Tensor& dy) override { return backward_of_sum(dy, {}); }
  Grads backward_of_sum(const Tensor& dy, const Tensor& addend) override {
    if (GradMode::is_enabled() || (!needs_grad(0) && !needs_grad(1)))
      return differentiable_backward(addend.defined() ? dy + addend : dy);
    const Array& X = x.array();
    const Array W = weight.defined() ? ops::reshape(weight.array(), geometry.parameters) : Array();
    ops::NormalizeRelu behind;
    if (relu)
      behind = {.y = y.array(),
                .bias = bias.defined() ? ops::reshape(bias.array(), geometry.parameters) : Array(),
                .alone = alone,
                .want_dresidual = needs_grad(3),
                .may_overwrite = accepts_sum() && detail::is_handed_over(dy),
                .addend = addend.defined() ? ops::reshape(addend.array(), geometry.shape) : Array()};
    const ops::NormalizeGradients fused = ops::normalize_backward(
        ops::reshape(dy.array(), geometry.shape), ops::reshape(X, geometry.shape), mean.array(), variance.array(),
        geometry.axes, W, geometry.parameters, eps, fixed, needs_grad(0), needs_grad(1), needs_grad(2), behind);
    const auto shaped = [](const Array& gradient, const Shape& shape) {
      return gradient.defined() ? Tensor(ops::reshape(gradient, shape)) : Tensor();
    };
    Grads gradients = {shaped(fused.dx, X.shape()), shaped(fused.dweight, weight_shape),
                       shaped(fused.dbias, weight_shape)};
    if (relu) gradients.push_back(shaped(fused.dresidual, X.shape()));
    return gradients;
  }

 private:
  // Sums a gradient over the dimensions along which weight and bias were broadcast, and returns it in their shape.
  Tensor sum_to_parameters(const Tensor& terms) const {
    uint32_t summed = 0;
    for (int i = 0; i < geometry.shape.size(); ++i)
      if (geometry.parameters[i] == 1) summed |= 1u << i;
    return (summed ? terms.sum(axes_of(summed), true) : terms).reshape(weight_shape);
  }

  // The formulas of Backend::normalize_backward in differentiable operators. Also used if neither x nor weight needs a
  // gradient, because the other gradients do not depend on x.
  Grads differentiable_backward(const Tensor& dy) {
    const Tensor dz = relu ? unary_backward(UnaryOp::relu, dy, y()) : dy;
    Grads gradients(relu ? 4 : 3);
    if (needs_grad(3)) gradients[3] = dz;
    const DType dtype = dy.dtype() == kDouble ? kDouble : kFloat;
    const Tensor g = dz.to(dtype).reshape(geometry.shape);
    if (needs_grad(2)) gradients[2] = sum_to_parameters(g);
    if (!needs_grad(0) && !needs_grad(1)) return gradients;
    const Tensor X = x().to(dtype).reshape(geometry.shape);
    const auto axes = axes_of(geometry.axes);
    const Tensor centred = X - (fixed ? mean() : X.mean(axes, true));
    const Tensor s = ((fixed ? variance() : (centred * centred).mean(axes, true)) + eps).sqrt().reciprocal();
    const Tensor h = centred * s;
    if (needs_grad(0)) {
      const Tensor gw = weight.defined() ? g * weight().to(dtype).reshape(geometry.parameters) : g;
      const Tensor dx = fixed ? s * gw : s * (gw - gw.mean(axes, true) - h * (gw * h).mean(axes, true));
      gradients[0] = dx.reshape(x().sizes());
    }
    if (needs_grad(1)) gradients[1] = sum_to_parameters(g * h);
    return gradients;
  }
};

// Returns the number of channels of x (N, C, …).
int64_t channels_of(const Tensor& x) {
  GRADUS_CHECK(x.dim() >= 2, ShapeError, "input must have at least 2 dimensions (N, C, …), got shape ", x.sizes());
  return x.size(1);
}

void check_channels(const Tensor& x, const Tensor& parameter, const char* name) {
  GRADUS_CHECK(!parameter.defined() || parameter.sizes() == Shape({x.size(1)}), ShapeError, "input of shape ",
               x.sizes(), " needs a ", name, " of shape (", x.size(1), ",), got ", parameter.sizes());
}

// Checks the arguments of batch_norm and instance_norm.
Running check_running(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias,
                      bool use, double momentum, const Tensor& batches, const char* otherwise) {
  channels_of(x);
  check_channels(x, mean, "running_mean"), check_channels(x, var, "running_var");
  check_channels(x, weight, "weight"), check_channels(x, bias, "bias");
  GRADUS_CHECK(!use || (mean.defined() && var.defined()), ValueError, "needs running_mean and running_var", otherwise);
  for (const Tensor* running : {&mean, &var})
    if (running->defined()) ops::check_floating(running->array(), "running statistics");
  GRADUS_CHECK(!batches.defined() || (batches.dtype() == kLong && batches.dim() == 0), ValueError,
               "num_batches_tracked must be an int64 scalar, got ", batches.dtype(), " of shape ", batches.sizes());
  return {{detail::unwrap(mean), detail::unwrap(var), detail::unwrap(batches), momentum}, use};
}

// Geometry of x (N, C, …) with statistics over `axes` and parameters for each channel.
NormGeometry by_channel(const Tensor& x, uint32_t axes) {
  NormGeometry geometry{x.sizes(), axes, Dims::filled(ndim_of(x), 1)};
  geometry.parameters[1] = x.size(1);
  return geometry;
}

uint32_t all_axes(int64_t ndim) { return (1u << ndim) - 1; }

// Rejects statistics over a single value, because its deviation from the mean is always 0.
void check_several(const Tensor& x, int64_t statistics) {
  GRADUS_CHECK(x.numel() != statistics, ShapeError, "training needs more than 1 value per channel, got input of shape ",
               x.sizes());
}

Tensor run_batch_norm(const char* name, const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                      const Tensor& bias, bool training, double momentum, double eps, const Tensor& batches,
                      bool with_relu, const Tensor& residual, Loc where) {
  OpScope op(name, where);
  const Running running = check_running(x, mean, var, weight, bias, !training, momentum, batches, " unless training");
  if (training && x.numel() > 0) check_several(x, x.size(1));
  const NormGeometry geometry = by_channel(x, all_axes(x.dim()) & ~2u);
  const bool one_kernel = with_relu && (!residual.defined() || residual.dtype() == x.dtype() ||
                                        !amp::Autocast::is_enabled(x.device().type()));
  if (one_kernel) return apply<Normalize>(op, x, weight, bias, geometry, eps, running, true, residual);
  const Tensor y = apply<Normalize>(op, x, weight, bias, geometry, eps, running);
  return with_relu ? relu(y + residual) : y;
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps, const Tensor& num_batches_tracked,
                  Loc where) {
  return run_batch_norm("batch_norm", x, running_mean, running_var, weight, bias, training, momentum, eps,
                        num_batches_tracked, false, {}, where);
}

Tensor batch_norm_relu(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                       const Tensor& bias, bool training, double momentum, double eps, const Tensor& residual,
                       const Tensor& num_batches_tracked, Loc where) {
  return run_batch_norm("batch_norm_relu", x, running_mean, running_var, weight, bias, training, momentum, eps,
                        num_batches_tracked, true, residual, where);
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, bool use_input_stats, double momentum, double eps,
                     const Tensor& num_batches_tracked, Loc where) {
  OpScope op("instance_norm", where);
  GRADUS_CHECK(x.dim() >= 3, ShapeError, "input must have at least 3 dimensions (N, C, L, …), got shape ", x.sizes());
  const Running running = check_running(x, running_mean, running_var, weight, bias, !use_input_stats, momentum,
                                        num_batches_tracked, " unless use_input_stats");
  if (use_input_stats && x.numel() > 0) check_several(x, x.size(0) * x.size(1));
  const uint32_t samples_too = use_input_stats ? 0 : 1;
  return apply<Normalize>(op, x, weight, bias, by_channel(x, (all_axes(x.dim()) & ~3u) | samples_too), eps, running);
}

Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps,
                  Loc where) {
  OpScope op("group_norm", where);
  const int64_t channels = channels_of(x);
  GRADUS_CHECK(num_groups > 0, ValueError, "num_groups must be positive, got ", num_groups);
  GRADUS_CHECK(channels % num_groups == 0, ShapeError, "input of shape ", x.sizes(), " has ", channels,
               " channels, which is not a multiple of num_groups = ", num_groups);
  check_channels(x, weight, "weight"), check_channels(x, bias, "bias");
  NormGeometry geometry = by_channel(x, all_axes(x.dim() + 1) & ~3u);
  geometry.shape[1] = num_groups, geometry.shape.insert(2, channels / num_groups);
  geometry.parameters[1] = num_groups, geometry.parameters.insert(2, channels / num_groups);
  return apply<Normalize>(op, x, weight, bias, geometry, eps, Running());
}

Tensor layer_norm(const Tensor& x, IntArrayRef normalized_shape, const Tensor& weight, const Tensor& bias, double eps,
                  Loc where) {
  OpScope op("layer_norm", where);
  const int count = normalized_shape.size(), lead = ndim_of(x) - count;
  GRADUS_CHECK(count > 0, ShapeError, "normalized_shape must have at least one dimension");
  const bool ends_so = lead >= 0 && x.sizes().slice(static_cast<size_t>(lead)) == normalized_shape;
  GRADUS_CHECK(ends_so, ShapeError, "input must end with normalized_shape ", normalized_shape, ", got shape ",
               x.sizes());
  for (const Tensor* parameter : {&weight, &bias})
    GRADUS_CHECK(!parameter->defined() || parameter->sizes() == normalized_shape, ShapeError,
                 (parameter == &weight ? "weight" : "bias"), " must have normalized_shape ", normalized_shape, ", got ",
                 parameter->sizes());
  NormGeometry geometry{x.sizes(), all_axes(x.dim()) & ~all_axes(lead), x.sizes()};
  for (int i = 0; i < lead; ++i) geometry.parameters[i] = 1;
  return apply<Normalize>(op, x, weight, bias, geometry, eps, Running());
}

Tensor normalize(const Tensor& x, double p, int64_t dim, double eps, Loc where) {
  OpScope op("normalize", where);
  GRADUS_CHECK(p > 0, ValueError, "p must be positive, got ", p);
  ops::check_floating(x.array(), "input");
  // Computed in float32, because eps would be 0 in half types. The maximum is taken before the root, so that the
  // gradient at 0 exists.
  const Tensor wide = x.to(x.dtype() == kDouble ? kDouble : kFloat);
  const Tensor sum = p == 2 ? (wide * wide).sum({dim}, true) : wide.abs().pow(p).sum({dim}, true);
  const Tensor least = sum.clamp(std::pow(eps, p));
  return (wide / (p == 2 ? least.sqrt() : least.pow(1 / p))).to(x.dtype());
}

Tensor local_response_norm(const Tensor& x, int64_t size, double alpha, double beta, double k, Loc where) {
  OpScope op("local_response_norm", where);
  GRADUS_CHECK(x.dim() >= 3, ShapeError, "input must have at least 3 dimensions (N, C, L, …), got shape ", x.sizes());
  GRADUS_CHECK(size > 0, ValueError, "size must be positive, got ", size);
  const int64_t channels = x.size(1);
  // Beyond the first and the last channel, neighbours count as 0.
  const ops::OwnedStencil neighbours =
      ops::average_stencil(channels, channels, size, 1, size / 2, true, static_cast<double>(size));
  const int64_t places = x.numel() / std::max<int64_t>(1, x.size(0) * channels);
  const auto divided = [&](const Tensor& x) {
    const Tensor squares = (x * x).reshape({x.size(0), 1, channels, places});
    const Tensor average = resample2d(op, squares, neighbours, ops::OwnedStencil::identity(places)).reshape(x.sizes());
    return x / (average * alpha + k).pow(beta);
  };
  return composed(op, divided, x);
}

}  // namespace gradus
