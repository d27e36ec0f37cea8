// OpScope and apply open, record and run every differentiable operator.
//
//   Tensor matmul(const Tensor& a, const Tensor& b, Loc where) {
//     OpScope op("matmul", where);
//     return apply<MatMul>(op, a, b);
//   }
//
// apply<N> calls N's forward with the arrays of its tensor arguments, and with its other arguments unchanged. If an
// input requires gradients, it keeps the node, connects it to the inputs and makes it the history of the results. An
// operator may also be composed of other operators; then it defines no node:
//
//   Tensor tanhshrink(const Tensor& x, Loc where) {
//     OpScope op("tanhshrink", where);
//     return composed(op, [](const Tensor& x) { return x - tanh(x); }, x);
//   }
#pragma once

#include <array>
#include <span>
#include <tuple>

#include <gradus/autograd/mixed_precision/autocast.h>
#include <gradus/autograd/node.h>
#include <gradus/core/platform/process.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {

/// Opens an operator: sets its name and the user's source line for messages, its event for observers and its autocast
/// rule, which also applies to the operators it is composed of. Operators that only other operators call have no line.
class OpScope {
 public:
  OpScope(const char* name, Loc where = {}) : context_(name, where), event_(name) {
    autocast_ = amp::detail::autocast.active;
    if (autocast_) [[unlikely]]
      outer_rules_ = amp::detail::open_rules(name);
  }
  ~OpScope() {
    if (autocast_) [[unlikely]]
      amp::detail::autocast.rules = outer_rules_;
  }
  const char* name() const { return context_.name; }
  /// The type to which autocast casts x in this operator, or x's own type without autocast. Operators call this if they
  /// need the type before they call apply().
  DType type_of(const Tensor& x) const { return autocast_ ? amp::detail::type_for(x) : x.dtype(); }
  /// The type to which autocast casts x in this operator, which may depend on a second input with a wider type.
  DType type_of(const Tensor& x, const Tensor& other) const {
    return autocast_ ? amp::detail::type_for(x, other) : x.dtype();
  }

 private:
  OpContext context_;
  EventScope event_;
  amp::detail::CastRules outer_rules_;
  bool autocast_ = false;
};

namespace detail {

/// The name of T without its namespaces: "MatMul" for gradus::(anonymous namespace)::MatMul.
template <class T>
const char* node_name() {
  // Never destroyed, because nodes and observers keep the pointer.
  static const std::string& name = *new std::string(platform::unqualified(platform::demangled(typeid(T))));
  return name.c_str();
}

/// Returns the array of a tensor argument, undefined if the tensor is, and any other argument unchanged.
template <class T>
const auto& unwrap(const T& argument) {
  if constexpr (std::is_same_v<T, Tensor>) {
    static const Array none;
    return argument.defined() ? argument.array() : none;
  } else {
    return argument;
  }
}

template <class T>
constexpr bool is_tensor = std::is_same_v<std::remove_cvref_t<T>, Tensor>;

/// Pointers to the tensor arguments, in order.
template <class... Args>
auto tensor_pointers(const Args&... args) {
  constexpr size_t count = (size_t{is_tensor<Args>} + ... + 0);
  std::array<const Tensor*, count> pointers{};
  size_t i = 0;
  auto add = [&](const auto& arg) {
    if constexpr (is_tensor<decltype(arg)>) pointers[i++] = &arg;
  };
  (add(args), ...);
  return pointers;
}

/// True if a call with these inputs is recorded: grad mode is enabled and an input requires gradients.
bool is_recorded(TensorPointers inputs);
/// Throws if the first input is undefined. Other inputs may be undefined.
void check_inputs(TensorPointers inputs);
/// Sets the node's name, layer and edges before forward.
void begin_node(Node& node, TensorPointers inputs, const char* name);
/// Makes a tensor from a result of `node`, which is null if the call is not recorded.
Tensor finish_output(const Ref<Node>& node, Array output);
/// Like finish_output, for a result that is a view of `of`. Also stores the base of the view.
Tensor finish_view(const Ref<Node>& node, const Tensor& of, Array output);
/// Throws unless an operator may write into `self`: it must not be a leaf that requires gradients, its view must allow
/// writing, and its elements must not overlap.
void check_in_place(const Tensor& self, bool recording);
/// Makes `node` the history of `self`, or of its base if it is a view.
void finish_in_place(const Tensor& self, const Ref<Node>& node);
/// Replaces `self` by a view of itself, with `node` (or null) as its history. Throws if gradients are recorded and
/// `self` is a leaf that requires them.
void finish_view_in_place(const Tensor& self, const Ref<Node>& node, Array view);

/// Runs forward, either on a recorded node or on a temporary one, and passes the node (null if not recorded) and the
/// result to `finish`. With `in_place`, forward overwrites the first argument.
template <class N, class Finish, class... Args>
auto run_node(bool in_place, const Finish& finish, const Args&... args) {
  const auto pointers = tensor_pointers(args...);
  const TensorPointers inputs = pointers;
  const bool recording = is_recorded(inputs);
  check_inputs(inputs);
  if (in_place) check_in_place(*inputs[0], recording);
  if (recording) {
    Ref<N> node = make_ref<N>();
    begin_node(*node, inputs, node_name<N>());
    node->set_inputs(inputs, in_place);
    auto result = node->forward(unwrap(args)...);
    node->set_inputs({}, in_place);
    return finish(Ref<Node>(std::move(node)), std::move(result));
  }
  N node;
  node.set_inputs(inputs, in_place);
  return finish(Ref<Node>(), node.forward(unwrap(args)...));
}

/// apply() without autocast.
template <class N, class... Args>
auto apply_as_is(const Args&... args) {
  const auto finish = [](const Ref<Node>& node, auto result) {
    const auto wrap = [&](Array& output) { return finish_output(node, std::move(output)); };
    if constexpr (std::is_same_v<decltype(result), Array>) return wrap(result);
    else return std::apply([&](auto&... outputs) { return std::tuple{wrap(outputs)...}; }, result);
  };
  return run_node<N>(false, finish, args...);
}

template <class T>
decltype(auto) cast_argument(const amp::detail::Casts& casts, const T& argument) {
  if constexpr (is_tensor<T>) return casts(argument);
  else return argument;
}

}  // namespace detail

/// Runs operator N on `args` (tensors, arrays and options in forward's order). forward returns an Array, or a
/// std::tuple of Arrays for several results; non-floating results have no history.
template <class N, class... Args>
auto apply(const OpScope&, const Args&... args) {
  if (amp::detail::autocast.rules.any()) [[unlikely]] {
    const amp::detail::Casts casts(detail::tensor_pointers(args...));
    return detail::apply_as_is<N>(detail::cast_argument(casts, args)...);
  }
  return detail::apply_as_is<N>(args...);
}

/// Like apply, for an operator whose result is a view of its first argument.
template <class N, class... Args>
Tensor apply_view(const OpScope&, const Tensor& of, const Args&... args) {
  const auto finish = [&](const Ref<Node>& node, Array view) { return detail::finish_view(node, of, std::move(view)); };
  return detail::run_node<N>(false, finish, of, args...);
}

/// Like apply_view, for an operator that replaces `self` by a view of itself (unsqueeze_).
template <class N, class... Args>
const Tensor& apply_view_in_place(const OpScope&, const Tensor& self, const Args&... args) {
  const auto finish = [&](const Ref<Node>& node, Array view) {
    detail::finish_view_in_place(self, node, std::move(view));
  };
  detail::run_node<N>(false, finish, self, args...);
  return self;
}

/// Like apply, for an operator that writes its result into `self`. forward gets self's array first and returns it.
template <class N, class... Args>
const Tensor& apply_in_place(const OpScope&, const Tensor& self, const Args&... args) {
  const auto finish = [&](const Ref<Node>& node, const Array&) {
    if (node) detail::finish_in_place(self, node);
  };
  detail::run_node<N>(true, finish, self, args...);
  return self;
}

// ---- Compositions. In half types each part of a composition would round its result, and intermediate values might
// overflow float16. A composition therefore computes in float32, forward and backward, and rounds only its results and
// the gradients of its inputs. A node whose backward is such a composition returns true from
// Node::backward_in_float32. ----

/// Base of nodes whose backward is a composition.
struct ComposedNode : Node {
  bool backward_in_float32() const override { return true; }
};

namespace detail {

/// Finds out whether a composition has inputs of half types, as given or as autocast casts them, and converts its
/// inputs (tensors and lists of tensors) and results.
class HalfInputs {
 public:
  template <class... Inputs>
  explicit HalfInputs(const OpScope& op, const Inputs&... inputs) : op_(op) {
    (note(inputs), ...);
  }

  bool any() const { return any_; }
  /// Converts an input to float32, the type in which the composition computes. If autocast casts x to a half type, x is
  /// rounded to that type first.
  Tensor operator()(const Tensor& x) const {
    const bool cast = x.defined() && is_half(op_.type_of(x)) && !is_half(x.dtype());
    return widened(cast ? x.to(op_.type_of(x), false, false, Loc{}) : x);
  }
  TensorList operator()(TensorList list) const {
    for (Tensor& x : list) x = (*this)(x);
    return list;
  }

  /// Rounds a result to the promoted type of the non-scalar inputs, or of all inputs if all are scalars.
  void round(Tensor& y) const {
    const DType type = arrays_ ? *arrays_ : scalars_.value_or(DType::f32);
    if (is_half(type) && y.dtype() == DType::f32) y = y.to(type, false, false, Loc{});
  }
  template <class... Results>
  void round(std::tuple<Results...>& results) const {
    std::apply([&](auto&... y) { (round(y), ...); }, results);
  }

 private:
  void note(const Tensor& x) {
    if (!x.defined() || !is_floating(x.dtype())) return;
    const DType own = op_.type_of(x);
    any_ = any_ || is_half(x.dtype()) || is_half(own);
    std::optional<DType>& type = x.dim() > 0 ? arrays_ : scalars_;
    type = promote_types(type.value_or(own), own);
  }
  void note(const TensorList& list) {
    for (const Tensor& x : list) note(x);
  }

  const OpScope& op_;
  bool any_ = false;
  std::optional<DType> arrays_, scalars_;  // the promoted types of the non-scalar and of the scalar inputs
};

}  // namespace detail

/// Returns f(inputs…), computed in float32 if inputs are of a half type: f gets converted inputs, and its float32
/// results are rounded to the inputs' type, or to the type that autocast chooses for the operator. Undefined inputs
/// stay undefined. An input may be a list of tensors.
template <class F, class... Inputs>
auto composed(const OpScope& op, F&& f, const Inputs&... inputs) {
  const detail::HalfInputs half(op, inputs...);
  if (!half.any()) return f(inputs...);
  const std::tuple converted{half(inputs)...};
  const amp::detail::AutocastOff off;
  auto results = std::apply(f, converted);
  half.round(results);
  return results;
}

// ---- Arguments: operands of binary operators, axis numbers, and sets of axes as bit masks (axis_mask) ----

/// x.dim() as an int, the type in which Shape counts dimensions.
inline int ndim_of(const Tensor& x) { return static_cast<int>(x.dim()); }

/// Converts a possibly negative axis to 0 … x.dim() - 1. Throws an IndexError if there is no such dimension.
inline int axis_of(const Tensor& x, int64_t dim) { return normalize_axis(dim, ndim_of(x)); }

/// Inserts the axes of `mask`, over which x of shape `x_shape` was reduced to y, into y again with size 1.
inline Tensor restore_axes(const Tensor& y, const Shape& x_shape, uint32_t mask) {
  return y.reshape(reduced_shape(x_shape, mask, true));
}

/// The axes of `mask` as a list.
inline Dims axes_of(uint32_t mask) {
  Dims axes;
  for (int i = 0; i < kMaxDims; ++i)
    if (mask >> i & 1) axes.push_back(i);
  return axes;
}

/// Indices into the flattened mask, in row-major order, of the elements where it is true.
inline Tensor places_of(const Tensor& mask) { return mask.reshape({-1}, Loc{}).nonzero(Loc{}).select(1, 0, Loc{}); }

/// Source line of the call, which binary operators receive through their operands.
inline Loc line_of(const Operand& a, const Operand& b) { return a.where.line ? a.where : b.where; }

/// Converts a number to `dtype` as PyTorch does, which drops the fraction for integers. A number out of range is a
/// ValueError (ops::check_fits).
Scalar number_of(const Scalar& number, DType dtype);

/// Returns x if it is a tensor. A number becomes a scalar tensor of the other operand's type, or of the promoted type
/// if the number is of a higher category, for example a float combined with an integer tensor (torch.result_type). If
/// both operands are numbers, it keeps its own type.
Tensor as_tensor(const Operand& x, const Operand& other, Device device = {});

}  // namespace gradus
