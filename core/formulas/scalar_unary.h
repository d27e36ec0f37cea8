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

// An operation is a function apply(Op<op>, x) and, unless its results are boolean, derivative(Op<op>, saved). Both have
// a third parameter, args, if the operation has arguments.
// clang-format off
template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::neg>, T x) { return T(-wrapping_t<T>(x)); }
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::neg>, T) { return T(-1); }

template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::abs>, T x) {  // -0 becomes 0
  return select(x < T(0), T(-wrapping_t<T>(x)), T(x + T(0)));
}
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::abs>, T x) {
  return select(x > T(0), T(1), select(x < T(0), T(-1), T(0)));
}

/// Functions whose derivative is 0 wherever it exists. round takes halves to the even neighbour.
template <UnaryOp op, class T> requires(is_step_function(op)) GRADUS_HOST_DEVICE T apply(Op<op>, T x) {
  if constexpr (op == UnaryOp::sign) return select(x > T(0), T(1), select(x < T(0), T(-1), T(0)));
  else if constexpr (std::is_integral_v<T>) return x;
  else if constexpr (op == UnaryOp::floor) return floor(x);
  else if constexpr (op == UnaryOp::ceil) return ceil(x);
  else if constexpr (op == UnaryOp::round) return rint(x);
  else return trunc(x);
}
template <UnaryOp op, class T> requires(is_step_function(op)) GRADUS_HOST_DEVICE T derivative(Op<op>, T) {
  return T(0);
}

template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::square>, T x) {
  return T(wrapping_t<T>(x) * wrapping_t<T>(x));
}
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::square>, auto x) { return 2 * x; }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::exp>, auto x) { return exp(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::exp>, auto y) { return y; }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::expm1>, auto x) { return expm1(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::expm1>, auto y) { return y + 1; }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::log>, auto x) { return log(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::log>, auto x) { return 1 / x; }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::log1p>, auto x) { return log1p(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::log1p>, auto x) { return 1 / (1 + x); }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::log2>, auto x) { return log2(x); }
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::log2>, T x) {
  return T(1) / (x * T(0.69314718055994530942));
}

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::log10>, auto x) { return log10(x); }
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::log10>, T x) {
  return T(1) / (x * T(2.30258509299404568402));
}

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::sqrt>, auto x) { return sqrt(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::sqrt>, auto y) { return 1 / (2 * y); }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::rsqrt>, auto x) { return 1 / sqrt(x); }
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::rsqrt>, T y) { return T(-0.5) * y * y * y; }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::reciprocal>, auto x) { return 1 / x; }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::reciprocal>, auto y) { return -y * y; }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::sin>, auto x) { return sin(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::sin>, auto x) { return cos(x); }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::cos>, auto x) { return cos(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::cos>, auto x) { return -sin(x); }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::erf>, auto x) { return erf(x); }
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::erf>, T x) {
  return T(1.12837916709551257390) * exp(-x * x);
}

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::tanh>, auto x) { return tanh(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::tanh>, auto y) { return 1 - y * y; }

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::sigmoid>, auto x) { return logistic(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::sigmoid>, auto y) { return y * (1 - y); }

/// NaN passes through.
template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::relu>, T x) { return select(x < T(0), T(0), x); }
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::relu>, T y) { return select(y <= T(0), T(0), T(1)); }

/// min(max(x, a), b); b if a > b. NaN passes through. The derivative is 1 on the closed interval. Integers are compared
/// with the bounds in double, because the bounds may be fractions or outside the range of T.
template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::clamp>, T x, const Args& args) {
  if constexpr (std::is_integral_v<T>) {
    const T raised = double(x) < args.a ? T(args.a) : x;
    return double(raised) > args.b ? T(args.b) : raised;
  } else {
    const T raised = select(x < T(args.a), T(args.a), x);
    return select(raised > T(args.b), T(args.b), raised);
  }
}
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::clamp>, T x, const Args& args) {
  return select((x >= T(args.a)) & (x <= T(args.b)), T(1), T(0));
}

/// clamp with the derivative 0 at the bounds
template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::hardtanh>, T x, const Args& args) {
  return apply(Op<UnaryOp::clamp>(), x, args);
}
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::hardtanh>, T x, const Args& args) {
  return select((x > T(args.a)) & (x < T(args.b)), T(1), T(0));
}

template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::leaky_relu>, T x, const Args& args) {
  return select(x > T(0), x, T(args.a) * x);
}
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::leaky_relu>, T x, const Args& args) {
  return select(x > T(0), T(1), T(args.a));
}

template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::elu>, T x, const Args& args) {
  return select(x > T(0), x, T(args.a) * expm1(x * T(args.b)));
}
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::elu>, T x, const Args& args) {
  return select(x > T(0), T(1), T(args.a * args.b) * exp(x * T(args.b)));
}

/// x Phi(x)
GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::gelu>, auto x) { return x * normal_distribution(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::gelu>, auto x) {
  return normal_distribution(x) + x * normal_density(x);
}

/// x (1 + tanh(u / 2)) / 2 = x sigmoid(u), u = sqrt(8 / pi) (x + 0.044715 x^3)
template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::gelu_tanh>, T x) {
  return x * logistic(T(1.59576912160573071176) * (x + T(0.044715) * x * x * x));
}
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::gelu_tanh>, T x) {
  // x is limited to [-30, 30]: outside, the derivative is constant, but squares of x could overflow.
  const T z = select(x > T(30), T(30), select(x < T(-30), T(-30), x));
  const T s = logistic(T(1.59576912160573071176) * (z + T(0.044715) * z * z * z));
  return s + z * s * (T(1) - s) * T(1.59576912160573071176) * (T(1) + T(0.134145) * z * z);
}

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::silu>, auto x) { return x * logistic(x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::silu>, auto x) {
  const auto s = logistic(x);
  return s * (1 + x * (1 - s));
}

template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::softplus>, T x, const Args& args) {
  const T z = x * T(args.a);
  return select(z > T(args.b), x, log1p_exp(z) / T(args.a));
}
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::softplus>, T x, const Args& args) {
  const T z = x * T(args.a);
  return select(z > T(args.b), T(1), logistic(z));
}

/// x tanh(softplus(x)). With e = exp(x) and n = e (e + 2), tanh(softplus(x)) = n / (n + 2), which is 1 for x > 20.
template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::mish>, T x) {
  const T e = exp(select(x > T(20), T(20), x)), n = e * (e + T(2));
  return select(x > T(20), x, x * (n / (n + T(2))));
}
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::mish>, T x) {
  const T e = exp(select(x > T(20), T(20), x)), n = e * (e + T(2));
  return select(x > T(20), T(1), n / (n + T(2)) + x * (T(4) * e * (e + T(1)) / ((n + T(2)) * (n + T(2)))));
}

GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::log_sigmoid>, auto x) { return -log1p_exp(-x); }
GRADUS_HOST_DEVICE auto derivative(Op<UnaryOp::log_sigmoid>, auto x) { return logistic(-x); }

/// x min(max(x + 3, 0), 6) / 6
template <class T> GRADUS_HOST_DEVICE T apply(Op<UnaryOp::hardswish>, T x) {
  const T h = x + T(3);
  return x * (select(h < T(0), T(0), select(h > T(6), T(6), h)) / T(6));
}
template <class T> GRADUS_HOST_DEVICE T derivative(Op<UnaryOp::hardswish>, T x) {
  return select(x < T(-3), T(0), select(x > T(3), T(1), x / T(3) + T(0.5)));
}

// Functions whose results are booleans, or masks for vectors.
GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::logical_not>, auto x) { return x == 0; }
template <class T> GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::isfinite>, T x) { return T(x - x) == T(0); }
GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::isnan>, auto x) { return is_nan(x); }
template <class T> GRADUS_HOST_DEVICE auto apply(Op<UnaryOp::isinf>, T x) { return (x == x) & is_nan(T(x - x)); }
// clang-format on

/// The functions of one operation, which take its arguments in any case.
template <UnaryOp op>
struct Unary {
  template <class T>
  GRADUS_HOST_DEVICE static auto apply(T x, const Args& args) {
    if constexpr (requires { scalar::apply(Op<op>(), x, args); }) return scalar::apply(Op<op>(), x, args);
    else return scalar::apply(Op<op>(), x);
  }
  template <class T>
  GRADUS_HOST_DEVICE static T derivative(T saved, const Args& args) {
    if constexpr (requires { scalar::derivative(Op<op>(), saved, args); })
      return scalar::derivative(Op<op>(), saved, args);
    else return scalar::derivative(Op<op>(), saved);
  }
};

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
