// Arguments of the operations of core/backend.h other than single views: options, and structs of operands.
#pragma once

#include <span>

#include <gradus/core/array/view.h>
#include <gradus/core/element_ops.h>
#include <gradus/core/options.h>

namespace gradus {

/// Reductions. Of an empty set, sum is 0, prod is 1 and mean is NaN; max and min require a non-empty set. max and min
/// propagate NaN.
enum class ReduceOp : uint8_t { sum, mean, max, min, all, any, prod };
/// Names of the operations, in the order of the enum.
inline constexpr const char* kReduceNames[] = {"sum", "mean", "max", "min", "all", "any", "prod"};
/// "sum"
constexpr const char* name(ReduceOp op) { return kReduceNames[static_cast<int>(op)]; }
enum class ArgReduceOp : uint8_t { argmax, argmin };
/// Running sums or products along an axis.
enum class ScanOp : uint8_t { sum, prod };

/// Convolution geometry; each pair is (height, width).
/// Output size: (H + 2 padding - dilation (R - 1) - 1) / stride + 1.
struct Conv2dGeometry {
  int64_t stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  int64_t groups = 1;
  GRADUS_FIELDS(stride, padding, dilation, groups)
};
/// Pooling geometry. Positions of a window outside the image count as -infinity.
struct Pool2dGeometry {
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  GRADUS_FIELDS(kernel, stride, padding, dilation)
};

/// One axis of a resampling: y[p] = sum of weight[k] x[source[k]] over k in [begin[p], begin[p + 1]). The arrays are in
/// host memory and valid for the duration of the call; begin has size_out + 1 entries. Average pooling, nearest and
/// bilinear interpolation, and the gradient of each (the transposed stencil) are all stencils.
struct Stencil {
  int64_t size_in = 0, size_out = 0;
  std::span<const int64_t> begin, source;
  std::span<const double> weight;
  /// The entries of output p are [first(p), first(p + 1)).
  size_t first(int64_t p) const { return static_cast<size_t>(begin[static_cast<size_t>(p)]); }
};

/// True if every y[p] is the sum of all x times one constant: a mean over the axis, or its gradient.
inline bool is_uniform(const Stencil& stencil) {
  const auto count = static_cast<int64_t>(stencil.weight.size());
  bool uniform = count > 0 && count == stencil.size_in * stencil.size_out;
  for (size_t k = 0; uniform && k < stencil.weight.size(); ++k)
    uniform = stencil.source[k] == static_cast<int64_t>(k) % stencil.size_in && stencil.weight[k] == stencil.weight[0];
  return uniform;
}

enum class Reduction : uint8_t { none, mean, sum };
/// What Backend::softmax() computes; `or_zeros` gives 0 where softmax gives NaN because all elements are -infinity.
enum class SoftmaxKind : uint8_t { softmax, log_softmax, or_zeros };

/// The state of one random draw: element i of the result is a function of (seed, offset + *device_offset, i) alone;
/// core/runtime/random.h defines the streams. `device_offset` (device memory, may be null) gives each replay of a
/// captured graph new numbers.
struct RandomState {
  uint64_t seed = 0, offset = 0;
  const uint64_t* device_offset = nullptr;
  GRADUS_FIELDS(seed, offset, device_offset)
};

/// Indices into a block of doubles that optimizer kernels read from device memory, so that a captured step can be
/// replayed with new values: the number of steps done, the learning rate, the factor that multiplies the gradients, a
/// flag that is not 0 if the gradients contain an inf or NaN (the step then changes nothing), and the product of
/// NAdam's momenta so far.
struct StepBlock {
  static constexpr int step = 0, learning_rate = 1, gradient_scale = 2, found_inf = 3, momentum_product = 4, size = 5;
};

/// Indices into a block of doubles in device memory that loss scaling uses: the factor that multiplies the loss, the
/// number of steps since that factor changed, and a flag that is not 0 if the gradients contain an inf or NaN.
struct ScaleBlock {
  static constexpr int scale = 0, growth_tracker = 1, found_inf = 2, size = 3;
};
/// Options of the loss scale (torch.amp.GradScaler). After a step in which gradients overflow, the scale is multiplied
/// by backoff_factor; after growth_interval steps without overflow in a row, it is multiplied by growth_factor
/// (Micikevicius et al., "Mixed precision training", 2018).
struct ScaleRule {
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  GRADUS_FIELDS(growth_factor, backoff_factor, growth_interval)
};
/// The largest float32. The scale may not exceed it, because it multiplies losses in float32.
inline constexpr double kLargestScale = 0x1.fffffep+127;

/// Updates a ScaleBlock for the next training step. `step` is the distance between the entries of the block, in
/// elements.
GRADUS_HOST_DEVICE inline void move_scale(double* block, int64_t step, const ScaleRule& rule) {
  double& scale = block[ScaleBlock::scale * step];
  double& tracker = block[ScaleBlock::growth_tracker * step];
  double& found_inf = block[ScaleBlock::found_inf * step];
  if (found_inf != 0) {
    scale *= rule.backoff_factor;
    tracker = 0;
  } else if (++tracker == static_cast<double>(rule.growth_interval)) {
    if (scale * rule.growth_factor <= kLargestScale) scale *= rule.growth_factor;
    tracker = 0;
  }
  found_inf = 0;
}

/// The formula applied to each element in an optimizer step: core/formulas/optimizer_rules.h.
struct OptimizerRule;
inline constexpr int kMaxOptimizerStates = 3;
/// One parameter of an optimizer step. All views have one shape and one dtype, except that a float32 parameter may have
/// a gradient of a half type. States that the rule does not use are absent. `half`, if present, has a half type and
/// receives a copy of the updated parameter. If the step changes nothing because an inf or NaN was found, the backend
/// may leave `half` unwritten.
struct ParameterViews {
  MutableView parameter;
  View gradient;
  MutableView states[kMaxOptimizerStates];
  MutableView half = {};
  GRADUS_FIELDS(parameter, gradient, states, half)
};

// ---- Argument structs of operations with many operands ----
// A View is read. A MutableView is written; its previous contents are read only where a comment says so. Views with an
// initialiser may be absent.

/// y = conv2d(x, w) + bias, then ReLU if `relu`.
struct Conv2dArgs {
  View x;          ///< (N, C, H, W)
  View w;          ///< (K, C / groups, R, S)
  View bias = {};  ///< (K)
  bool relu = false;
  Conv2dGeometry geometry = {};
  MutableView y;  ///< (N, K, P, Q)
  GRADUS_FIELDS(x, w, bias, relu, geometry, y)
};

/// Gradients of Conv2dArgs; absent ones are not computed.
struct Conv2dBackwardArgs {
  View dy, x, w;
  View y = {};  ///< the forward result if ReLU was applied: dy is then masked by y > 0
  Conv2dGeometry geometry = {};
  MutableView dx = {}, dw = {}, dbias = {};
  MutableView masked = {};  ///< optional scratch for dy masked by y > 0, with dy's layout; may be the view dy itself
  GRADUS_FIELDS(dy, x, w, y, geometry, dx, dw, dbias, masked)
};

/// Running statistics of batch and instance norm: running = (1 - momentum) running + momentum batch, for means and
/// variances (C). The batch's variance is first multiplied by `correction`. `batches` (int64 scalar) counts the
/// batches.
struct RunningStatistics {
  MutableView mean = {}, variance = {}, batches = {};
  double momentum = 0, correction = 1;
  explicit operator bool() const { return mean || variance || batches; }
  GRADUS_FIELDS(mean, variance, batches, momentum, correction)
};

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, the formula shared by batch, layer, group and instance norm.
/// Mean and variance (biased: sum of squared deviations over the count) are accumulated in float32 or wider and stored
/// in the dtype of their views.
struct NormalizeArgs {
  View x;             ///< any rank
  uint32_t axes = 0;  ///< axes that the mean and variance are taken over
  /// Of x's shape, with stride 0 along the axes where they are broadcast; of x's dtype, or float32 if x has a half
  /// type.
  View weight = {}, bias = {};
  View residual = {};  ///< x's shape and dtype; only with `relu`
  bool relu = false;   ///< y = relu(formula above + residual)
  double eps = 0;
  bool fixed_statistics = false;  ///< mean and variance are inputs instead of being computed from x
  MutableView y;
  MutableView mean, variance;      ///< x's rank, with size 1 at `axes`
  RunningStatistics running = {};  ///< updated with the statistics of x (N, C, …) unless these are fixed
  GRADUS_FIELDS(x, axes, weight, bias, residual, relu, eps, fixed_statistics, y, mean, variance, running)
};

/// Gradients of NormalizeArgs; absent ones are not computed.
/// With g = dy * weight, s = 1 / sqrt(variance + eps) and h = (x - mean) s:
///   dx = s (g - avg(g) - h avg(g h)), averages over `axes` (dx = s g with fixed statistics).
struct NormalizeBackwardArgs {
  View dy, x, mean, variance, weight = {};
  View y = {};         ///< the forward result if ReLU was applied: dy is then masked by y > 0
  View addend = {};    ///< the gradient of y is dy + addend, rounded to their dtype; only with y
  View bias = {};      ///< the bias of the forward call; only with `alone`
  bool alone = false;  ///< y is the ReLU without a residual, so the sign of y can be computed again from x
  uint32_t axes = 0;
  double eps = 0;
  bool fixed_statistics = false;
  MutableView dx = {};
  MutableView dweight = {}, dbias = {};  ///< sums of dy h and of dy, with size 1 at the axes where weight was broadcast
  MutableView dresidual = {};            ///< dy where y > 0, else 0; only with y
  GRADUS_FIELDS(dy, x, mean, variance, weight, y, addend, bias, alone, axes, eps, fixed_statistics, dx, dweight, dbias,
                dresidual)
};

/// Cross-entropy of logits: losses[i] = -log_probabilities[i, target[i]], or 0 if target[i] == ignore_index.
struct CrossEntropyArgs {
  View x;       ///< (N, C)
  View target;  ///< (N), int64
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
  MutableView log_probabilities;  ///< (N, C), log_softmax(x)
  MutableView loss;               ///< losses (N), or their sum, or their mean over the rows not ignored (scalar)
  MutableView weight_sum;         ///< number of rows not ignored, a scalar of x's dtype
  GRADUS_FIELDS(x, target, ignore_index, reduction, log_probabilities, loss, weight_sum)
};

/// dx = (exp(log_probabilities) - onehot(target)) * dloss, divided by weight_sum for Reduction::mean; 0 in ignored
/// rows.
struct CrossEntropyBackwardArgs {
  View dloss, log_probabilities, target;
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
  View weight_sum;
  MutableView dx;  ///< (N, C)
  GRADUS_FIELDS(dloss, log_probabilities, target, ignore_index, reduction, weight_sum, dx)
};

/// All L > 0 steps of a recurrent layer in one direction. A step adds the product of the state and w_hh to the first
/// columns of its gates, runs Backend::recurrent_cell and, if there is a w_hr, projects the output by a second product.
struct RecurrentArgs {
  RecurrentCell cell = RecurrentCell::lstm;
  MutableView gates;  ///< (L, N, G H), G as in recurrent_cell; W x + b on entry, on return what recurrent_cell writes
  View w_hh;          ///< (gates_of(cell) H, P); P is H unless there is w_hr
  View w_hr = {};     ///< LSTM: (P, H), or absent
  View h0, c0;        ///< (N, P) and (N, H); of a cell other than the LSTM, c0 is h0
  bool reverse = false;  ///< steps run from the last to the first
  MutableView cells;     ///< c after each step, (L, N, H); of a cell other than the LSTM, this is `hidden`
  MutableView outputs;   ///< h before the projection, (L, N, H); without w_hr, this is `hidden`
  MutableView hidden;    ///< h after each step, (L, N, P)
  GRADUS_FIELDS(cell, gates, w_hh, w_hr, h0, c0, reverse, cells, outputs, hidden)
};

/// Gradient of RecurrentArgs.
struct RecurrentBackwardArgs {
  RecurrentCell cell = RecurrentCell::lstm;
  View dhidden = {};  ///< gradient of hidden; 0 if absent
  View gates, w_hh;
  View w_hr = {};
  View c0, cells;
  bool reverse = false;
  MutableView dc;      ///< (N, H); on entry the gradient of the last cell state, 0 unless the cell is an LSTM; on
                       ///< return that of an LSTM's c0
  MutableView dgates;  ///< (L, N, G H), gradient of the sums
  MutableView dprojected = {};  ///< (L, N, P), present with w_hr: dhidden plus the parts that come from later steps
  MutableView dh0;              ///< (N, P)
  GRADUS_FIELDS(cell, dhidden, gates, w_hh, w_hr, c0, cells, reverse, dc, dgates, dprojected, dh0)
};

/// Options of attention. Scores are scale q·k. With `causal`, query i attends to keys 0 … i. Weights are dropped with
/// probability `dropout`; the weight at (n, h, l, s) uses the random number of its row-major position in (N, H, L, S).
struct AttentionRule {
  double scale = 1, dropout = 0;
  bool causal = false;
  RandomState random = {};
  GRADUS_FIELDS(scale, dropout, causal, random)
};

/// weights = softmax(scale q kᵀ + mask) and y = dropout(weights) v (Vaswani et al. 2017). The weights are 0 in rows
/// without keys.
struct AttentionArgs {
  View q, k, v;    ///< (N, H, L, E), (N, H, S, E), (N, H, S, V)
  View mask = {};  ///< shape of weights; added to the scores or, if boolean, false excludes the pair
  AttentionRule rule = {};
  MutableView weights;    ///< (N, H, L, S)
  MutableView kept = {};  ///< boolean, shape of weights: true where dropout kept the weight; required for dropout
  MutableView y;          ///< (N, H, L, V)
  GRADUS_FIELDS(q, k, v, mask, rule, weights, kept, y)
};

/// Gradient of AttentionArgs, from its inputs and outputs.
struct AttentionBackwardArgs {
  View dy, q, k, v, weights, kept = {}, y;
  AttentionRule rule = {};
  MutableView dq, dk, dv;
  GRADUS_FIELDS(dy, q, k, v, weights, kept, y, rule, dq, dk, dv)
};

}  // namespace gradus
