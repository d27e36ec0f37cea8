// What the element-wise operators are: conversion between types, traits, and the one switch over each enum. The
// formulas, written once for host and device, are in scalar_unary.h and scalar_binary.h. Half types compute in float
// (compute_t).
#pragma once

#include <iterator>

#include <gradus/core/backend.h>
#include <gradus/core/scalar_binary.h>
#include <gradus/core/scalar_unary.h>

namespace gradus {

namespace scalar {

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

}  // namespace scalar

/// True where unary_backward takes the output y; else it takes the input x.
constexpr bool saves_output(UnaryOp op) {
  switch (op) {
    case UnaryOp::exp:
    case UnaryOp::expm1:
    case UnaryOp::sqrt:
    case UnaryOp::rsqrt:
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
    case UnaryOp::expm1:
    case UnaryOp::log:
    case UnaryOp::log1p:
    case UnaryOp::log2:
    case UnaryOp::log10:
    case UnaryOp::sqrt:
    case UnaryOp::rsqrt:
    case UnaryOp::reciprocal:
    case UnaryOp::sin:
    case UnaryOp::cos:
    case UnaryOp::erf:
    case UnaryOp::sigmoid:
    case UnaryOp::tanh:
    case UnaryOp::leaky_relu:
    case UnaryOp::elu:
    case UnaryOp::gelu:
    case UnaryOp::gelu_tanh:
    case UnaryOp::silu:
    case UnaryOp::softplus:
    case UnaryOp::mish:
    case UnaryOp::log_sigmoid:
    case UnaryOp::hardswish: return true;
    default: return false;
  }
}
/// True where kernels have `op` for elements of type T.
template <BinaryOp op, class T>
constexpr bool is_defined = is_floating(dtype_of<T>) ? !needs_integral(op) : !needs_floating(op);

/// True where the derivative is 0 wherever there is one.
constexpr bool is_step_function(UnaryOp op) {
  switch (op) {
    case UnaryOp::sign:
    case UnaryOp::floor:
    case UnaryOp::ceil:
    case UnaryOp::round:
    case UnaryOp::trunc: return true;
    default: return false;
  }
}

/// Calls f.template operator()<op>(): the one switch over unary ops.
template <class F>
decltype(auto) visit(UnaryOp op, F&& f) {
  switch (op) {
    case UnaryOp::neg: return f.template operator()<UnaryOp::neg>();
    case UnaryOp::abs: return f.template operator()<UnaryOp::abs>();
    case UnaryOp::sign: return f.template operator()<UnaryOp::sign>();
    case UnaryOp::floor: return f.template operator()<UnaryOp::floor>();
    case UnaryOp::ceil: return f.template operator()<UnaryOp::ceil>();
    case UnaryOp::round: return f.template operator()<UnaryOp::round>();
    case UnaryOp::trunc: return f.template operator()<UnaryOp::trunc>();
    case UnaryOp::square: return f.template operator()<UnaryOp::square>();
    case UnaryOp::exp: return f.template operator()<UnaryOp::exp>();
    case UnaryOp::expm1: return f.template operator()<UnaryOp::expm1>();
    case UnaryOp::log: return f.template operator()<UnaryOp::log>();
    case UnaryOp::log1p: return f.template operator()<UnaryOp::log1p>();
    case UnaryOp::log2: return f.template operator()<UnaryOp::log2>();
    case UnaryOp::log10: return f.template operator()<UnaryOp::log10>();
    case UnaryOp::sqrt: return f.template operator()<UnaryOp::sqrt>();
    case UnaryOp::rsqrt: return f.template operator()<UnaryOp::rsqrt>();
    case UnaryOp::reciprocal: return f.template operator()<UnaryOp::reciprocal>();
    case UnaryOp::sin: return f.template operator()<UnaryOp::sin>();
    case UnaryOp::cos: return f.template operator()<UnaryOp::cos>();
    case UnaryOp::erf: return f.template operator()<UnaryOp::erf>();
    case UnaryOp::relu: return f.template operator()<UnaryOp::relu>();
    case UnaryOp::sigmoid: return f.template operator()<UnaryOp::sigmoid>();
    case UnaryOp::tanh: return f.template operator()<UnaryOp::tanh>();
    case UnaryOp::clamp: return f.template operator()<UnaryOp::clamp>();
    case UnaryOp::hardtanh: return f.template operator()<UnaryOp::hardtanh>();
    case UnaryOp::leaky_relu: return f.template operator()<UnaryOp::leaky_relu>();
    case UnaryOp::elu: return f.template operator()<UnaryOp::elu>();
    case UnaryOp::gelu: return f.template operator()<UnaryOp::gelu>();
    case UnaryOp::gelu_tanh: return f.template operator()<UnaryOp::gelu_tanh>();
    case UnaryOp::silu: return f.template operator()<UnaryOp::silu>();
    case UnaryOp::softplus: return f.template operator()<UnaryOp::softplus>();
    case UnaryOp::mish: return f.template operator()<UnaryOp::mish>();
    case UnaryOp::log_sigmoid: return f.template operator()<UnaryOp::log_sigmoid>();
    case UnaryOp::hardswish: return f.template operator()<UnaryOp::hardswish>();
    case UnaryOp::logical_not: return f.template operator()<UnaryOp::logical_not>();
    case UnaryOp::isfinite: return f.template operator()<UnaryOp::isfinite>();
    case UnaryOp::isnan: return f.template operator()<UnaryOp::isnan>();
    case UnaryOp::isinf: return f.template operator()<UnaryOp::isinf>();
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
    case BinaryOp::fmod: return f.template operator()<BinaryOp::fmod>();
    case BinaryOp::remainder: return f.template operator()<BinaryOp::remainder>();
    case BinaryOp::atan2: return f.template operator()<BinaryOp::atan2>();
    case BinaryOp::bitwise_and: return f.template operator()<BinaryOp::bitwise_and>();
    case BinaryOp::bitwise_or: return f.template operator()<BinaryOp::bitwise_or>();
    case BinaryOp::bitwise_xor: return f.template operator()<BinaryOp::bitwise_xor>();
    case BinaryOp::eq: return f.template operator()<BinaryOp::eq>();
    case BinaryOp::ne: return f.template operator()<BinaryOp::ne>();
    case BinaryOp::lt: return f.template operator()<BinaryOp::lt>();
    case BinaryOp::le: return f.template operator()<BinaryOp::le>();
    case BinaryOp::gt: return f.template operator()<BinaryOp::gt>();
    case BinaryOp::ge: return f.template operator()<BinaryOp::ge>();
    case BinaryOp::logical_and: return f.template operator()<BinaryOp::logical_and>();
    case BinaryOp::logical_or: return f.template operator()<BinaryOp::logical_or>();
    case BinaryOp::logical_xor: return f.template operator()<BinaryOp::logical_xor>();
  }
  __builtin_unreachable();
}

/// The unary ops that have a derivative.
constexpr bool has_derivative(UnaryOp op) { return !is_predicate(op); }
const char* name(UnaryOp op);
const char* name(BinaryOp op);
const char* name(ReduceOp op);

}  // namespace gradus
