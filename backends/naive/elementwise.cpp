// Element-wise kernels: the formulas of core/formulas (scalar_unary.h, scalar_binary.h, recurrent_cell.h), applied to
// one element at a time.
#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/composites/arithmetic.h>
#include <gradus/core/formulas/recurrent_cell.h>
#include <gradus/core/formulas/scalar_binary.h>
#include <gradus/core/formulas/scalar_unary.h>

namespace gradus {

using namespace naive_detail;

// True if converting `number` to a half type rounds it.
static bool loses_digits(const Scalar& number, DType dtype) {
  if (dtype != DType::f16 && dtype != DType::bf16) return false;
  return visit_floating(dtype, [&]<class T> { return static_cast<double>(number.cast<T>()) != number.to_double(); });
}

void NaiveBackend::unary(UnaryOp op, const View& x, const MutableView& y, const UnaryArgs& args) {
  NaiveEvent event(gradus::name(op), {&x, &y}, x.numel());
  visit(op, [&]<UnaryOp kOp> {
    visit(x.dtype, [&]<class T> {
      if constexpr (needs_floating(kOp) && !is_floating(dtype_of<T>)) {
        detail::bad_dtype(x.dtype, "a floating-point type");
      } else {
        using Result = std::conditional_t<is_predicate(kOp), bool, T>;
        const T* in = x.as<T>();
        Result* out = y.as<Result>();
        for_each(y.shape, {&x.strides, &y.strides}, [&](const int64_t* at) {
          out[at[1]] = static_cast<Result>(scalar::Unary<kOp>::apply(static_cast<compute_t<T>>(in[at[0]]), args));
        });
      }
    });
  });
}

void NaiveBackend::unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                                  const UnaryArgs& args) {
  NaiveEvent event("unary_backward", {&dy, &saved, &dx}, 2 * dy.numel());
  visit(op, [&]<UnaryOp kOp> {
    if constexpr (has_derivative(kOp)) {
      visit_floating(dx.dtype, [&]<class T> {
        using C = compute_t<T>;
        const T *gradient = dy.as<T>(), *value = saved.as<T>();
        T* out = dx.as<T>();
        for_each(dx.shape, {&dy.strides, &saved.strides, &dx.strides}, [&](const int64_t* at) {
          const C dy = static_cast<C>(gradient[at[0]]), y = static_cast<C>(value[at[1]]);
          out[at[2]] = static_cast<T>(scalar::backward<kOp>(dy, y, args));
        });
      });
    } else {
      GRADUS_FAIL(AutogradError, gradus::name(op), " has no derivative");
    }
  });
}

void NaiveBackend::binary(BinaryOp op, const View& a, const View& b, const MutableView& y) {
  NaiveEvent event(gradus::name(op), {&a, &b, &y}, y.numel());
  visit(op, [&]<BinaryOp kOp> {
    visit(a.dtype, [&]<class T> {
      if constexpr (!is_defined<kOp, T>) {
        detail::bad_dtype(a.dtype, needs_integral(kOp) ? "an integer type" : "a floating-point type");
      } else {
        using C = compute_t<T>;
        using Result = std::conditional_t<is_predicate(kOp), bool, T>;
        const T *left = a.as<T>(), *right = b.as<T>();
        Result* out = y.as<Result>();
        for_each(y.shape, {&a.strides, &b.strides, &y.strides}, [&](const int64_t* at) {
          const C l = static_cast<C>(left[at[0]]), r = static_cast<C>(right[at[1]]);
          out[at[2]] = static_cast<Result>(scalar::Binary<kOp>::apply(l, r));
        });
      }
    });
  });
}

void NaiveBackend::binary_scalar(BinaryOp op, const View& a, const Scalar& scalar, bool scalar_first,
                                 const MutableView& y) {
  const composites::Arithmetic math(*this);
  if (!is_predicate(op) && loses_digits(scalar, a.dtype))
    return copy(scalar_first ? math(op, scalar, math.widen(a)) : math(op, math.widen(a), scalar), y);
  alignas(8) unsigned char element[8];
  visit(a.dtype, [&]<class T> {
    const T value = scalar.cast<T>();
    std::memcpy(element, &value, sizeof value);
  });
  View b = a;  // `element` as a view of a's shape with strides 0
  b.data = element;
  b.strides = Dims::filled(a.ndim(), 0);
  if (scalar_first) binary(op, b, a, y);
  else binary(op, a, b, y);
}

void NaiveBackend::where(const View& condition, const View& a, const View& b, const MutableView& y) {
  NaiveEvent event("where", {&condition, &a, &b, &y});
  visit(y.dtype, [&]<class T> {
    const bool* choose = condition.as<bool>();
    const T *left = a.as<T>(), *right = b.as<T>();
    T* out = y.as<T>();
    for_each(y.shape, {&condition.strides, &a.strides, &b.strides, &y.strides},
             [&](const int64_t* at) { out[at[3]] = choose[at[0]] ? left[at[1]] : right[at[2]]; });
  });
}

void NaiveBackend::recurrent_cell(RecurrentCell kind, const MutableView& gates, const View& c_before,
                                  const MutableView& c, const MutableView& h) {
  NaiveEvent event("recurrent_cell", {&gates, &c_before}, 25 * c.numel());
  const int64_t next = c.shape[1] * gates.strides[1];  // from a gate to the next
  scalar::visit_cell(kind, [&]<RecurrentCell cell>() {
    for_each(c.shape, {&c.strides, &gates.strides, &c_before.strides, &h.strides}, [&](const int64_t* at) {
      double gate[sums_of(cell)];
      for (int k = 0; k < sums_of(cell); ++k) gate[k] = scalar::recurrent_gate<cell>(k, load(gates, at[1] + k * next));
      const auto step = scalar::recurrent_cell<cell>(gate, load(c_before, at[2]));
      for (int k = 0; k < sums_of(cell); ++k) store(gates, at[1] + k * next, step.gates[k]);
      store(c, at[0], step.c), store(h, at[3], step.h);
    });
  });
}

void NaiveBackend::recurrent_cell_backward(RecurrentCell kind, const View& dh, const View& gates, const View& c_before,
                                           const View& c, const MutableView& dc, const MutableView& dgates) {
  NaiveEvent event("recurrent_cell_backward", {&dh, &gates}, 35 * c.numel());
  const int64_t next = c.shape[1] * gates.strides[1], dnext = c.shape[1] * dgates.strides[1];
  const Strides* const strides[] = {&dc.strides,    &dgates.strides,   &dh.strides,
                                    &gates.strides, &c_before.strides, &c.strides};
  scalar::visit_cell(kind, [&]<RecurrentCell cell>() {
    for_each(c.shape, strides, [&](const int64_t* at) {
      double active[sums_of(cell)];
      for (int k = 0; k < sums_of(cell); ++k) active[k] = load(gates, at[3] + k * next);
      const auto gradient = scalar::recurrent_cell_backward<cell>(active, load(c_before, at[4]), load(c, at[5]),
                                                                  load(dh, at[2]), load(dc, at[0]));
      for (int k = 0; k < sums_of(cell); ++k) store(dgates, at[1] + k * dnext, gradient.sums[k]);
      store(dc, at[0], gradient.dc_before);
    });
  });
}

}  // namespace gradus
