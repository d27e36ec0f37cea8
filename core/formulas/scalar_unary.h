// Element-wise functions of one argument with their derivatives, each written once. core/op_lists.h has the list of
// functions and the switch over them. T is a number on host or device (float, double, or an integer type if the
// function is defined for integers, see needs_floating), or a vector of floats or doubles, whose comparisons give masks
// (backends/openmp/simd/lanes.h). For the sake of vectors, formulas use `select` instead of ?: and combine conditions
// with & | ! instead of && and ||; both branches are then computed.
#pragma once

#include <gradus/core/formulas/scalar_math.h>
#include <gradus/core/op_lists.h>

namespace gradus::scalar {

using Args = UnaryArgs;

// clang-format off
template <UnaryOp op> struct Unary;  // apply(x, args); derivative(saved, args) unless results are boolean

template <> struct Unary<UnaryOp::neg> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return T(-wrapping_t<T>(x)); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T, const Args&) { return T(-1); }
};
template <> struct Unary<UnaryOp::abs> {  // -0 becomes 0
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) {
    return select(x < T(0), T(-wrapping_t<T>(x)), T(x + T(0)));
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) {
    return select(x > T(0), T(1), select(x < T(0), T(-1), T(0)));
  }
};
/// Functions whose derivative is 0 wherever it exists. round takes halves to the even neighbour.
template <UnaryOp op> requires(is_step_function(op)) struct Unary<op> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) {
    if constexpr (op == UnaryOp::sign) return select(x > T(0), T(1), select(x < T(0), T(-1), T(0)));
    else if constexpr (std::is_integral_v<T>) return x;
    else if constexpr (op == UnaryOp::floor) return floor(x);
    else if constexpr (op == UnaryOp::ceil) return ceil(x);
    else if constexpr (op == UnaryOp::round) return rint(x);
    else return trunc(x);
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T, const Args&) { return T(0); }
};
template <> struct Unary<UnaryOp::square> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) {
    return T(wrapping_t<T>(x) * wrapping_t<T>(x));
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) { return T(2) * x; }
};
template <> struct Unary<UnaryOp::exp> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return exp(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const Args&) { return y; }
};
template <> struct Unary<UnaryOp::expm1> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return expm1(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const Args&) { return y + T(1); }
};
template <> struct Unary<UnaryOp::log> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return log(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) { return T(1) / x; }
};
template <> struct Unary<UnaryOp::log1p> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return log1p(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) { return T(1) / (T(1) + x); }
};
template <> struct Unary<UnaryOp::log2> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return log2(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) {
    return T(1) / (x * T(0.69314718055994530942));
  }
};
template <> struct Unary<UnaryOp::log10> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return log10(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) {
    return T(1) / (x * T(2.30258509299404568402));
  }
};
template <> struct Unary<UnaryOp::sqrt> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return sqrt(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const Args&) { return T(1) / (T(2) * y); }
};
template <> struct Unary<UnaryOp::rsqrt> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return T(1) / sqrt(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const Args&) { return T(-0.5) * y * y * y; }
};
template <> struct Unary<UnaryOp::reciprocal> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return T(1) / x; }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const Args&) { return -y * y; }
};
template <> struct Unary<UnaryOp::sin> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return sin(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) { return cos(x); }
};
template <> struct Unary<UnaryOp::cos> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return cos(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) { return -sin(x); }
};
template <> struct Unary<UnaryOp::erf> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return erf(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) {
    return T(1.12837916709551257390) * exp(-x * x);
  }
};
template <> struct Unary<UnaryOp::tanh> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return tanh(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const Args&) { return T(1) - y * y; }
};
template <> struct Unary<UnaryOp::sigmoid> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return logistic(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const Args&) { return y * (T(1) - y); }
};
template <> struct Unary<UnaryOp::relu> {  // NaN passes through
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return select(x < T(0), T(0), x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const Args&) { return select(y <= T(0), T(0), T(1)); }
};
/// min(max(x, a), b); b if a > b. NaN passes through. The derivative is 1 on the closed interval. Integers are compared
/// with the bounds in double, because the bounds may be fractions or outside the range of T.
template <> struct Unary<UnaryOp::clamp> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args& args) {
    if constexpr (std::is_integral_v<T>) {
      const T raised = double(x) < args.a ? T(args.a) : x;
      return double(raised) > args.b ? T(args.b) : raised;
    } else {
      const T raised = select(x < T(args.a), T(args.a), x);
      return select(raised > T(args.b), T(args.b), raised);
    }
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args& args) {
    return select((x >= T(args.a)) & (x <= T(args.b)), T(1), T(0));
  }
};
template <> struct Unary<UnaryOp::hardtanh> {  // clamp with the derivative 0 at the bounds
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args& args) {
    return Unary<UnaryOp::clamp>::apply(x, args);
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args& args) {
    return select((x > T(args.a)) & (x < T(args.b)), T(1), T(0));
  }
};
template <> struct Unary<UnaryOp::leaky_relu> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args& args) {
    return select(x > T(0), x, T(args.a) * x);
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args& args) {
    return select(x > T(0), T(1), T(args.a));
  }
};
template <> struct Unary<UnaryOp::elu> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args& args) {
    return select(x > T(0), x, T(args.a) * expm1(x * T(args.b)));
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args& args) {
    return select(x > T(0), T(1), T(args.a * args.b) * exp(x * T(args.b)));
  }
};
template <> struct Unary<UnaryOp::gelu> {  // x Phi(x)
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return x * normal_distribution(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) {
    return normal_distribution(x) + x * normal_density(x);
  }
};
/// x (1 + tanh(u / 2)) / 2 = x sigmoid(u), u = sqrt(8 / pi) (x + 0.044715 x^3)
template <> struct Unary<UnaryOp::gelu_tanh> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) {
    return x * logistic(T(1.59576912160573071176) * (x + T(0.044715) * x * x * x));
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) {
    // x is limited to [-30, 30]: outside, the derivative is constant, but squares of x could overflow.
    const T z = select(x > T(30), T(30), select(x < T(-30), T(-30), x));
    const T s = logistic(T(1.59576912160573071176) * (z + T(0.044715) * z * z * z));
    return s + z * s * (T(1) - s) * T(1.59576912160573071176) * (T(1) + T(0.134145) * z * z);
  }
};
template <> struct Unary<UnaryOp::silu> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return x * logistic(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) {
    const T s = logistic(x);
    return s * (T(1) + x * (T(1) - s));
  }
};
template <> struct Unary<UnaryOp::softplus> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args& args) {
    const T z = x * T(args.a);
    return select(z > T(args.b), x, log1p_exp(z) / T(args.a));
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args& args) {
    const T z = x * T(args.a);
    return select(z > T(args.b), T(1), logistic(z));
  }
};
/// x tanh(softplus(x)). With e = exp(x) and n = e (e + 2), tanh(softplus(x)) = n / (n + 2), which is 1 for x > 20.
template <> struct Unary<UnaryOp::mish> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) {
    const T e = exp(select(x > T(20), T(20), x)), n = e * (e + T(2));
    return select(x > T(20), x, x * (n / (n + T(2))));
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) {
    const T e = exp(select(x > T(20), T(20), x)), n = e * (e + T(2));
    return select(x > T(20), T(1), n / (n + T(2)) + x * (T(4) * e * (e + T(1)) / ((n + T(2)) * (n + T(2)))));
  }
};
template <> struct Unary<UnaryOp::log_sigmoid> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) { return -log1p_exp(-x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) { return logistic(-x); }
};
template <> struct Unary<UnaryOp::hardswish> {  // x min(max(x + 3, 0), 6) / 6
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const Args&) {
    const T h = x + T(3);
    return x * (select(h < T(0), T(0), select(h > T(6), T(6), h)) / T(6));
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const Args&) {
    return select(x < T(-3), T(0), select(x > T(3), T(1), x / T(3) + T(0.5)));
  }
};
/// Functions whose results are booleans, or masks for vectors.
template <UnaryOp op> requires(is_predicate(op)) struct Unary<op> {
  template <class T> GRADUS_HOST_DEVICE static auto apply(T x, const Args&) {
    if constexpr (op == UnaryOp::logical_not) return x == T(0);
    else if constexpr (op == UnaryOp::isfinite) return T(x - x) == T(0);
    else if constexpr (op == UnaryOp::isnan) return is_nan(x);
    else return (x == x) & is_nan(T(x - x));  // isinf
  }
};
// clang-format on

/// dx = dy op'(saved). Where a piecewise linear function is flat, dx is 0 for any dy. A product would be infinity times
/// 0 = NaN where dy is infinite, as in the gradient of sqrt(relu(x)) at 0.
template <UnaryOp op, class T>
GRADUS_HOST_DEVICE T backward(T dy, T saved, const Args& args) {
  if constexpr (op == UnaryOp::relu) {
    return select(saved <= T(0), T(0), dy);
  } else if constexpr (op == UnaryOp::clamp || op == UnaryOp::hardtanh || op == UnaryOp::hardswish) {
    const T slope = Unary<op>::derivative(saved, args);
    return select(slope == T(0), T(0), T(dy * slope));
  } else {
    return dy * Unary<op>::derivative(saved, args);
  }
}

}  // namespace gradus::scalar
