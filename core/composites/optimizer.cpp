// Default bodies of optimizer steps and of unscale. They apply the formulas of core/formulas/optimizer_rules.h to whole
// arrays: each arithmetic operation of a formula is one kernel.
#include <gradus/core/composites/arithmetic.h>
#include <gradus/core/formulas/optimizer_rules.h>

namespace gradus {

using namespace composites;
using enum BinaryOp;

namespace {

// The result of a comparison in a rule's formula: a boolean array.
struct Mask {
  Array array;
};

// A value in a rule's formula: an array of type T on a backend, or a number known to the host (backend_ is null).
template <class T>
class Elements {
 public:
  using E = Elements;
  Elements() = default;
  Elements(double number) : number_(number) {}  // NOLINT(google-explicit-constructor)
  Elements(Backend& backend, const View& x) : Elements(&backend, Arithmetic(backend).cast(x, dtype_of<T>)) {}
  template <class U>
  explicit Elements(const Elements<U>& other) : Elements(*other.backend_, other.array_) {}

  // Writes these elements to `to` unless keep_old is true.
  void store(const Array& keep_old, const MutableView& to) const {
    const Arithmetic math(*backend_);
    math.where(keep_old, to, math.cast(array_, to.dtype), to);
  }

  friend E operator+(const E& a, const E& b) { return {add, a, b}; }
  friend E operator-(const E& a, const E& b) { return {sub, a, b}; }
  friend E operator*(const E& a, const E& b) { return {mul, a, b}; }
  friend E operator/(const E& a, const E& b) { return {div, a, b}; }
  friend Mask operator<=(const E& a, const E& b) { return {E(le, a, b).array_}; }
  friend Mask operator<(const E& a, const E& b) { return {E(lt, a, b).array_}; }
  friend Mask operator>(const E& a, const E& b) { return {E(gt, a, b).array_}; }
  friend E sqrt(const E& x) { return E(x.backend_, Arithmetic(*x.backend_)(UnaryOp::sqrt, x.array_)); }
  friend E power(const rules::Decay& decay, const E& t) { return {pow, decay.value, t}; }
  friend E one_minus_power(const rules::Decay& decay, const E& t) { return 1.0 - power(decay, t); }
  // At most one of a and b is a number known to the host.
  friend Elements select(const Mask& condition, const Elements& a, const Elements& b) {
    Backend* const backend = a.backend_ ? a.backend_ : b.backend_;
    const Arithmetic math(*backend);
    const Device device = condition.array.device();
    const auto array_of = [&](const Elements& x) {
      return x.backend_ ? x.array_ : math.scalar(x.number_, dtype_of<T>, device);
    };
    return Elements(backend, math.where(condition.array, array_of(a), array_of(b)));
  }

 private:
  template <class U>
  friend class Elements;

  Elements(Backend* backend, Array array) : backend_(backend), array_(std::move(array)) {}
  // At most one of a and b is a number known to the host.
  Elements(BinaryOp op, const Elements& a, const Elements& b) : backend_(a.backend_ ? a.backend_ : b.backend_) {
    const Arithmetic math(*backend_);
    if (!a.backend_) array_ = math(op, a.number_, b.array_);
    else if (!b.backend_) array_ = math(op, a.array_, b.number_);
    else array_ = math(op, a.array_, b.array_);
  }

  Backend* backend_ = nullptr;
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
  const Array done = math.cast(math(eq, entry<View>(block, StepBlock::found_inf), 0.0), DType::f64);
  const MutableView step = entry(block, StepBlock::step);
  binary(add, step, done, step);
}

void Backend::optimizer_step(std::span<const ParameterViews> parameters, const View& block, const OptimizerRule& rule) {
  const Array found_inf = Array::empty({}, DType::boolean, block.device);
  binary_scalar(ne, entry(block, StepBlock::found_inf), 0.0, /*scalar_first=*/false, found_inf);
  rule.visit([&](const auto& known) {
    for (const ParameterViews& views : parameters) {
      if (views.parameter.dtype == DType::f64) step<double>(*this, views, block, found_inf, known);
      else step<float>(*this, views, block, found_inf, known);
    }
  });
}

void Backend::unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) {
  const Arithmetic math(*this);
  const Array one = math.scalar(1, DType::f64, found_inf.device);
  for (const MutableView& gradient : gradients) {
    const Array finite = math(UnaryOp::isfinite, gradient);
    const Array all = math.reduce(ReduceOp::all, finite, (1u << gradient.ndim()) - 1);
    where(reshaped<View>(all, {}, {}), found_inf, one, found_inf);
    if (!factor.data) continue;
    const Array multiplier = math.cast(factor, wide_type(gradient.dtype));
    copy(math(mul, math.widen(gradient), multiplier), gradient);
  }
}

}  // namespace gradus
