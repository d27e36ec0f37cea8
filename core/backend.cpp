// The composites' default bodies: each is its formula, spelled in primitives. They run on every backend, use scratch
// memory freely, and never read a value back to the host, so they may be captured into a graph. Half types (and
// integers where the formula is not one of integers) compute in float.
#include <gradus/core/backend.h>

#include <algorithm>
#include <limits>

#include <gradus/core/loss_scale.h>
#include <gradus/core/runtime.h>
#include <gradus/core/strided_loop.h>

namespace gradus {
namespace {

[[noreturn]] void no_kernel(const Backend& backend, const char* kernel) {
  GRADUS_FAIL(DeviceError, "backend '", backend.name(), "' has no kernel '", kernel,
              "'; choose another backend, or move the tensors to the cpu");
}

constexpr DType wide_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// The same elements under another shape and strides.
template <class AnyView>
AnyView reshaped(AnyView view, const Shape& shape, const Strides& strides) {
  view.shape = shape, view.strides = strides;
  return view;
}

// `view` broadcast to `shape`.
View expanded(const View& view, const Shape& shape) {
  const int lead = shape.size() - view.ndim();
  Strides strides = Dims::filled(shape.size(), 0);
  for (int i = lead; i < shape.size(); ++i)
    if (view.shape[i - lead] == shape[i]) strides[i] = view.strides[i - lead];
  return reshaped(view, shape, strides);
}

// A vector as the axis `axis` of an array of `ndim` axes, the others of size 1.
template <class AnyView>
AnyView along(const AnyView& vector, int axis, int ndim) {
  Shape shape = Dims::filled(ndim, 1);
  Strides strides = Dims::filled(ndim, 0);
  shape[axis] = vector.shape[0], strides[axis] = vector.strides[0];
  return reshaped(vector, shape, strides);
}

// An entry of the StepBlock as a scalar.
template <class AnyView>
AnyView entry(const AnyView& block, int index) {
  return reshaped(narrow(block, 0, index, 1), {}, {});
}

constexpr uint32_t bit(int axis, int ndim) { return ndim ? 1u << axis : 0; }

// Array arithmetic by one backend. Every result is new scratch memory.
class Arithmetic {
 public:
  explicit Arithmetic(Backend& backend) : backend_(backend) {}

  Array cast(const View& x, DType dtype) const {
    Array y = Array::empty(x.shape, dtype, x.device);
    backend_.copy(x, y);
    return y;
  }
  /// x in the type that its formula computes in.
  Array widen(const View& x) const { return cast(x, wide_type(x.dtype)); }

  Array operator()(UnaryOp op, const View& x) const {
    Array y = Array::empty(x.shape, is_predicate(op) ? DType::boolean : x.dtype, x.device);
    backend_.unary(op, x, y, {});
    return y;
  }
  Array operator()(BinaryOp op, const View& a, const View& b) const {
    const Shape shape = broadcast_shapes(a.shape, b.shape);
    Array y = Array::empty(shape, is_predicate(op) ? DType::boolean : a.dtype, a.device);
    backend_.binary(op, expanded(a, shape), expanded(b, shape), y);
    return y;
  }
  Array operator()(BinaryOp op, const View& a, const Scalar& scalar) const {
    Array y = Array::empty(a.shape, is_predicate(op) ? DType::boolean : a.dtype, a.device);
    backend_.binary_scalar(op, a, scalar, /*scalar_first=*/false, y);
    return y;
  }
  Array operator()(BinaryOp op, const Scalar& scalar, const View& b) const {
    Array y = Array::empty(b.shape, is_predicate(op) ? DType::boolean : b.dtype, b.device);
    backend_.binary_scalar(op, b, scalar, /*scalar_first=*/true, y);
    return y;
  }
  Array reduce(ReduceOp op, const View& x, uint32_t axes) const {
    Array y = Array::empty(x.ndim() ? reduced_shape(x.shape, axes, true) : Shape(), x.dtype, x.device);
    backend_.reduce(op, x, axes, y);
    return y;
  }
  /// y = condition ? a : b
  void where(const View& condition, const View& a, const View& b, const MutableView& y) const {
    backend_.where(expanded(condition, y.shape), expanded(a, y.shape), expanded(b, y.shape), y);
  }
  Array where(const View& condition, const View& a, const View& b) const {
    Array y = Array::empty(a.shape, a.dtype, a.device);
    where(condition, a, b, y);
    return y;
  }
  Array scalar(const Scalar& value, DType dtype, Device device) const {
    Array y = Array::empty({}, dtype, device);
    backend_.fill(y, value);
    return y;
  }

 private:
  Backend& backend_;
};

using enum BinaryOp;

}  // namespace

// ---- Primitives that not every backend has ----

void Backend::scan(ScanOp, const View&, int, bool, const MutableView&) { no_kernel(*this, "scan"); }
void Backend::sort(const View&, int, bool, const MutableView&, const MutableView&) { no_kernel(*this, "sort"); }
void Backend::gather(const View&, int, const View&, const MutableView&) { no_kernel(*this, "gather"); }
void Backend::scatter(const View&, int, const View&, bool, const MutableView&) { no_kernel(*this, "scatter"); }
void Backend::nonzero(const View&, const MutableView&) { no_kernel(*this, "nonzero"); }

// ---- Composites ----

void Backend::linear(const View& x, const View& w, const View* bias, const MutableView& y) {
  const View w_transposed = reshaped(w, {w.shape[1], w.shape[0]}, {w.strides[1], w.strides[0]});  // (K, N)
  if (bias) copy(expanded(*bias, y.shape), y);
  matmul(x, w_transposed, y, /*accumulate=*/bias != nullptr);
}

void Backend::topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices) {
  if (indices.numel() == 0) return;
  const Array sorted = Array::empty(x.shape, x.dtype, x.device), order = Array::empty(x.shape, DType::i64, x.device);
  sort(x, axis, largest, sorted, order);
  const auto first = [&](const Array& all) { return all.ndim() ? all.slice(axis, 0, indices.shape[axis]) : all; };
  copy(first(sorted), values), copy(first(order), indices);
}

void Backend::softmax(const View& x, int axis, bool log, const MutableView& y) {
  if (x.numel() == 0) return;
  const Arithmetic math(*this);
  const uint32_t axes = bit(axis, x.ndim());
  const Array wide = math.widen(x);
  const Array shifted = math(sub, wide, math.reduce(ReduceOp::max, wide, axes));
  const Array powers = math(UnaryOp::exp, shifted);
  const Array sum = math.reduce(ReduceOp::sum, powers, axes);
  copy(log ? math(sub, shifted, math(UnaryOp::log, sum)) : math(div, powers, sum), y);
}

void Backend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  if (y.numel() == 0) return;
  const Arithmetic math(*this);
  const uint32_t axes = bit(axis, y.ndim());
  const Array gradient = math.widen(dy), output = math.widen(y);
  if (log) {
    const Array sum = math.reduce(ReduceOp::sum, gradient, axes);
    copy(math(sub, gradient, math(mul, math(UnaryOp::exp, output), sum)), dx);
  } else {
    const Array sum = math.reduce(ReduceOp::sum, math(mul, gradient, output), axes);
    copy(math(mul, output, math(sub, gradient, sum)), dx);
  }
}

void Backend::cross_entropy(const View& x, const View& target, int64_t ignore_index, Reduction reduction,
                            const MutableView& log_probabilities, const MutableView& loss,
                            const MutableView& weight_sum) {
  const Arithmetic math(*this);
  softmax(x, 1, /*log=*/true, log_probabilities);
  Array picked = Array::empty(target.shape, x.dtype, x.device);  // (N)
  pick(log_probabilities, target, ignore_index, picked);
  const Array losses = math(UnaryOp::neg, math.widen(picked));
  const Array counted = math.cast(math(ne, target, ignore_index), losses.dtype());
  const Array count = math.reduce(ReduceOp::sum, counted, 1);  // (1)
  copy(count, reshaped(weight_sum, {1}, {1}));
  if (reduction == Reduction::none) return copy(losses, loss);
  const Array sum = math.reduce(ReduceOp::sum, losses, 1);  // (1)
  copy(reduction == Reduction::mean ? math(div, sum, count) : sum, reshaped(loss, {1}, {1}));
}

void Backend::cross_entropy_backward(const View& dloss, const View& log_probabilities, const View& target,
                                     int64_t ignore_index, Reduction reduction, const View& weight_sum,
                                     const MutableView& dx) {
  const Arithmetic math(*this);
  Array scale = math.widen(expanded(dloss, target.shape));  // (N)
  if (reduction == Reduction::mean) scale = math(div, scale, math.widen(weight_sum));
  Array at_target = Array::empty(dx.shape, scale.dtype(), dx.device);  // onehot(target) * scale
  pick_backward(scale, target, ignore_index, at_target);
  const Array probabilities = math(UnaryOp::exp, math.widen(log_probabilities));
  const Array gradient = math(sub, math(mul, probabilities, scale.unsqueeze(1)), at_target);
  const Array counted = math(ne, target, ignore_index).unsqueeze(1);  // (N, 1)
  copy(math.where(counted, gradient, math.scalar(0, gradient.dtype(), dx.device)), dx);
}

void Backend::conv2d_bias_relu(const View& x, const View& w, const View* bias, bool relu, const MutableView& y,
                               const Conv2dGeometry& geometry) {
  conv2d(x, w, y, geometry);
  if (bias) binary(add, y, expanded(along(*bias, 1, 4), y.shape), y);
  if (relu) unary(UnaryOp::relu, y, y, {});
}

void Backend::conv2d_bias_relu_backward(const View& dy, const View& x, const View& w, const View* y_if_relu,
                                        const MutableView* dx, const MutableView* dw, const MutableView* dbias,
                                        const Conv2dGeometry& geometry, const MutableView* masked) {
  Array scratch;
  const View gradient = y_if_relu ? masked_by_relu(dy, *y_if_relu, masked, scratch) : dy;  // of the sum before relu
  if (dx) conv2d_backward_data(gradient, w, *dx, geometry);
  if (dw) conv2d_backward_weight(gradient, x, *dw, geometry);
  if (dbias) reduce(ReduceOp::sum, gradient, 0b1101, along(*dbias, 1, 4));  // over N, P, Q
}

View Backend::masked_by_relu(const View& dy, const View& y, const MutableView* masked, Array& scratch) {
  if (!masked) {
    const bool dense = StridedLoop<1>(dy.shape, {&dy.strides}).all_contiguous();
    scratch = dense ? Array::empty_strided(dy.shape, dy.strides, dy.dtype, dy.device)
                    : Array::empty(dy.shape, dy.dtype, dy.device);
  }
  const MutableView to = masked ? *masked : MutableView(scratch);
  unary_backward(UnaryOp::relu, dy, y, to, {});
  return to;
}

void Backend::dropout(const View& x, double p, const RandomState& state, const MutableView& mask,
                      const MutableView& y) {
  bernoulli(mask, state, 1 - p);
  dropout_backward(x, mask, p, y);  // the same product
}

void Backend::dropout_backward(const View& dy, const View& mask, double p, const MutableView& dx) {
  const Arithmetic math(*this);
  const Array scaled = math(mul, dy, 1 / (1 - p));
  math.where(mask, scaled, math.scalar(0, dy.dtype, dy.device), dx);  // not a product: p = 1 gives 0, not NaN
}

void Backend::linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y) {
  if (y.numel() == 0) return;
  const Arithmetic math(*this);
  const Array weights = math.widen(a), sums = math.widen(b);
  const int64_t size = y.ndim() ? y.shape[axis] : 1, step = reverse ? -1 : 1;
  for (int64_t k = reverse ? size - 2 : 1; k >= 0 && k < size; k += step) {
    const MutableView sum = narrow(MutableView(sums), axis, k, 1);
    const Array product = math(mul, narrow(View(weights), axis, k, 1), narrow(View(sums), axis, k - step, 1));
    binary(add, sum, product, sum);
  }
  copy(sums, y);
}

// Products with the stencils as dense matrices, which come from the host. A product meets every element of x, and 0
// times an infinity is NaN: so infinities and NaN are left out of it, and further products count which windows they lie
// in.
void Backend::resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) {
  if (y.numel() == 0) return;
  const Arithmetic math(*this);
  const DType wide = wide_type(x.dtype);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  using Entry = double (*)(double weight);

  // The matrix (in, out) of what `entry` makes of the stencil's weights, on x's device.
  const auto dense = [&](const Stencil& stencil, Entry entry) {
    const Array host = Array::empty({stencil.size_in, stencil.size_out}, DType::f64);
    double* entries = host.data<double>();
    std::fill_n(entries, host.numel(), 0.0);
    for (size_t p = 0; p < static_cast<size_t>(stencil.size_out); ++p)
      for (auto k = static_cast<size_t>(stencil.begin[p]); k < static_cast<size_t>(stencil.begin[p + 1]); ++k)
        entries[stencil.source[k] * stencil.size_out + static_cast<int64_t>(p)] += entry(stencil.weight[k]);
    if (x.device.is_cpu()) return math.cast(host, wide);
    const Array here = Array::empty(host.shape(), DType::f64, x.device);
    runtime(x.device.type).copy(here.data(), x.device, host.data(), Device(), host.nbytes(), /*non_blocking=*/false);
    return math.cast(here, wide);
  };
  // values (N, C, A, in) times that matrix: (N, C, A, out)
  const auto product = [&](const View& values, const Stencil& stencil, Entry entry) {
    const Shape lead = {values.shape[0], values.shape[1]};
    const Array matrix = dense(stencil, entry);
    Array sums = Array::empty({lead[0], lead[1], values.shape[2], stencil.size_out}, wide, x.device);
    matmul(values, expanded(matrix, {lead[0], lead[1], stencil.size_in, stencil.size_out}), sums, /*accumulate=*/false);
    return sums;
  };
  const auto resampled = [&](const View& values, const Stencil& stencil) {
    const Array nothing = math.scalar(0, wide, x.device);
    const auto marked = [&](const Array& condition) { return math.cast(condition, wide); };
    const Array up = marked(math(eq, values, infinity)), down = marked(math(eq, values, -infinity));
    const Array nan = marked(math(UnaryOp::isnan, values));
    const Array finite = Array::empty(values.shape, wide, x.device);
    math.where(math(UnaryOp::isfinite, values), values, nothing, finite);

    // How often each window meets +inf, -inf and NaN, counting what weights below 0 and of 0 make of infinities.
    constexpr Entry positive = [](double weight) { return weight > 0 ? 1.0 : 0.0; };
    Array ups = product(up, stencil, positive), downs = product(down, stencil, positive);
    Array nans = product(nan, stencil, [](double) { return 1.0; });
    if (std::any_of(stencil.weight.begin(), stencil.weight.end(), [](double weight) { return weight <= 0; })) {
      constexpr Entry negative = [](double weight) { return weight < 0 ? 1.0 : 0.0; };
      ups = math(add, ups, product(down, stencil, negative));
      downs = math(add, downs, product(up, stencil, negative));
      nans =
          math(add, nans, product(math(add, up, down), stencil, [](double weight) { return weight == 0 ? 1.0 : 0.0; }));
    }
    Array sums = product(finite, stencil, [](double weight) { return weight; });
    const auto add_where_met = [&](const Array& count, double value) {
      const Array part = Array::empty(sums.shape(), wide, x.device);
      math.where(math(gt, count, 0), math.scalar(value, wide, x.device), nothing, part);
      sums = math(add, sums, part);
    };
    add_where_met(ups, infinity);
    add_where_met(downs, -infinity);
    add_where_met(nans, std::numeric_limits<double>::quiet_NaN());
    return sums;
  };
  const Array by_columns = resampled(math.widen(x), columns);
  copy(resampled(by_columns.transpose(2, 3), rows).transpose(2, 3), y);
}

void Backend::normalize(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                        bool fixed_statistics, const MutableView& y, const MutableView& mean,
                        const MutableView& variance) {
  const Arithmetic math(*this);
  const Array wide = math.widen(x);
  const Array average = fixed_statistics ? math.cast(mean, wide.dtype()) : math.reduce(ReduceOp::mean, wide, axes);
  const Array centred = math(sub, wide, average);
  const Array spread = fixed_statistics ? math.cast(variance, wide.dtype())
                                        : math.reduce(ReduceOp::mean, math(mul, centred, centred), axes);
  if (!fixed_statistics) copy(average, mean), copy(spread, variance);
  Array result = math(div, centred, math(UnaryOp::sqrt, math(add, spread, eps)));
  if (weight) result = math(mul, result, math.cast(*weight, wide.dtype()));
  if (bias) result = math(add, result, math.cast(*bias, wide.dtype()));
  copy(result, y);
}

void Backend::update_running_statistics(const View& batch_mean, const View& batch_variance,
                                        const RunningStatistics& running) {
  const Arithmetic math(*this);
  const auto move = [&](const View& batch, double scale, const MutableView& statistic) {
    if (!statistic.data) return;
    Array average = math.reduce(ReduceOp::mean, batch, 1);
    if (scale != 1) average = math(mul, average, scale);
    const View row = along(View(statistic), 1, 2);
    const Array kept = math(mul, row, 1 - running.momentum);
    binary(add, kept, math(mul, math.cast(average, statistic.dtype), running.momentum), along(statistic, 1, 2));
  };
  move(batch_mean, 1, running.mean);
  move(batch_variance, running.correction, running.variance);
  if (running.batches.data) binary_scalar(add, running.batches, 1, /*scalar_first=*/false, running.batches);
}

void Backend::normalize_backward(const View& dy, const View& x, const View& mean, const View& variance, uint32_t axes,
                                 const View* weight, double eps, bool fixed_statistics, const MutableView* dx,
                                 const MutableView* dweight, const MutableView* dbias) {
  const Arithmetic math(*this);
  const Array wide = math.widen(x), gradient = math.cast(dy, wide.dtype());
  const Array average = math.cast(mean, wide.dtype()), spread = math.cast(variance, wide.dtype());
  const Array s = math(UnaryOp::reciprocal, math(UnaryOp::sqrt, math(add, spread, eps)));
  const Array h = math(mul, math(sub, wide, average), s);
  const auto sum_into = [&](const View& terms, const MutableView& sum) {
    uint32_t summed = 0;
    for (int i = 0; i < sum.ndim(); ++i)
      if (sum.shape[i] == 1) summed |= 1u << i;
    copy(math.reduce(ReduceOp::sum, terms, summed), sum);
  };
  if (dweight) sum_into(math(mul, gradient, h), *dweight);
  if (dbias) sum_into(gradient, *dbias);
  if (!dx) return;
  Array g = weight ? math(mul, gradient, math.cast(*weight, wide.dtype())) : gradient;
  if (!fixed_statistics) {
    const Array along_h = math(mul, h, math.reduce(ReduceOp::mean, math(mul, g, h), axes));
    g = math(sub, math(sub, g, math.reduce(ReduceOp::mean, g, axes)), along_h);
  }
  copy(math(mul, g, s), *dx);
}

void Backend::normalize_relu(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                             bool fixed_statistics, const View* residual, const MutableView& y, const MutableView& mean,
                             const MutableView& variance) {
  normalize(x, axes, weight, bias, eps, fixed_statistics, y, mean, variance);
  if (residual) binary(add, y, *residual, y);
  unary(UnaryOp::relu, y, y, {});
}

void Backend::normalize_relu_backward(const View& dy, const View& y, const View& x, const View& mean,
                                      const View& variance, uint32_t axes, const View* weight, double eps,
                                      bool fixed_statistics, const MutableView* dx, const MutableView* dweight,
                                      const MutableView* dbias, const MutableView* dresidual) {
  Array scratch;
  const View masked = masked_by_relu(dy, y, dresidual, scratch);
  if (dx || dweight || dbias)
    normalize_backward(masked, x, mean, variance, axes, weight, eps, fixed_statistics, dx, dweight, dbias);
}

void Backend::normalize_training(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                                 bool relu, const View* residual, const MutableView& y, const MutableView& mean,
                                 const MutableView& variance, const RunningStatistics& running) {
  if (relu) normalize_relu(x, axes, weight, bias, eps, /*fixed_statistics=*/false, residual, y, mean, variance);
  else normalize(x, axes, weight, bias, eps, /*fixed_statistics=*/false, y, mean, variance);
  const auto rows = [](const View& statistic) {
    return reshaped(statistic, {statistic.shape[0], statistic.shape[1]}, {statistic.strides[0], statistic.strides[1]});
  };
  update_running_statistics(rows(mean), rows(variance), running);
}

namespace {

// Columns [part H, (part + 1) H) of a matrix (N, 4 H).
template <class AnyView>
AnyView gate(const AnyView& gates, int part) {
  const int64_t size = gates.shape[1] / 4;
  return narrow(gates, 1, part * size, size);
}

}  // namespace

void Backend::lstm_cell(const MutableView& gates, const View& c_before, const MutableView& c, const MutableView& h) {
  const Arithmetic math(*this);
  Array active[4];
  for (int k = 0; k < 4; ++k) {
    active[k] = math(k == 2 ? UnaryOp::tanh : UnaryOp::sigmoid, math.widen(gate(View(gates), k)));
    copy(active[k], gate(gates, k));
  }
  const auto& [i, f, g, o] = active;
  const Array cell = math(add, math(mul, f, math.widen(c_before)), math(mul, i, g));
  copy(cell, c);
  copy(math(mul, o, math(UnaryOp::tanh, cell)), h);
}

void Backend::lstm_cell_backward(const View& dh, const View& gates, const View& c_before, const View& c,
                                 const MutableView& dc, const MutableView& dgates) {
  const Arithmetic math(*this);
  Array active[4];
  for (int k = 0; k < 4; ++k) active[k] = math.widen(gate(gates, k));
  const auto& [i, f, g, o] = active;
  const Array gradient = math.widen(dh), t = math(UnaryOp::tanh, math.widen(c));
  const auto one_minus = [&](const Array& x) { return math(sub, 1, x); };
  const Array through_h = math(mul, math(mul, gradient, o), one_minus(math(mul, t, t)));
  const Array dcell = math(add, math.widen(dc), through_h);
  copy(math(mul, math(mul, dcell, g), math(mul, i, one_minus(i))), gate(dgates, 0));
  copy(math(mul, math(mul, dcell, math.widen(c_before)), math(mul, f, one_minus(f))), gate(dgates, 1));
  copy(math(mul, math(mul, dcell, i), one_minus(math(mul, g, g))), gate(dgates, 2));
  copy(math(mul, math(mul, gradient, t), math(mul, o, one_minus(o))), gate(dgates, 3));
  copy(math(mul, dcell, f), dc);
}

void Backend::rgb_to_grayscale(const View& x, const MutableView& y) {
  const Arithmetic math(*this);
  const int axis = x.ndim() - 3;
  auto weighted = [&](int channel, double weight) {
    return math(mul, math.widen(narrow(x, axis, channel, 1)), weight);
  };
  copy(math(add, math(add, weighted(0, 0.2989), weighted(1, 0.5870)), weighted(2, 0.1140)), y);
}

void Backend::advance_step(const MutableView& block) {
  const Arithmetic math(*this);
  const Array done = math.cast(math(eq, entry<View>(block, StepBlock::found_inf), 0.0), DType::f64);
  const MutableView step = entry(block, StepBlock::step);
  binary(add, step, done, step);
}

void Backend::unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) {
  const Arithmetic math(*this);
  const Array one = Array::empty({}, DType::f64, found_inf.device);
  fill(one, 1);
  for (const MutableView& gradient : gradients) {
    const Array finite = Array::empty(gradient.shape, DType::boolean, gradient.device);
    unary(UnaryOp::isfinite, gradient, finite, {});
    const int ndim = gradient.ndim();
    const Array all = Array::empty(Dims::filled(ndim, 1), DType::boolean, gradient.device);
    reduce(ReduceOp::all, finite, (1u << ndim) - 1, all);
    where(reshaped<View>(all, {}, {}), found_inf, one, found_inf);
    if (!factor.data) continue;
    const Array multiplier = math.cast(factor, wide_type(gradient.dtype));
    copy(math(mul, math.widen(gradient), multiplier), gradient);
  }
}

void Backend::update_scale(const MutableView& block, const ScaleRule& rule) {
  const Arithmetic math(*this);
  const MutableView scale = entry(block, ScaleBlock::scale), tracker = entry(block, ScaleBlock::growth_tracker),
                    found_inf = entry(block, ScaleBlock::found_inf);
  const double interval = static_cast<double>(rule.growth_interval);
  const Array clean = math(eq, found_inf, 0.0), steps = math(add, tracker, 1.0),
              zero = math.scalar(0, DType::f64, block.device);
  const Array grown = math(mul, scale, rule.growth_factor), less = math(mul, scale, rule.backoff_factor);
  const Array grows = math(logical_and, math(eq, steps, interval), math(le, grown, kLargestScale));
  math.where(clean, math.where(grows, grown, scale), less, scale);
  math.where(math(logical_and, clean, math(ne, steps, interval)), steps, zero, tracker);
  fill(found_inf, 0);
}

}  // namespace gradus
