// Operators composed of other operators. In half types each part would round its result, and intermediate values might
// overflow float16. A composition therefore computes in float32, forward and backward, and rounds only its results and
// the gradients of its inputs.
//
//   Tensor tanhshrink(const Tensor& x, Loc where) {
//     OpScope op("tanhshrink", where);
//     return composed(op, [](const Tensor& x) { return x - tanh(x); }, x);
//   }
//
// A node whose backward is such a composition returns true from Node::backward_in_float32.
#pragma once

#include <span>

#include <gradus/autograd/op_scope.h>

namespace gradus {
namespace detail {

/// Describes the half types among the inputs of a composition, as given or as autocast casts them.
class HalfInputs {
 public:
  HalfInputs(const OpScope& op, const Tensor* const* inputs, size_t count) : op_(op) {
    std::optional<DType> arrays, scalars;
    for (const Tensor* x : std::span(inputs, count)) {
      if (!x->defined() || !is_floating(x->dtype())) continue;
      any_ = any_ || is_half(x->dtype()) || is_half(op.type_of(*x));
      std::optional<DType>& type = x->dim() > 0 ? arrays : scalars;
      type = type ? promote_types(*type, op.type_of(*x)) : op.type_of(*x);
    }
    type_ = arrays ? *arrays : scalars.value_or(DType::f32);
  }

  bool any() const { return any_; }
  /// Converts an input to float32, the type in which the composition computes. If autocast casts x to a half type, x is
  /// rounded to that type first.
  Tensor operator()(const Tensor& x) const {
    const bool cast = x.defined() && is_half(op_.type_of(x)) && !is_half(x.dtype());
    return widened(cast ? x.to(op_.type_of(x), false, false, Loc{}) : x);
  }

  void round(Tensor& y) const {
    if (is_half(type_) && y.dtype() == DType::f32) y = y.to(type_, false, false, Loc{});
  }
  template <class... Results>
  void round(std::tuple<Results...>& results) const {
    std::apply([&](auto&... y) { (round(y), ...); }, results);
  }

 private:
  const OpScope& op_;
  bool any_ = false;
  DType type_;  // of the results: the inputs' promoted type; scalars count only if all inputs are scalars
};

}  // namespace detail

/// Returns f(inputs…), computed in float32 if inputs are of a half type: f gets converted inputs, and its float32
/// results are rounded to the inputs' type, or to the type that autocast chooses for the operator. Undefined inputs
/// stay undefined.
template <class F, class... Inputs>
auto composed(const OpScope& op, F&& f, const Inputs&... inputs) {
  const auto pointers = detail::tensor_pointers(inputs...);
  const detail::HalfInputs half(op, pointers.data(), pointers.size());
  if (!half.any()) return f(inputs...);
  const std::tuple converted{half(inputs)...};
  const amp::detail::AutocastOff off;
  auto results = std::apply(f, converted);
  half.round(results);
  return results;
}

/// Like composed(), for a list of inputs.
template <class F>
Tensor composed_of_list(const OpScope& op, F&& f, const TensorList& inputs) {
  std::vector<const Tensor*> pointers;
  for (const Tensor& x : inputs) pointers.push_back(&x);
  const detail::HalfInputs half(op, pointers.data(), pointers.size());
  if (!half.any()) return f(inputs);
  TensorList converted;
  for (const Tensor& x : inputs) converted.push_back(half(x));
  const amp::detail::AutocastOff off;
  Tensor result = f(converted);
  half.round(result);
  return result;
}

}  // namespace gradus
