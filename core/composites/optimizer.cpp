// Optimizer steps: the rules' formulas applied to whole arrays, one kernel per operation. And the detection of inf and
// NaN in gradients.
#include <gradus/core/composites/arithmetic.h>
#include <gradus/core/formulas/optimizer_rules.h>

namespace gradus {

using namespace composites;

namespace {

struct Mask {
  Array array;
};

// A value in a rule's formula: an array, or a number known to the host.
template <class T>
class Elements {
 public:
  Elements() = default;
  Elements(double number) : number_(number) {}  // NOLINT(google-explicit-constructor)
  Elements(Backend& backend, const View& x) : backend_(&backend), array_(scratch(x.shape, dtype_of<T>, x.device)) {
    backend.copy(x, array_);
  }
  template <class U>
  explicit Elements(const Elements<U>& other) : Elements(*other.backend_, other.array_) {}

  void store(const Array& keep_old, const MutableView& to) const {
    const Array converted = scratch(to.shape, to.dtype, to.device);
    backend_->copy(array_, converted);
    backend_->where(expanded(keep_old, to.shape), to, converted, to);
  }

  friend Elements operator+(const Elements& a, const Elements& b) { return {BinaryOp::add, a, b}; }
  friend Elements operator-(const Elements& a, const Elements& b) { return {BinaryOp::sub, a, b}; }
  friend Elements operator*(const Elements& a, const Elements& b) { return {BinaryOp::mul, a, b}; }
  friend Elements operator/(const Elements& a, const Elements& b) { return {BinaryOp::div, a, b}; }
  friend Mask operator<=(const Elements& a, const Elements& b) { return {Elements(BinaryOp::le, a, b).array_}; }
  friend Mask operator<(const Elements& a, const Elements& b) { return {Elements(BinaryOp::lt, a, b).array_}; }
  friend Mask operator>(const Elements& a, const Elements& b) { return {Elements(BinaryOp::gt, a, b).array_}; }
  friend Elements sqrt(const Elements& x) {
    Elements y(*x.backend_, x.array_);
    x.backend_->unary(UnaryOp::sqrt, y.array_, y.array_, {});
    return y;
  }
  friend Elements power(const rules::Decay& decay, const Elements& t) { return {BinaryOp::pow, decay.value, t}; }
  friend Elements one_minus_power(const rules::Decay& decay, const Elements& t) { return 1.0 - power(decay, t); }
  friend Elements select(const Mask& condition, const Elements& a, const Elements& b) {
    const Elements& known = a.backend_ ? a : b;
    const Shape shape = broadcast_shapes(condition.array.shape(), broadcast_shapes(a.array_shape(), b.array_shape()));
    Elements y(known.backend_, scratch(shape, dtype_of<T>, condition.array.device()));
    known.backend_->where(expanded(condition.array, shape), expanded(a.array_or_fill(y), shape),
                          expanded(b.array_or_fill(y), shape), y.array_);
    return y;
  }

 private:
  template <class U>
  friend class Elements;

  static Array scratch(const Shape& shape, DType dtype, Device device) { return Array::empty(shape, dtype, device); }
  Elements(Backend* backend, Array array) : backend_(backend), array_(std::move(array)) {}
  // At most one of a and b is a number known to the host.
  Elements(BinaryOp op, const Elements& a, const Elements& b) : backend_(a.backend_ ? a.backend_ : b.backend_) {
    const Array& known = a.backend_ ? a.array_ : b.array_;
    const Shape shape = broadcast_shapes(a.array_shape(), b.array_shape());
    array_ = scratch(shape, is_predicate(op) ? DType::boolean : dtype_of<T>, known.device());
    if (!a.backend_) backend_->binary_scalar(op, b.array_, a.number_, /*scalar_first=*/true, array_);
    else if (!b.backend_) backend_->binary_scalar(op, a.array_, b.number_, /*scalar_first=*/false, array_);
    else backend_->binary(op, expanded(a.array_, shape), expanded(b.array_, shape), array_);
  }
  Shape array_shape() const { return backend_ ? array_.shape() : Shape(); }
  Array array_or_fill(const Elements& like) const {
    if (backend_) return array_;
    const Array filled = scratch({}, dtype_of<T>, like.array_.device());
    like.backend_->fill(filled, number_);
    return filled;
  }

  Backend* backend_ = nullptr;  // null: a number
  Array array_;
  double number_ = 0;
};

template <class C, class Rule>
void step(Backend& backend, const ParameterViews& views, const View& block, const Array& keep_old, const Rule& rule) {
  using V = Elements<C>;
  const auto value = [&](int index) { return Elements<double>(backend, entry(block, index)); };
  const auto full = rules::full_step<V>(
      rule, rules::BlockValues<Elements<double>>{value(StepBlock::step), value(StepBlock::learning_rate),
                                                 value(StepBlock::gradient_scale), value(StepBlock::momentum_product)});
  V p(backend, views.parameter), g(backend, views.gradient), states[kMaxOptimizerStates];
  for (int k = 0; k < kMaxOptimizerStates; ++k)
    if (views.states[k].data) states[k] = V(backend, views.states[k]);
  full(p, g, states[0], states[1], states[2]);
  p.store(keep_old, views.parameter);
  for (int k = 0; k < kMaxOptimizerStates; ++k)
    if (views.states[k].data) states[k].store(keep_old, views.states[k]);
  if (views.half) backend.copy(views.parameter, views.half);
}

}  // namespace

void Backend::advance_step(const MutableView& block) {
  const Arithmetic math(*this);
  const Array done = math.cast(math(BinaryOp::eq, entry<View>(block, StepBlock::found_inf), 0.0), DType::f64);
  const MutableView step = entry(block, StepBlock::step);
  binary(BinaryOp::add, step, done, step);
}

void Backend::optimizer_step(std::span<const ParameterViews> parameters, const View& block, const OptimizerRule& rule) {
  const Array found_inf = Array::empty({}, DType::boolean, block.device);
  binary_scalar(BinaryOp::ne, entry(block, StepBlock::found_inf), 0.0, /*scalar_first=*/false, found_inf);
  rule.visit([&](const auto& known) {
    for (const ParameterViews& views : parameters) {
      if (views.parameter.dtype == DType::f64) step<double>(*this, views, block, found_inf, known);
      else step<float>(*this, views, block, found_inf, known);
    }
  });
}

using enum BinaryOp;

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

}  // namespace gradus
