// Operators of neural networks on arrays, without gradients: convolution, pooling, normalisation, losses, attention,
// recurrent layers, optimizer steps. Each one checks its arguments, allocates the results and calls the backend. The
// formulas are in core/backend.h and core/kernel_args.h.
#pragma once

#include <span>

#include <gradus/core/ops/ops.h>

namespace gradus::ops {

// ---- Convolution (conv.cpp) ----
/// Throws a ValueError if `padding` is negative or unreasonably large (above 2^40).
void check_padding(int64_t padding);
/// conv2d plus bias, then ReLU if `relu`: x (N, C, H, W), w (K, C / groups, R, S), bias (K) or undefined, result
/// (N, K, P, Q). Throws a ShapeError if the windows cover less than one pixel in a thousand, or if the kernel reaches
/// far beyond the image.
Array conv2d(const Array& x, const Array& w, const Array& bias, bool relu, const Conv2dGeometry& geometry);
struct Conv2dGradients {
  Array dx, dw, dbias;
};
/// Gradients of conv2d. Gradients that are not requested are undefined. `y_if_relu` is the forward result if ReLU was
/// applied, else undefined. With `may_overwrite_dy` the backend may reuse dy's memory.
Conv2dGradients conv2d_backward(const Array& dy, const Array& x, const Array& w, const Array& y_if_relu, bool want_dx,
                                bool want_dw, bool want_dbias, const Conv2dGeometry& geometry, bool may_overwrite_dy);
/// The gradient of conv2d (without ReLU) with respect to an input of shape `x_shape` and layout `format`.
Array conv2d_backward_data(const Array& dy, const Array& w, const Shape& x_shape, MemoryFormat format,
                           const Conv2dGeometry& geometry);
/// The gradient of conv2d (without ReLU) with respect to a weight of shape `w_shape` and layout `format`.
Array conv2d_backward_weight(const Array& dy, const Array& x, const Shape& w_shape, MemoryFormat format,
                             const Conv2dGeometry& geometry);

// ---- Pooling, resampling, grayscale (image.cpp) ----
/// Checks the geometry and returns the shape of the result of pooling x (N, C, H, W).
Shape pool2d_shape(const Shape& x, const Pool2dGeometry& geometry, bool ceil_mode);
/// Returns the maxima (N, C, P, Q) of the windows of x (N, C, H, W) and their int32 indices h * W + w. With `ceil_mode`
/// the output size is rounded up if the last window still starts inside the image or its left padding.
std::tuple<Array, Array> max_pool2d(const Array& x, const Pool2dGeometry& geometry, bool ceil_mode);
/// dx of shape `x_shape`, from dy and the indices that max_pool2d returned.
Array max_pool2d_backward(const Array& dy, const Array& indices, const Shape& x_shape, const Pool2dGeometry& geometry);
/// y[n, c, p, q] = plane (n, c) of x at indices[n, c, p, q]: the gradient of max_pool2d_backward with respect to dy.
Array pick_from_planes(const Array& x, const Array& indices);

/// A Stencil (core/kernel_args.h) that owns its arrays. Average pooling, interpolation, padding with existing pixels,
/// and the gradients of all of these are one kernel, resample2d, with different stencils.
struct OwnedStencil {
  int64_t size_in = 0;
  std::vector<int64_t> begin = {0}, source;
  std::vector<double> weight;

  OwnedStencil() = default;
  explicit OwnedStencil(int64_t size_in_) : size_in(size_in_) {}
  int64_t size_out() const { return static_cast<int64_t>(begin.size()) - 1; }
  Stencil view() const { return {size_in, size_out(), begin, source, weight}; }
  /// Adds input element `from` with weight w to the current output position. end_position() completes that position.
  void add(int64_t from, double w) { source.push_back(from), weight.push_back(w); }
  void end_position() { begin.push_back(static_cast<int64_t>(source.size())); }
  /// The stencil of the gradient, in which inputs and outputs change places: an entry from input k to output p becomes
  /// an entry from input p to output k.
  OwnedStencil transposed() const;

  static OwnedStencil identity(int64_t size);
  /// y[p] = x[sources[p]]
  static OwnedStencil selection(int64_t size_in, const std::vector<int64_t>& sources);
};

/// y (N, C, rows.size_out(), columns.size_out()) from x (N, C, rows.size_in, columns.size_in).
Array resample2d(const Array& x, const OwnedStencil& rows, const OwnedStencil& columns);

/// The stencil of average pooling along one axis. The sum of a window is divided by its number of elements, or by
/// `divisor` if that is not 0.
OwnedStencil average_stencil(int64_t size_in, int64_t size_out, int64_t kernel, int64_t stride, int64_t padding,
                             bool count_include_pad, double divisor);
/// Adaptive pooling along one axis: window p consists of the elements [adaptive_begin, adaptive_end).
inline int64_t adaptive_begin(int64_t p, int64_t size_in, int64_t size_out) { return p * size_in / size_out; }
inline int64_t adaptive_end(int64_t p, int64_t size_in, int64_t size_out) {
  return ((p + 1) * size_in + size_out - 1) / size_out;
}
OwnedStencil adaptive_average_stencil(int64_t size_in, int64_t size_out);
/// Stencils of interpolation along one axis. `scale` is size_out / size_in unless the user gave another value. `exact`
/// selects torch's mode nearest-exact.
OwnedStencil nearest_stencil(int64_t size_in, int64_t size_out, double scale, bool exact);
OwnedStencil linear_stencil(int64_t size_in, int64_t size_out, double scale, bool align_corners);
OwnedStencil cubic_stencil(int64_t size_in, int64_t size_out, double scale, bool align_corners);

/// 0.2989 R + 0.5870 G + 0.1140 B: (…, 3, H, W) to (…, 1, H, W).
Array rgb_to_grayscale(const Array& x);

// ---- Softmax and classification losses (loss.cpp) ----
/// softmax along `axis`, or log_softmax if `log`, of a floating type.
Array softmax(const Array& x, int axis, bool log);
Array softmax_backward(const Array& dy, const Array& y, int axis, bool log);

/// Checks that x (N, C) is of a floating type and that target (N) is int64.
void check_classes(const Array& x, const Array& target);
/// x[i, target[i]]; 0 in rows whose target is `ignore_index`.
Array pick(const Array& x, const Array& target, int64_t ignore_index);
Array pick_backward(const Array& dy, const Array& target, int64_t ignore_index, const Shape& x_shape);
/// Number of rows whose target is not `ignore_index`, as a scalar of type `dtype`.
Array count_targets(const Array& target, int64_t ignore_index, DType dtype);

struct CrossEntropyResult {
  Array loss;               // (), or (N) for Reduction::none
  Array log_probabilities;  // (N, C)
  Array weight_sum;         // (), number of rows whose target is not ignore_index
};
CrossEntropyResult cross_entropy(const Array& x, const Array& target, int64_t ignore_index, Reduction reduction);
Array cross_entropy_backward(const Array& dloss, const CrossEntropyResult& saved, const Array& target,
                             int64_t ignore_index, Reduction reduction);

// ---- Normalisation and dropout (norm.cpp) ----
struct Normalized {
  Array y, mean, variance;
};
/// Running statistics of batch norm (gradus::RunningStatistics). Undefined arrays are not updated.
struct KeptStatistics {
  Array mean, variance, batches;
  double momentum = 0;
};
/// Normalises x over `axes`.
///   weight, bias    undefined, or of x's rank with size 1 where they broadcast. Their dtype is x's, or float32 if x
///                   has a half type.
///   mean, variance  of x's rank with size 1 at `axes`. If they are given, they are used and returned. Otherwise they
///                   are computed from x (in float32 for half types), and the running statistics in `kept` are updated
///                   in place, with the unbiased variance.
///   relu, residual  With `relu`, y is the ReLU of the normalised x plus `residual`, which is undefined or has x's
///                   shape and dtype.
Normalized normalize(const Array& x, uint32_t axes, const Array& weight, const Array& bias, double eps,
                     const Array& mean = {}, const Array& variance = {}, bool relu = false, const Array& residual = {},
                     const KeptStatistics& kept = {});

/// Updates the running statistics with the mean and the unbiased variance of each channel, (C), and counts the batch.
void update_running_statistics(const KeptStatistics& kept, const Array& mean, const Array& variance);

struct NormalizeGradients {
  Array dx, dweight, dbias, dresidual;
};
/// What normalize_backward needs to know about a ReLU that followed the normalisation.
struct NormalizeRelu {
  Array y = {};        ///< the forward result; if there was no ReLU, y is undefined and the other members are ignored
  Array bias = {};     ///< the bias of the normalisation; only used if `alone` is true
  bool alone = false;  ///< ReLU was applied without a residual
  bool want_dresidual = false;
  bool may_overwrite = false;  ///< dresidual may reuse the memory of dy
  Array addend = {};           ///< if defined, the gradient of y is dy + addend
};
/// Returns the requested gradients. dweight and dbias have the shape `parameters` (and are float32 for half types).
NormalizeGradients normalize_backward(const Array& dy, const Array& x, const Array& mean, const Array& variance,
                                      uint32_t axes, const Array& weight, const Shape& parameters, double eps,
                                      bool fixed_statistics, bool want_dx, bool want_dweight, bool want_dbias,
                                      const NormalizeRelu& relu = {});

/// Returns (x * mask / (1 - p), boolean mask). The mask is drawn from `generator`.
std::tuple<Array, Array> dropout(const Array& x, double p, Generator& generator = default_generator());
/// dy * mask / (1 - p)
Array dropout_backward(const Array& dy, const Array& mask, double p);

// ---- Attention and recurrent layers (sequence.cpp) ----
/// The result (N, H, L, V) of attention and what its gradient needs: the softmax weights (N, H, L, S) and, with
/// dropout, a boolean mask that is true where a weight was kept.
struct AttentionResult {
  Array y, weights, kept;
};

/// dropout(softmax(scale q kᵀ + mask)) v for q (N, H, L, E), k (N, H, S, E), v (N, H, S, V). `mask` is undefined, or
/// broadcasts to (N, H, L, S) and is either boolean (false excludes the pair) or of q's dtype (added to the scores).
/// Dropout draws from `generator`. The axes of y have the same order in memory as those of q.
AttentionResult attention(const Array& q, const Array& k, const Array& v, const Array& mask, AttentionRule rule,
                          Generator& generator = default_generator());
/// Writes the gradients into dq, dk and dv, which have the shapes of q, k and v.
void attention_backward(const Array& dy, const Array& q, const Array& k, const Array& v, const AttentionResult& result,
                        const AttentionRule& rule, const Array& dq, const Array& dk, const Array& dv);

/// The weights of a recurrent layer in one direction, for gates_of(cell) = G gates and states of P elements: w_ih
/// (G H, I), w_hh (G H, P), biases (G H) that are both defined or both undefined, and w_hr (P, H), which projects the
/// outputs of an LSTM; without it, P = H. The gates are in PyTorch's order: i, f, g, o or r, z, n.
struct RecurrentWeights {
  const Array &w_ih, &w_hh, &b_ih, &b_hh, &w_hr;
};
/// The results of all steps; see RecurrentArgs. Members that the cell does not have are the same array as `hidden`.
struct RecurrentStates {
  Array hidden, cells, outputs, gates;
};
/// Runs a recurrent layer over x (L, N, I) from the states h0 (N, P) and, for an LSTM, c0 (N, H); with `reverse`, from
/// the last step to the first. The products of x with w_ih are computed for all steps at once.
RecurrentStates recurrent(RecurrentCell cell, const Array& x, const Array& h0, const Array& c0,
                          const RecurrentWeights& weights, bool reverse);

/// Gradients of `recurrent` with respect to its arguments.
struct RecurrentGradients {
  Array dx, dh0, dc0, dw_ih, dw_hh, db_ih, db_hh, dw_hr;
};
/// Takes the gradients of the hidden states and of an LSTM's last cell state (N, H), either of which may be undefined.
/// Computes dx only if `need_dx`.
RecurrentGradients recurrent_backward(RecurrentCell cell, const Array& dhidden, const Array& dlast_cell, const Array& x,
                                      const Array& h0, const Array& c0, const RecurrentWeights& weights,
                                      const RecurrentStates& states, bool reverse, bool need_dx);

// ---- Optimizer steps and loss scaling (optimizer.cpp) ----
/// One parameter of an optimizer step, its gradient and the state arrays that the rule needs.
struct OptimizerEntry {
  Array parameter;
  Array gradient;                     ///< any strides; a half type is allowed if the parameter is float32
  Array states[kMaxOptimizerStates];  ///< dense, with the parameter's shape, dtype and device (zeros_like)
  Array half = {};  ///< if defined: a copy of the parameter in a half type, which the step updates too. The parameter
                    ///< must then be dense, and the copy must have its strides.
};

/// A StepBlock in device memory with step 0, this learning rate, gradient scale 1, found_inf 0 and momentum product 1.
Array step_block(double learning_rate, Device device);
/// Writes `value` to entry number `entry` of a StepBlock. A kernel writes it, so the host does not wait.
void set_step_block(const Array& block, int entry, double value);
/// Adds 1 to the step in the block unless its found_inf is set.
void advance_step(const Array& block);

/// Backend::optimizer_step on entries of any mix of dtypes, all on the block's device. Increments the version counters
/// of all arrays that it writes.
void optimizer_step(std::span<const OptimizerEntry> entries, const Array& block, const OptimizerRule& rule);

/// Backend::unscale on gradients of any mix of dtypes, all on found_inf's device. `factor` may be undefined. Increments
/// the version counters of all arrays that it writes.
void unscale(std::span<const Array> gradients, const Array& factor, const Array& found_inf);
/// Backend::update_scale: computes the next loss scale in a ScaleBlock.
void update_scale(const Array& block, const ScaleRule& rule);

}  // namespace gradus::ops
