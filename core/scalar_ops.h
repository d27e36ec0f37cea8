// Scalar formulas and derivatives, written once for host and device. Half types compute in float (compute_t).
#pragma once

#include <cmath>

#include <gradus/core/backend.h>

namespace gradus {

/// Functions that a kernel calls per element: `Apply<op>` gets the compute type.
namespace scalar {

template <class T>
GRADUS_HOST_DEVICE inline bool is_nan(T x) {
  return x != x;
}

/// x as a To. Floating to integer truncates, through int64: beyond its range saturates, NaN is 0, narrower types wrap.
/// To boolean tests != 0. To and from half types goes through float.
template <class To, class From>
GRADUS_HOST_DEVICE inline To convert(From from) {
  const compute_t<From> x = from;
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != compute_t<From>(0);
  } else if constexpr (std::is_floating_point_v<compute_t<From>> && std::is_integral_v<To>) {
    const int64_t whole = x >= 0x1p63f ? INT64_MAX : x < -0x1p63f ? INT64_MIN : is_nan(x) ? 0 : static_cast<int64_t>(x);
    return static_cast<To>(whole);
  } else {
    return static_cast<To>(static_cast<compute_t<To>>(x));
  }
}

// clang-format off
/// Square root of 2 pi and the like stay out of here: only what the enums name.
template <UnaryOp op> struct Unary;  // apply(x, args) and, where differentiable, derivative(saved, args)

template <> struct Unary<UnaryOp::neg> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const UnaryArgs&) { return T(-x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T, const UnaryArgs&) { return T(-1); }
};
template <> struct Unary<UnaryOp::abs> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const UnaryArgs&) {
    return x < T(0) ? T(-x) : x == T(0) ? T(0) : x;
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const UnaryArgs&) {
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : T(0);
  }
};
template <> struct Unary<UnaryOp::exp> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const UnaryArgs&) { using std::exp; return exp(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const UnaryArgs&) { return y; }
};
template <> struct Unary<UnaryOp::log> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const UnaryArgs&) { using std::log; return log(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const UnaryArgs&) { return T(1) / x; }
};
template <> struct Unary<UnaryOp::sqrt> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const UnaryArgs&) { using std::sqrt; return sqrt(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const UnaryArgs&) { return T(1) / (T(2) * y); }
};
template <> struct Unary<UnaryOp::reciprocal> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const UnaryArgs&) { return T(1) / x; }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const UnaryArgs&) { return -y * y; }
};
template <> struct Unary<UnaryOp::relu> {  // NaN passes through
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const UnaryArgs&) { return x < T(0) ? T(0) : x; }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const UnaryArgs&) { return y > T(0) ? T(1) : T(0); }
};
template <> struct Unary<UnaryOp::sigmoid> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const UnaryArgs&) {
    using std::exp;
    return T(1) / (T(1) + exp(-x));
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const UnaryArgs&) { return y * (T(1) - y); }
};
template <> struct Unary<UnaryOp::tanh> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const UnaryArgs&) { using std::tanh; return tanh(x); }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T y, const UnaryArgs&) { return T(1) - y * y; }
};
template <> struct Unary<UnaryOp::clamp> {  // NaN passes through; the derivative is 1 on the closed interval
  template <class T> GRADUS_HOST_DEVICE static T apply(T x, const UnaryArgs& args) {
    return double(x) < args.a ? T(args.a) : double(x) > args.b ? T(args.b) : x;
  }
  template <class T> GRADUS_HOST_DEVICE static T derivative(T x, const UnaryArgs& args) {
    return double(x) >= args.a && double(x) <= args.b ? T(1) : T(0);
  }
};
template <> struct Unary<UnaryOp::logical_not> {
  template <class T> GRADUS_HOST_DEVICE static bool apply(T x, const UnaryArgs&) { return x == T(0); }
};
template <> struct Unary<UnaryOp::isfinite> {
  template <class T> GRADUS_HOST_DEVICE static bool apply(T x, const UnaryArgs&) { return x - x == T(0); }
};

template <BinaryOp op> struct Binary;  // apply(a, b)

template <> struct Binary<BinaryOp::add> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return T(a + b); }
};
template <> struct Binary<BinaryOp::sub> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return T(a - b); }
};
template <> struct Binary<BinaryOp::mul> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return T(a * b); }
};
/// Array ops divide only floating types (integers are promoted first), as torch.div does.
template <> struct Binary<BinaryOp::div> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) return b == T(0) ? T(0) : T(a / b);
    else return a / b;
  }
};
template <> struct Binary<BinaryOp::pow> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {  // square and multiply; negative exponents follow integer division
      if constexpr (std::is_signed_v<T>)
        if (b < T(0)) return a == T(1) ? T(1) : a == T(-1) ? (b % 2 ? T(-1) : T(1)) : T(0);
      uint64_t result = 1, base = static_cast<uint64_t>(a);
      for (uint64_t e = static_cast<uint64_t>(b); e; e >>= 1, base *= base)
        if (e & 1) result *= base;
      return static_cast<T>(result);
    } else {
      using std::pow;
      return b == T(2) ? a * a : pow(a, b);
    }
  }
};
template <> struct Binary<BinaryOp::maximum> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return is_nan(a) ? a : is_nan(b) ? b : a < b ? b : a; }
};
template <> struct Binary<BinaryOp::minimum> {
  template <class T> GRADUS_HOST_DEVICE static T apply(T a, T b) { return is_nan(a) ? a : is_nan(b) ? b : b < a ? b : a; }
};
template <> struct Binary<BinaryOp::eq> {
  template <class T> GRADUS_HOST_DEVICE static bool apply(T a, T b) { return a == b; }
};
template <> struct Binary<BinaryOp::ne> {
  template <class T> GRADUS_HOST_DEVICE static bool apply(T a, T b) { return a != b; }
};
template <> struct Binary<BinaryOp::lt> {
  template <class T> GRADUS_HOST_DEVICE static bool apply(T a, T b) { return a < b; }
};
template <> struct Binary<BinaryOp::le> {
  template <class T> GRADUS_HOST_DEVICE static bool apply(T a, T b) { return a <= b; }
};
template <> struct Binary<BinaryOp::gt> {
  template <class T> GRADUS_HOST_DEVICE static bool apply(T a, T b) { return a > b; }
};
template <> struct Binary<BinaryOp::ge> {
  template <class T> GRADUS_HOST_DEVICE static bool apply(T a, T b) { return a >= b; }
};
template <> struct Binary<BinaryOp::logical_and> {
  template <class T> GRADUS_HOST_DEVICE static bool apply(T a, T b) { return a != T(0) && b != T(0); }
};
template <> struct Binary<BinaryOp::logical_or> {
  template <class T> GRADUS_HOST_DEVICE static bool apply(T a, T b) { return a != T(0) || b != T(0); }
};

// clang-format on

}  // namespace scalar

/// True where unary_backward takes the output y; else it takes the input x.
constexpr bool saves_output(UnaryOp op) {
  switch (op) {
    case UnaryOp::exp:
    case UnaryOp::sqrt:
    case UnaryOp::reciprocal:
    case UnaryOp::relu:
    case UnaryOp::sigmoid:
    case UnaryOp::tanh: return true;
    default: return false;
  }
}

/// True for the ops that integers do not have: array ops promote to a floating type first.
constexpr bool needs_floating(UnaryOp op) {
  switch (op) {
    case UnaryOp::exp:
    case UnaryOp::log:
    case UnaryOp::sqrt:
    case UnaryOp::reciprocal:
    case UnaryOp::sigmoid:
    case UnaryOp::tanh: return true;
    default: return false;
  }
}

/// Calls f.template operator()<op>(): the one switch over unary ops.
template <class F>
decltype(auto) visit(UnaryOp op, F&& f) {
  switch (op) {
    case UnaryOp::neg: return f.template operator()<UnaryOp::neg>();
    case UnaryOp::abs: return f.template operator()<UnaryOp::abs>();
    case UnaryOp::exp: return f.template operator()<UnaryOp::exp>();
    case UnaryOp::log: return f.template operator()<UnaryOp::log>();
    case UnaryOp::sqrt: return f.template operator()<UnaryOp::sqrt>();
    case UnaryOp::reciprocal: return f.template operator()<UnaryOp::reciprocal>();
    case UnaryOp::relu: return f.template operator()<UnaryOp::relu>();
    case UnaryOp::sigmoid: return f.template operator()<UnaryOp::sigmoid>();
    case UnaryOp::tanh: return f.template operator()<UnaryOp::tanh>();
    case UnaryOp::clamp: return f.template operator()<UnaryOp::clamp>();
    case UnaryOp::logical_not: return f.template operator()<UnaryOp::logical_not>();
    case UnaryOp::isfinite: return f.template operator()<UnaryOp::isfinite>();
  }
  __builtin_unreachable();
}

/// Calls f.template operator()<op>(): the one switch over binary ops.
template <class F>
decltype(auto) visit(BinaryOp op, F&& f) {
  switch (op) {
    case BinaryOp::add: return f.template operator()<BinaryOp::add>();
    case BinaryOp::sub: return f.template operator()<BinaryOp::sub>();
    case BinaryOp::mul: return f.template operator()<BinaryOp::mul>();
    case BinaryOp::div: return f.template operator()<BinaryOp::div>();
    case BinaryOp::pow: return f.template operator()<BinaryOp::pow>();
    case BinaryOp::maximum: return f.template operator()<BinaryOp::maximum>();
    case BinaryOp::minimum: return f.template operator()<BinaryOp::minimum>();
    case BinaryOp::eq: return f.template operator()<BinaryOp::eq>();
    case BinaryOp::ne: return f.template operator()<BinaryOp::ne>();
    case BinaryOp::lt: return f.template operator()<BinaryOp::lt>();
    case BinaryOp::le: return f.template operator()<BinaryOp::le>();
    case BinaryOp::gt: return f.template operator()<BinaryOp::gt>();
    case BinaryOp::ge: return f.template operator()<BinaryOp::ge>();
    case BinaryOp::logical_and: return f.template operator()<BinaryOp::logical_and>();
    case BinaryOp::logical_or: return f.template operator()<BinaryOp::logical_or>();
  }
  __builtin_unreachable();
}

/// The unary ops that have a derivative.
constexpr bool has_derivative(UnaryOp op) { return !is_predicate(op); }
const char* name(UnaryOp op);
const char* name(BinaryOp op);

}  // namespace gradus
