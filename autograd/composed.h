// Operators that are composed of others. In half types each of the parts would round what it hands on, and soon leave
// the range of float16: so the composition computes in float32, forward and backward, and rounds its results and the
// gradients of its inputs once.
//
//   Tensor tanhshrink(const Tensor& x, Loc where) {
//     OpScope op("tanhshrink", where);
//     return composed(op, [](const Tensor& x) { return x - tanh(x); }, x);
//   }
//
// A node whose backward is such a composition says so by Node::backward_in_float32.
#pragma once

#include <span>

#include <gradus/autograd/op_scope.h>

namespace gradus {
namespace detail {

/// The half types among the inputs of a composition, as they are or as autocast makes them.
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
  /// What the composition computes with: x in float32. Where autocast makes x a half type, it is rounded first.
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
  DType type_;  // of the results: the inputs', where arrays count more than scalars
};

}  // namespace detail

/// f(inputs…), where half types are computed in float32: f gets them converted, and its results of type float32 are
/// rounded to the inputs' type, or to the one that autocast gives the operator. Undefined inputs stay so.
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

/// The same for a list of inputs.
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
