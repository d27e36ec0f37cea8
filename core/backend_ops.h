// The list of the seam's operations, and BackendInterceptor, made from it: a backend that forwards every call to one
// function. Recorders, and with them static graphs and memory plans, are built on it.
#pragma once

#include <span>
#include <type_traits>

#include <gradus/core/backend.h>

namespace gradus {

/// Every operation of Backend with the names of its parameters, in the order of the declarations.
/// tests/graph/recording_backend_test.cpp compares the list with the class.
// clang-format off
#define GRADUS_BACKEND_OPS(OP)                                                                                   \
  OP(fill, y, value) OP(copy, x, y) OP(arange, y, start, step) OP(unary, op, x, y, args)                         \
  OP(unary_backward, op, dy, saved, dx, args) OP(binary, op, a, b, y)                                            \
  OP(binary_scalar, op, a, scalar, scalar_first, y) OP(where, condition, a, b, y) OP(reduce, op, x, axes, y)     \
  OP(arg_reduce, op, x, axis, values, indices) OP(matmul, a, b, y, accumulate) OP(conv2d, x, w, y, geometry)     \
  OP(conv2d_backward_data, dy, w, dx, geometry) OP(conv2d_backward_weight, dy, x, dw, geometry)                  \
  OP(max_pool2d, x, y, indices, geometry) OP(max_pool2d_backward, dy, indices, dx, geometry)                     \
  OP(pick, x, target, ignore_index, y) OP(pick_backward, dy, target, ignore_index, dx)                           \
  OP(scan, op, x, axis, reverse, y) OP(sort, x, axis, descending, values, indices) OP(gather, x, axis, index, y) \
  OP(scatter, x, axis, index, accumulate, y) OP(nonzero, x, positions) OP(uniform, y, state, low, high)          \
  OP(normal, y, state, mean, deviation) OP(bernoulli, y, state, p) OP(randint, y, state, low, high)              \
  OP(randperm, y, state) OP(linear, x, w, bias, y) OP(softmax, x, axis, log, y)                                  \
  OP(softmax_backward, dy, y, axis, log, dx) OP(cross_entropy, args) OP(cross_entropy_backward, args)            \
  OP(conv2d_bias_relu, args) OP(conv2d_bias_relu_backward, args) OP(dropout, x, p, state, mask, y)               \
  OP(dropout_backward, dy, mask, p, dx) OP(linear_recurrence, a, b, axis, reverse, y)                            \
  OP(resample2d, x, rows, columns, y) OP(normalize, args) OP(normalize_backward, args)                           \
  OP(update_running_statistics, batch_mean, batch_variance, running) OP(lstm_cell, gates, c_before, c, h)        \
  OP(lstm_cell_backward, dh, gates, c_before, c, dc, dgates) OP(lstm_sequence, args)                             \
  OP(lstm_sequence_backward, args) OP(attention, args) OP(attention_backward, args) OP(rgb_to_grayscale, x, y)   \
  OP(advance_step, block) OP(optimizer_step, parameters, block, rule) OP(unscale, gradients, factor, found_inf)  \
  OP(update_scale, block, rule) OP(topk, x, axis, largest, values, indices)
// clang-format on

namespace detail {

/// Base with each of the layers derived from it in turn.
template <class Base, template <class...> class... Layers>
struct Stack {
  using type = Base;
};
template <class Base, template <class...> class First, template <class...> class... Rest>
struct Stack<Base, First, Rest...> : Stack<First<Base>, Rest...> {};

template <class Derived>
struct InterceptorRoot : Backend {
  Derived& derived() { return static_cast<Derived&>(*this); }
};

// For each operation, a layer that overrides it, with the parameter types of Backend's method.
#define GRADUS_INTERCEPT(op, ...)                                                           \
  template <class Base, class Method = decltype(&Backend::op)>                              \
  struct intercept_##op;                                                                    \
  template <class Base, class... Params>                                                    \
  struct intercept_##op<Base, void (Backend::*)(Params...)> : Base {                        \
    void op(Params... params) final { this->derived().call(#op, &Backend::op, params...); } \
  };
#define GRADUS_LAYER(op, ...) , intercept_##op
GRADUS_BACKEND_OPS(GRADUS_INTERCEPT)

template <class Derived>
using AllIntercepted = typename Stack<InterceptorRoot<Derived> GRADUS_BACKEND_OPS(GRADUS_LAYER)>::type;
#undef GRADUS_LAYER
#undef GRADUS_INTERCEPT

}  // namespace detail

/// A backend that runs nothing itself. Each operation calls derived.call(name, method, arguments...), where `method` is
/// Backend's member function, so that (other.*method)(arguments...) runs it on another backend. Views, spans and
/// stencils among the arguments are valid for the duration of the call.
template <class Derived>
class BackendInterceptor : public detail::AllIntercepted<Derived> {};

/// Calls f with each View (read) and MutableView (written, or read and written) of an operation's argument: the
/// argument itself, or the views in it if it is a struct or a span, in order. Absent views are skipped. f may change
/// the views of a mutable argument; memory plans assign them new addresses this way.
template <class Argument, class F>
void for_each_operand(Argument&& argument, const F& f) {
  using Type = std::remove_cvref_t<Argument>;
  if constexpr (std::is_same_v<Type, View> || std::is_same_v<Type, MutableView>) {
    if (argument) f(argument);
  } else if constexpr (requires { Type::field_names(); }) {
    argument.with_fields([&](auto&... fields) { (for_each_operand(fields, f), ...); });
  } else if constexpr (requires { std::span(argument); }) {
    for (auto& element : argument) for_each_operand(element, f);
  }
}

}  // namespace gradus
