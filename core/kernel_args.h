// What the operations of core/backend.h take besides single views: options, and structs of operands.
#pragma once

#include <span>

#include <gradus/core/array/view.h>
#include <gradus/core/element_ops.h>
#include <gradus/core/fields.h>

namespace gradus {

/// Reductions. sum of an empty set is 0, prod 1, mean NaN; max and min propagate NaN and are never asked for empty
/// sets.
enum class ReduceOp : uint8_t { sum, mean, max, min, all, any, prod };
/// Their names, in order.
inline constexpr const char* kReduceNames[] = {"sum", "mean", "max", "min", "all", "any", "prod"};
/// "sum"
constexpr const char* name(ReduceOp op) { return kReduceNames[static_cast<int>(op)]; }
enum class ArgReduceOp : uint8_t { argmax, argmin };
/// Running totals along an axis.
enum class ScanOp : uint8_t { sum, prod };

/// Convolution geometry, each pair as (height, width). Output size: (H + 2 padding - dilation (R - 1) - 1) / stride +
/// 1.
struct Conv2dGeometry {
  int64_t stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  int64_t groups = 1;
  GRADUS_FIELDS(stride, padding, dilation, groups)
};
/// Pooling geometry. Windows outside the image count as -infinity.
struct Pool2dGeometry {
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  GRADUS_FIELDS(kernel, stride, padding, dilation)
};

/// One axis of a resampling: y[p] = sum over k in [begin[p], begin[p + 1]) of weight[k] x[source[k]]. The arrays lie in
/// host memory and live for the call; begin has size_out + 1 entries. Pooling by averages, nearest and bilinear
/// interpolation, and the gradient of each (the transposed stencil) are all stencils.
struct Stencil {
  int64_t size_in = 0, size_out = 0;
  std::span<const int64_t> begin, source;
  std::span<const double> weight;
};

enum class Reduction : uint8_t { none, mean, sum };

/// A draw from the generator: element i of the result is a function of (seed, offset + *device_offset, i) alone; see
/// core/runtime/random.h for the streams. `device_offset` (device memory, may be null) lets a replayed graph draw anew.
struct RandomState {
  uint64_t seed = 0, offset = 0;
  const uint64_t* device_offset = nullptr;
  GRADUS_FIELDS(seed, offset, device_offset)
};

/// Scalars that optimizer kernels read from device memory (doubles), so that a captured step replays with new values:
/// number of steps done, learning rate, what gradients are multiplied with, whether an inf or NaN was found in them
/// (not 0: the step changes nothing), and the product of NAdam's momenta so far.
struct StepBlock {
  static constexpr int step = 0, learning_rate = 1, gradient_scale = 2, found_inf = 3, momentum_product = 4, size = 5;
};

/// Scalars of loss scaling, doubles in device memory as well: what the loss is multiplied with, the number of steps
/// since it changed, and whether an inf or NaN was found in the gradients (not 0).
struct ScaleBlock {
  static constexpr int scale = 0, growth_tracker = 1, found_inf = 2, size = 3;
};
/// How the scale moves: core/formulas/loss_scale.h.
struct ScaleRule {
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  GRADUS_FIELDS(growth_factor, backoff_factor, growth_interval)
};

/// What happens to each element in an optimizer step: core/formulas/optimizer_rules.h.
struct OptimizerRule;
inline constexpr int kMaxOptimizerStates = 3;
/// One parameter of an optimizer step; all share a shape, and those that are there a dtype, except that a float32
/// parameter may have a gradient of a half type. States that the rule does not use are absent. `half`, of a half type,
/// gets the parameter as it is after the step; where nothing changes (an inf or NaN was found) it may be left as it is.
struct ParameterViews {
  MutableView parameter;
  View gradient;
  MutableView states[kMaxOptimizerStates];
  MutableView half = {};
  GRADUS_FIELDS(parameter, gradient, states, half)
};

// ---- Operands of calls that have many ----
// Views are read; mutable views are written, and read before that only where a comment says so. Those with an
// initialiser may be absent.

/// y = conv2d(x, w) + bias, then ReLU if asked.
struct Conv2dArgs {
  View x;          ///< (N, C, H, W)
  View w;          ///< (K, C / groups, R, S)
  View bias = {};  ///< (K)
  bool relu = false;
  Conv2dGeometry geometry = {};
  MutableView y;  ///< (N, K, P, Q)
  GRADUS_FIELDS(x, w, bias, relu, geometry, y)
};

/// Gradients of that; absent ones are not wanted.
struct Conv2dBackwardArgs {
  View dy, x, w;
  View y = {};  ///< the result where ReLU was applied: dy counts only where y > 0
  Conv2dGeometry geometry = {};
  MutableView dx = {}, dw = {}, dbias = {};
  MutableView masked = {};  ///< memory for a dy so masked, to be used or not; of dy's layout, may be the same view
  GRADUS_FIELDS(dy, x, w, y, geometry, dx, dw, dbias, masked)
};

/// What batch and instance norm keep of the batches that they have seen: running = (1 - momentum) running + momentum
/// batch, for means and for variances (C,), the batch's variance being first multiplied by `correction`, and the number
/// of batches (int64 scalar).
struct RunningStatistics {
  MutableView mean = {}, variance = {}, batches = {};
  double momentum = 0, correction = 1;
  explicit operator bool() const { return mean || variance || batches; }
  GRADUS_FIELDS(mean, variance, batches, momentum, correction)
};

/// y = (x - mean) / sqrt(variance + eps) * weight + bias, the one formula of batch, layer, group and instance norm.
/// Mean and variance (biased: sum of squared deviations over the count) are accumulated in float or wider and stored in
/// their views' dtype.
struct NormalizeArgs {
  View x;             ///< any rank
  uint32_t axes = 0;  ///< that mean and variance are over
  /// Broadcast to x's shape by strides; of x's dtype, or float32 where that is a half type.
  View weight = {}, bias = {};
  View residual = {};  ///< of x's shape and dtype; only with `relu`
  bool relu = false;   ///< y = relu(that formula + residual)
  double eps = 0;
  bool fixed_statistics = false;  ///< mean and variance are given, else of x
  MutableView y;
  MutableView mean, variance;      ///< of x's rank with size 1 at `axes`; inputs where they are given
  RunningStatistics running = {};  ///< moves towards those of x (N, C, …), (N, C, 1, …) or (1, C, 1, …); unless fixed
  GRADUS_FIELDS(x, axes, weight, bias, residual, relu, eps, fixed_statistics, y, mean, variance, running)
};

/// Gradients of that; absent ones are not wanted. With g = dy * weight, s = 1 / sqrt(variance + eps) and h = (x - mean)
/// s: dx = s (g - avg(g) - h avg(g h)), averages over `axes` (dx = s g with fixed statistics).
struct NormalizeBackwardArgs {
  View dy, x, mean, variance, weight = {};
  View y = {};         ///< the result where ReLU was applied: dy counts only where y > 0
  View addend = {};    ///< the gradient is dy + addend, rounded to their type; only with y
  View bias = {};      ///< forward's; only with `alone`
  bool alone = false;  ///< y is the ReLU of the formula, nothing was added: x tells where y > 0
  uint32_t axes = 0;
  double eps = 0;
  bool fixed_statistics = false;
  MutableView dx = {};
  MutableView dweight = {}, dbias = {};  ///< sums of dy h and dy, with size 1 where weight was broadcast
  MutableView dresidual = {};            ///< dy where y > 0, else 0; only with y
  GRADUS_FIELDS(dy, x, mean, variance, weight, y, addend, bias, alone, axes, eps, fixed_statistics, dx, dweight, dbias,
                dresidual)
};

/// Cross-entropy of logits: losses[i] = -log_probabilities[i, target[i]], 0 for rows with target == ignore_index.
struct CrossEntropyArgs {
  View x;       ///< (N, C)
  View target;  ///< (N), int64
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
  MutableView log_probabilities;  ///< (N, C), log_softmax(x)
  MutableView loss;               ///< losses (N), or their sum, or their mean over rows not ignored (scalar)
  MutableView weight_sum;         ///< rows not ignored, a scalar of x's dtype
  GRADUS_FIELDS(x, target, ignore_index, reduction, log_probabilities, loss, weight_sum)
};

/// dx = (exp(log_probabilities) - onehot(target)) * dloss [/ weight_sum for the mean]; 0 in ignored rows.
struct CrossEntropyBackwardArgs {
  View dloss, log_probabilities, target;
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
  View weight_sum;
  MutableView dx;  ///< (N, C)
  GRADUS_FIELDS(dloss, log_probabilities, target, ignore_index, reduction, weight_sum, dx)
};

/// All L > 0 steps of an LSTM (Hochreiter and Schmidhuber 1997), each a product and Backend::lstm_cell.
struct LstmArgs {
  MutableView gates;          ///< (L, N, 4 H), holds W x + b and is left as lstm_cell leaves it
  View w_hh, h0, c0;          ///< (4 H, H), (N, H), (N, H)
  bool reverse = false;       ///< from the last step to the first
  MutableView cells, hidden;  ///< the states after each step, (L, N, H)
  GRADUS_FIELDS(gates, w_hh, h0, c0, reverse, cells, hidden)
};

/// Its gradient.
struct LstmBackwardArgs {
  View dhidden = {};  ///< of hidden; absent: 0
  View gates, w_hh, c0, cells;
  bool reverse = false;
  MutableView dc;      ///< (N, H), holds the last cell's gradient and is left with c0's
  MutableView dgates;  ///< (L, N, 4 H), of the sums
  MutableView dh0;     ///< (N, H)
  GRADUS_FIELDS(dhidden, gates, w_hh, c0, cells, reverse, dc, dgates, dh0)
};

/// What attention does besides its products: scores are scale q·k; with `causal`, query i sees keys 0 … i; weights are
/// dropped with probability `dropout`, drawn from `random` by their place in (N, H, L, S).
struct AttentionRule {
  double scale = 1, dropout = 0;
  bool causal = false;
  RandomState random;
  GRADUS_FIELDS(scale, dropout, causal, random)
};

/// weights = softmax(scale q kᵀ + mask) and y = dropout(weights) v (Vaswani et al. 2017).
struct AttentionArgs {
  View q, k, v;    ///< (N, H, L, E), (N, H, S, E), (N, H, S, V)
  View mask = {};  ///< of weights' shape; added, or boolean: where it is false there is no attention
  AttentionRule rule = {};
  MutableView weights;    ///< (N, H, L, S)
  MutableView kept = {};  ///< boolean, of weights' shape: which ones dropout left; there if it has a probability
  MutableView y;          ///< (N, H, L, V)
  GRADUS_FIELDS(q, k, v, mask, rule, weights, kept, y)
};

/// Its gradient, from what attention was given and gave.
struct AttentionBackwardArgs {
  View dy, q, k, v, weights, kept = {}, y;
  AttentionRule rule = {};
  MutableView dq, dk, dv;
  GRADUS_FIELDS(dy, q, k, v, weights, kept, y, rule, dq, dk, dv)
};

}  // namespace gradus
