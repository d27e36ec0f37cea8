// The list of the seam's operations, and what is made of it: a backend whose calls all arrive at one place. Recorders,
// and with them static graphs and memory plans, are written on that.
#pragma once

#include <span>
#include <tuple>
#include <type_traits>

#include <gradus/core/backend.h>

namespace gradus {

/// Every operation of Backend, in the order of its declarations. tests/training/recording_backend_test.cpp compares the
/// list with the class.
// clang-format off
#define GRADUS_BACKEND_OPS(OP)                                                                                  \
  OP(fill) OP(copy) OP(arange)                                                                                  \
  OP(unary) OP(unary_backward) OP(binary) OP(binary_scalar) OP(where)                                           \
  OP(reduce) OP(arg_reduce)                                                                                     \
  OP(matmul) OP(conv2d) OP(conv2d_backward_data) OP(conv2d_backward_weight) OP(max_pool2d)                      \
  OP(max_pool2d_backward) OP(pick) OP(pick_backward)                                                            \
  OP(scan) OP(sort) OP(gather) OP(scatter) OP(nonzero)                                                          \
  OP(uniform) OP(normal) OP(bernoulli) OP(randint) OP(randperm)                                                 \
  OP(linear) OP(softmax) OP(softmax_backward) OP(cross_entropy) OP(cross_entropy_backward)                      \
  OP(conv2d_bias_relu) OP(conv2d_bias_relu_backward) OP(dropout) OP(dropout_backward) OP(linear_recurrence)     \
  OP(resample2d) OP(normalize) OP(normalize_backward) OP(update_running_statistics)                             \
  OP(lstm_cell) OP(lstm_cell_backward) OP(lstm_sequence) OP(lstm_sequence_backward)                             \
  OP(attention) OP(attention_backward) OP(rgb_to_grayscale)                                                     \
  OP(advance_step) OP(optimizer_step) OP(unscale) OP(update_scale) OP(topk)
// clang-format on

namespace detail {

/// Base with each of the layers on top.
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

// For each operation a layer that overrides it, with the parameters that Backend's method has.
#define GRADUS_INTERCEPT(op)                                                                \
  template <class Base, class Method = decltype(&Backend::op)>                              \
  struct intercept_##op;                                                                    \
  template <class Base, class... Params>                                                    \
  struct intercept_##op<Base, void (Backend::*)(Params...)> : Base {                        \
    void op(Params... params) final { this->derived().call(#op, &Backend::op, params...); } \
  };
#define GRADUS_LAYER(op) , intercept_##op
GRADUS_BACKEND_OPS(GRADUS_INTERCEPT)

template <class Derived>
using AllIntercepted = typename Stack<InterceptorRoot<Derived> GRADUS_BACKEND_OPS(GRADUS_LAYER)>::type;
#undef GRADUS_LAYER
#undef GRADUS_INTERCEPT

}  // namespace detail

/// A backend that runs nothing itself: each operation calls derived.call(name, method, arguments...), where `method` is
/// Backend's, so that (other.*method)(arguments...) runs it on another backend. Views, spans and stencils among the
/// arguments live for the call.
template <class Derived>
class BackendInterceptor : public detail::AllIntercepted<Derived> {};

/// Calls f with each View (read) and MutableView (written, or read and written) of an argument of an operation: itself,
/// or those in a struct or span of them, in order. Absent ones are passed over. f may change the views of an argument
/// that it may change: memory plans put them elsewhere.
template <class Argument, class F>
void for_each_operand(Argument&& argument, const F& f) {
  using Type = std::remove_cvref_t<Argument>;
  if constexpr (std::is_same_v<Type, View> || std::is_same_v<Type, MutableView>) {
    if (argument) f(argument);
  } else if constexpr (requires { argument.fields(); }) {
    std::apply([&](auto&... fields) { (for_each_operand(fields, f), ...); }, argument.fields());
  } else if constexpr (requires { std::span(argument); }) {
    for (auto& element : argument) for_each_operand(element, f);
  }
}

}  // namespace gradus
