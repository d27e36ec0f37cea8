// BackendInterceptor: a backend that forwards every operation to one function. The backend that records a training step
// for static graphs and memory plans derives from it.
#pragma once

#include <span>
#include <type_traits>

#include <gradus/core/backend.h>

namespace gradus {

/// The names of an operation of Backend and of its parameters: "copy" and "x, y".
struct OperationName {
  const char* name;
  const char* parameters;
  operator const char*() const { return name; }  // NOLINT(google-explicit-constructor)
};

/// A backend that runs nothing itself. Each operation calls derived.call(name, method, arguments...), where `name` is
/// an OperationName and `method` Backend's member function, so that (other.*method)(arguments...) runs it on another
/// backend. Views, spans and stencils among the arguments are valid for the duration of the call.
/// tests/graph/recording_backend_test.cpp tests that no operation of core/backend.h is missing here.
template <class Derived>
class BackendInterceptor : public Backend {
#define GRADUS_CALL(op, ...) \
  static_cast<Derived&>(*this).call(OperationName{#op, #__VA_ARGS__}, &Backend::op, __VA_ARGS__)

 public:
  void fill(const MutableView& y, const Scalar& value) final { GRADUS_CALL(fill, y, value); }
  void copy(const View& x, const MutableView& y) final { GRADUS_CALL(copy, x, y); }
  void arange(const MutableView& y, const Scalar& start, const Scalar& step) final {
    GRADUS_CALL(arange, y, start, step);
  }
  void unary(UnaryOp op, const View& x, const MutableView& y, const UnaryArgs& args) final {
    GRADUS_CALL(unary, op, x, y, args);
  }
  void unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                      const UnaryArgs& args) final {
    GRADUS_CALL(unary_backward, op, dy, saved, dx, args);
  }
  void binary(BinaryOp op, const View& a, const View& b, const MutableView& y) final {
    GRADUS_CALL(binary, op, a, b, y);
  }
  void binary_scalar(BinaryOp op, const View& a, const Scalar& scalar, bool scalar_first, const MutableView& y) final {
    GRADUS_CALL(binary_scalar, op, a, scalar, scalar_first, y);
  }
  void where(const View& condition, const View& a, const View& b, const MutableView& y) final {
    GRADUS_CALL(where, condition, a, b, y);
  }
  void reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) final {
    GRADUS_CALL(reduce, op, x, axes, y);
  }
  void arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                  const MutableView& indices) final {
    GRADUS_CALL(arg_reduce, op, x, axis, values, indices);
  }
  void matmul(const View& a, const View& b, const MutableView& y, bool accumulate) final {
    GRADUS_CALL(matmul, a, b, y, accumulate);
  }
  void conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) final {
    GRADUS_CALL(conv2d, x, w, y, geometry);
  }
  void conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                            const Conv2dGeometry& geometry) final {
    GRADUS_CALL(conv2d_backward_data, dy, w, dx, geometry);
  }
  void conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                              const Conv2dGeometry& geometry) final {
    GRADUS_CALL(conv2d_backward_weight, dy, x, dw, geometry);
  }
  void max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                  const Pool2dGeometry& geometry) final {
    GRADUS_CALL(max_pool2d, x, y, indices, geometry);
  }
  void max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                           const Pool2dGeometry& geometry) final {
    GRADUS_CALL(max_pool2d_backward, dy, indices, dx, geometry);
  }
  void resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) final {
    GRADUS_CALL(resample2d, x, rows, columns, y);
  }
  void pick(const View& x, const View& target, int64_t ignore_index, const MutableView& y) final {
    GRADUS_CALL(pick, x, target, ignore_index, y);
  }
  void pick_backward(const View& dy, const View& target, int64_t ignore_index, const MutableView& dx) final {
    GRADUS_CALL(pick_backward, dy, target, ignore_index, dx);
  }
  void scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) final {
    GRADUS_CALL(scan, op, x, axis, reverse, y);
  }
  void sort(const View& x, int axis, bool descending, const MutableView& values, const MutableView& indices) final {
    GRADUS_CALL(sort, x, axis, descending, values, indices);
  }
  void gather(const View& x, int axis, const View& index, const MutableView& y) final {
    GRADUS_CALL(gather, x, axis, index, y);
  }
  void scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) final {
    GRADUS_CALL(scatter, x, axis, index, accumulate, y);
  }
  void nonzero(const View& x, const MutableView& positions) final { GRADUS_CALL(nonzero, x, positions); }
  void recurrent_cell(RecurrentCell cell, const MutableView& gates, const View& c_before, const MutableView& c,
                      const MutableView& h) final {
    GRADUS_CALL(recurrent_cell, cell, gates, c_before, c, h);
  }
  void recurrent_cell_backward(RecurrentCell cell, const View& dh, const View& gates, const View& c_before,
                               const View& c, const MutableView& dc, const MutableView& dgates) final {
    GRADUS_CALL(recurrent_cell_backward, cell, dh, gates, c_before, c, dc, dgates);
  }
  void uniform(const MutableView& y, const RandomState& state, double low, double high) final {
    GRADUS_CALL(uniform, y, state, low, high);
  }
  void normal(const MutableView& y, const RandomState& state, double mean, double deviation) final {
    GRADUS_CALL(normal, y, state, mean, deviation);
  }
  void bernoulli(const MutableView& y, const RandomState& state, double p) final {
    GRADUS_CALL(bernoulli, y, state, p);
  }
  void randint(const MutableView& y, const RandomState& state, int64_t low, int64_t high) final {
    GRADUS_CALL(randint, y, state, low, high);
  }
  void randperm(const MutableView& y, const RandomState& state) final { GRADUS_CALL(randperm, y, state); }
  void update_scale(const MutableView& block, const ScaleRule& rule) final { GRADUS_CALL(update_scale, block, rule); }
  void linear(const View& x, const View& w, const View& bias, const MutableView& y) final {
    GRADUS_CALL(linear, x, w, bias, y);
  }
  void softmax(const View& x, int axis, SoftmaxKind kind, const MutableView& y) final {
    GRADUS_CALL(softmax, x, axis, kind, y);
  }
  void softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) final {
    GRADUS_CALL(softmax_backward, dy, y, axis, log, dx);
  }
  void cross_entropy(const CrossEntropyArgs& args) final { GRADUS_CALL(cross_entropy, args); }
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) final { GRADUS_CALL(cross_entropy_backward, args); }
  void conv2d_bias_relu(const Conv2dArgs& args) final { GRADUS_CALL(conv2d_bias_relu, args); }
  void conv2d_bias_relu_backward(const Conv2dBackwardArgs& args) final { GRADUS_CALL(conv2d_bias_relu_backward, args); }
  void dropout(const View& x, double p, const RandomState& state, const MutableView& mask, const MutableView& y) final {
    GRADUS_CALL(dropout, x, p, state, mask, y);
  }
  void dropout_backward(const View& dy, const View& mask, double p, const MutableView& dx) final {
    GRADUS_CALL(dropout_backward, dy, mask, p, dx);
  }
  void linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y) final {
    GRADUS_CALL(linear_recurrence, a, b, axis, reverse, y);
  }
  void normalize(const NormalizeArgs& args) final { GRADUS_CALL(normalize, args); }
  void normalize_backward(const NormalizeBackwardArgs& args) final { GRADUS_CALL(normalize_backward, args); }
  void update_running_statistics(const View& batch_mean, const View& batch_variance,
                                 const RunningStatistics& running) final {
    GRADUS_CALL(update_running_statistics, batch_mean, batch_variance, running);
  }
  void recurrent_sequence(const RecurrentArgs& args) final { GRADUS_CALL(recurrent_sequence, args); }
  void recurrent_sequence_backward(const RecurrentBackwardArgs& args) final {
    GRADUS_CALL(recurrent_sequence_backward, args);
  }
  void attention(const AttentionArgs& args) final { GRADUS_CALL(attention, args); }
  void attention_backward(const AttentionBackwardArgs& args) final { GRADUS_CALL(attention_backward, args); }
  void rgb_to_grayscale(const View& x, const MutableView& y) final { GRADUS_CALL(rgb_to_grayscale, x, y); }
  void advance_step(const MutableView& block) final { GRADUS_CALL(advance_step, block); }
  void optimizer_step(std::span<const ParameterViews> parameters, const View& block, const OptimizerRule& rule) final {
    GRADUS_CALL(optimizer_step, parameters, block, rule);
  }
  void unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) final {
    GRADUS_CALL(unscale, gradients, factor, found_inf);
  }
  void topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices) final {
    GRADUS_CALL(topk, x, axis, largest, values, indices);
  }
#undef GRADUS_CALL
};

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
