// THE seam: every kernel that the framework needs, as one interface.
//
// Rules. Arguments are non-owning views. Outputs are preallocated with their final shape: a backend never allocates a
// result, infers a shape or knows autograd. Views may have any strides (0 where broadcast); outputs never overlap
// themselves, and an output may be the same view as an input only where a method says so. Every kernel accepts
// zero-size views. All views of a call live on one device of the backend's type and, unless a method says otherwise,
// share a dtype. Shapes are checked by core/ops before the call; backends do not check again.
//
// Two tiers. Primitives are pure virtual. Composites have default bodies made of primitives (core/composites), which
// a backend overrides to fuse; tests call the defaults and compare them with the overrides.
#pragma once

#include <span>
#include <string_view>

#include <gradus/core/array.h>
#include <gradus/core/element_ops.h>

namespace gradus {

/// How elements lie in memory.
struct StridedLayout {
  DType dtype = DType::f32;
  Device device;
  Shape shape;
  Strides strides;

  StridedLayout() = default;
  explicit StridedLayout(const Array& x)
      : dtype(x.dtype()), device(x.device()), shape(x.shape()), strides(x.strides()) {}
  int ndim() const { return shape.size(); }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t size : shape) n *= size;
    return n;
  }
};

/// Read-only view of an array's elements.
struct View : StridedLayout {
  const void* data = nullptr;

  View() = default;
  View(const Array& x) : StridedLayout(x), data(x.data()) {}
  View(const StridedLayout& layout, const void* data) : StridedLayout(layout), data(data) {}
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

/// View of an array that a kernel writes. Converts to a read-only view.
struct MutableView : StridedLayout {
  void* data = nullptr;

  MutableView() = default;
  MutableView(const Array& x) : StridedLayout(x), data(x.data()) {}
  operator View() const { return View(*this, data); }  // NOLINT(google-explicit-constructor)
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// Elements [start, start + length) of an axis.
template <class AnyView>
AnyView narrow(AnyView view, int axis, int64_t start, int64_t length) {
  using Byte = std::conditional_t<std::is_same_v<AnyView, View>, const char, char>;
  const int64_t bytes = start * view.strides[axis] * static_cast<int64_t>(size_of(view.dtype));
  if (view.data) view.data = static_cast<Byte*>(view.data) + bytes;
  view.shape[axis] = length;
  return view;
}

/// Reductions. sum of an empty set is 0, prod 1, mean NaN; max and min propagate NaN and are never asked for empty
/// sets.
enum class ReduceOp : uint8_t { sum, mean, max, min, all, any, prod };
enum class ArgReduceOp : uint8_t { argmax, argmin };
/// Running totals along an axis.
enum class ScanOp : uint8_t { sum, prod };

/// Convolution geometry, each pair as (height, width). Output size: (H + 2 padding - dilation (R - 1) - 1) / stride +
/// 1.
struct Conv2dGeometry {
  int64_t stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  int64_t groups = 1;
};
/// Pooling geometry. Windows outside the image count as -infinity.
struct Pool2dGeometry {
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
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
/// core/random.h for the streams. `device_offset` (device memory, may be null) lets a replayed graph draw anew.
struct RandomState {
  uint64_t seed = 0, offset = 0;
  const uint64_t* device_offset = nullptr;
};

/// What attention does besides its products: scores are scale q·k; with `causal`, query i sees keys 0 … i; weights are
/// dropped with probability `dropout`, drawn from `random` by their place in (N, H, L, S).
struct AttentionRule {
  double scale = 1, dropout = 0;
  bool causal = false;
  RandomState random;
};

/// What batch and instance norm keep of the batches that they have seen: running = (1 - momentum) running + momentum
/// batch, for means and for variances (C,), the batch's variance being first multiplied by `correction`, and the number
/// of batches (int64 scalar). What has null data is not kept.
struct RunningStatistics {
  MutableView mean, variance, batches;
  double momentum = 0, correction = 1;
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
/// How the scale moves: core/loss_scale.h.
struct ScaleRule {
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

/// What happens to each element in an optimizer step: core/optimizer_rules.h.
struct OptimizerRule;
inline constexpr int kMaxOptimizerStates = 3;
/// One parameter of an optimizer step; all share a shape, and those that are not null a dtype. States that the rule
/// does not use have null data.
struct ParameterViews {
  MutableView parameter;
  View gradient;
  MutableView states[kMaxOptimizerStates];
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual DeviceType device_type() const = 0;
  /// The vendor's libraries that the kernels call, with their versions, for reports: "CUDA 13.0, …". Empty without any.
  virtual std::string libraries() const { return ""; }

  // ---- Primitives: memory ----
  /// y[i] = value
  virtual void fill(const MutableView& y, const Scalar& value) = 0;
  /// y[i] = x[i] with conversion between any two dtypes (float to integer truncates, to boolean tests != 0).
  virtual void copy(const View& x, const MutableView& y) = 0;
  /// y[i] = start + i * step for a 1-D y
  virtual void arange(const MutableView& y, const Scalar& start, const Scalar& step) = 0;

  // ---- Primitives: element-wise. y may be the same view as an input. ----
  /// y = op(x); predicates write booleans.
  virtual void unary(UnaryOp op, const View& x, const MutableView& y, const UnaryArgs& args) = 0;
  /// dx = dy * op'(saved), where saved is x or y as saves_output(op) in core/scalar_ops.h tells.
  virtual void unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                              const UnaryArgs& args) = 0;
  /// y = op(a, b); a and b are already broadcast to y's shape. Predicates write booleans.
  virtual void binary(BinaryOp op, const View& a, const View& b, const MutableView& y) = 0;
  /// y = op(a, scalar), or op(scalar, a) when `scalar_first`; the scalar is converted to a's dtype.
  virtual void binary_scalar(BinaryOp op, const View& a, const Scalar& scalar, bool scalar_first,
                             const MutableView& y) = 0;
  /// y = condition ? a : b; condition is boolean, all broadcast to y's shape.
  virtual void where(const View& condition, const View& a, const View& b, const MutableView& y) = 0;

  // ---- Primitives: reductions ----
  /// y = reduction of x over the axes in `axes` (bit i is axis i); y keeps x's rank with size 1 at those axes. sum,
  /// mean and prod accumulate half types in float or wider and integers in int64; x and y may differ in dtype (sum of
  /// booleans into int64). all and any write booleans.
  virtual void reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) = 0;
  /// Value and index (int64) of the extreme element along `axis`; of equals the first, NaN counts as extreme.
  /// values and indices keep the rank with size 1; values may have null data.
  virtual void arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                          const MutableView& indices) = 0;

  // ---- Primitives: linear algebra, convolution, pooling ----
  /// y = a b, or y += a b: a (…, M, K), b (…, K, N), y (…, M, N), same leading sizes (strides 0 where broadcast).
  virtual void matmul(const View& a, const View& b, const MutableView& y, bool accumulate) = 0;
  /// y (N, K, P, Q) = x (N, C, H, W) * w (K, C / groups, R, S): cross-correlation. Layouts by strides.
  virtual void conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) = 0;
  /// dx of conv2d from dy and w.
  virtual void conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                    const Conv2dGeometry& geometry) = 0;
  /// dw of conv2d from dy and x.
  virtual void conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                      const Conv2dGeometry& geometry) = 0;
  /// y = maximum of each window, indices (int32) = h * W + w of it in the input plane; first of equals, NaN wins. A
  /// window that lies outside the image has -infinity and index -1, which the backward kernel skips.
  virtual void max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                          const Pool2dGeometry& geometry) = 0;
  /// dx = 0, then dx[indices] += dy; summed in a fixed order where windows overlap.
  virtual void max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                                   const Pool2dGeometry& geometry) = 0;

  // ---- Primitives: gather by class index (losses). target is int64 (N). Rows with target == ignore_index count not.
  // ----
  /// y[i] = x[i, target[i]] for x (N, C); 0 for ignored rows. A target outside [0, C) is an IndexError (cpu) or NaN
  /// (cuda, where the host does not wait to look).
  virtual void pick(const View& x, const View& target, int64_t ignore_index, const MutableView& y) = 0;
  /// dx = 0, then dx[i, target[i]] = dy[i]; ignored rows stay 0.
  virtual void pick_backward(const View& dy, const View& target, int64_t ignore_index, const MutableView& dx) = 0;

  // ---- Primitives: scans, sorting, indexing. A backend that has no kernel yet says so with a DeviceError. ----
  /// y[k] = op over x[0 … k] along `axis` (over x[k … n - 1] when `reverse`), accumulated as reduce does; x and y may
  /// differ in dtype.
  virtual void scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y);
  /// values = x in order along `axis`, indices (int64) = where each came from. Stable; NaN is larger than all numbers.
  /// Both have x's shape; values may have null data.
  virtual void sort(const View& x, int axis, bool descending, const MutableView& values, const MutableView& indices);
  /// y[i] = x[i with index[i] at `axis`], for y of index's shape; x's other sizes are at least y's. index is int64
  /// (stride 0 where broadcast); negative or too large: IndexError (cpu), 0 (cuda, where the host does not wait to
  /// look).
  virtual void gather(const View& x, int axis, const View& index, const MutableView& y);
  /// y[i with index[i] at `axis`] = x[i], or += x[i], for x of index's shape, in the logical order of i, whatever the
  /// number of threads (of equal places the last wins). Indices as in gather; bad ones write nothing.
  virtual void scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y);
  /// positions (int64, (count, x.ndim())) = indices of the true elements of a boolean x in row-major order; count is
  /// their number.
  virtual void nonzero(const View& x, const MutableView& positions);

  // ---- Primitives: random numbers, bit-identical on all backends (core/random.h) ----
  virtual void uniform(const MutableView& y, const RandomState& state, double low, double high) = 0;
  virtual void normal(const MutableView& y, const RandomState& state, double mean, double deviation) = 0;
  /// y = 1 with probability p, else 0
  virtual void bernoulli(const MutableView& y, const RandomState& state, double p) = 0;
  /// integers in [low, high)
  virtual void randint(const MutableView& y, const RandomState& state, int64_t low, int64_t high) = 0;
  /// y (int64, 1-D) = a permutation of 0 … n - 1
  virtual void randperm(const MutableView& y, const RandomState& state) = 0;

  // ---- Composites ----
  /// y = x wᵀ + bias: x (M, K), w (N, K), bias (N) or null, y (M, N).
  virtual void linear(const View& x, const View& w, const View* bias, const MutableView& y);
  /// y = exp(x - max) / sum(exp(x - max)) along `axis`, or its logarithm.
  virtual void softmax(const View& x, int axis, bool log, const MutableView& y);
  /// softmax: dx = y (dy - sum(dy y)); log_softmax: dx = dy - exp(y) sum(dy).
  virtual void softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx);
  /// Cross-entropy of logits x (N, C): log_probabilities (N, C) = log_softmax(x), losses[i] = -log_probabilities[i,
  /// target[i]] (0 for ignored rows), and loss (scalar) their sum, or their mean over rows not ignored; both written
  /// per `reduction` (none: only losses; else only loss is defined). weight_sum (scalar, x's dtype) = rows not ignored.
  virtual void cross_entropy(const View& x, const View& target, int64_t ignore_index, Reduction reduction,
                             const MutableView& log_probabilities, const MutableView& loss,
                             const MutableView& weight_sum);
  /// dx = (exp(log_probabilities) - onehot(target)) * dloss [/ weight_sum for mean]; 0 in ignored rows.
  virtual void cross_entropy_backward(const View& dloss, const View& log_probabilities, const View& target,
                                      int64_t ignore_index, Reduction reduction, const View& weight_sum,
                                      const MutableView& dx);
  /// y = conv2d(x, w) + bias (K, or null), then relu if asked.
  virtual void conv2d_bias_relu(const View& x, const View& w, const View* bias, bool relu, const MutableView& y,
                                const Conv2dGeometry& geometry);
  /// Gradients of conv2d_bias_relu; null outputs are not wanted. With relu, dy counts only where y > 0: `masked`, where
  /// there is one, is memory for such a dy, to be used or not. It has dy's layout and may be the same view.
  virtual void conv2d_bias_relu_backward(const View& dy, const View& x, const View& w, const View* y_if_relu,
                                         const MutableView* dx, const MutableView* dw, const MutableView* dbias,
                                         const Conv2dGeometry& geometry, const MutableView* masked = nullptr);
  /// mask (boolean) = keep with probability 1 - p;  y = x * mask / (1 - p)
  virtual void dropout(const View& x, double p, const RandomState& state, const MutableView& mask,
                       const MutableView& y);
  /// dx = dy * mask / (1 - p)
  virtual void dropout_backward(const View& dy, const View& mask, double p, const MutableView& dx);
  /// y[k] = b[k] + a[k] y[k - 1] along `axis` (b[k] + a[k] y[k + 1] when `reverse`), nothing being added at the start;
  /// accumulated as reduce does. With it the gradient of a running product needs no division.
  virtual void linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y);
  /// y (N, C, P, Q) = x (N, C, H, W) with `rows` (H to P) and `columns` (W to Q) applied to its last two axes.
  virtual void resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y);
  /// y = (x - mean) / sqrt(variance + eps) * weight + bias, the one formula of batch, layer, group and instance norm.
  /// mean and variance (biased, sum of squared deviations over the count) are over `axes` and keep x's rank with size 1
  /// there; both are outputs, or, with `fixed_statistics`, inputs. weight and bias are broadcast to x's shape by
  /// strides, or null; they are of x's dtype, or float32 with an x of a half type. Statistics are accumulated in float
  /// or wider and stored in their views' dtype.
  virtual void normalize(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                         bool fixed_statistics, const MutableView& y, const MutableView& mean,
                         const MutableView& variance);
  /// Moves the running statistics towards those of a batch (N, C), averaged over its rows.
  virtual void update_running_statistics(const View& batch_mean, const View& batch_variance,
                                         const RunningStatistics& running);
  /// Gradients of normalize. With g = dy * weight, s = 1 / sqrt(variance + eps) and h = (x - mean) s: dx = s (g -
  /// avg(g) - h avg(g h)), averages over `axes` (dx = s g with fixed statistics); dweight and dbias, of weight's shape
  /// with size 1 where it was broadcast, are the sums of dy h and dy there. Null outputs are not wanted.
  virtual void normalize_backward(const View& dy, const View& x, const View& mean, const View& variance, uint32_t axes,
                                  const View* weight, double eps, bool fixed_statistics, const MutableView* dx,
                                  const MutableView* dweight, const MutableView* dbias);
  /// y = relu(normalize(x) + residual): batch norm and the ReLU that follows it, and what a residual block adds between
  /// them. residual has x's shape and dtype or is null; all else is as for normalize.
  virtual void normalize_relu(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                              bool fixed_statistics, const View* residual, const MutableView& y,
                              const MutableView& mean, const MutableView& variance);
  /// Gradients of normalize_relu from its result y: those of normalize for dy where y > 0, and 0 elsewhere, in dy's
  /// place, and dresidual, which is just that. Null outputs are not wanted.
  virtual void normalize_relu_backward(const View& dy, const View& y, const View& x, const View& mean,
                                       const View& variance, uint32_t axes, const View* weight, double eps,
                                       bool fixed_statistics, const MutableView* dx, const MutableView* dweight,
                                       const MutableView* dbias, const MutableView* dresidual);
  /// normalize, or with `relu` normalize_relu, by the statistics of x (N, C, …) itself, and the running ones move
  /// towards them. mean and variance are (N, C, 1, …) or (1, C, 1, …).
  virtual void normalize_training(const View& x, uint32_t axes, const View* weight, const View* bias, double eps,
                                  bool relu, const View* residual, const MutableView& y, const MutableView& mean,
                                  const MutableView& variance, const RunningStatistics& running);
  /// What follows the products in a step of an LSTM (Hochreiter and Schmidhuber 1997). gates (N, 4 H) holds the sums
  /// that go into i, f, g and o and is left with i, f, o = sigmoid and g = tanh of them: c = f c_before + i g, h = o
  /// tanh(c). c_before, c and h are (N, H).
  virtual void lstm_cell(const MutableView& gates, const View& c_before, const MutableView& c, const MutableView& h);
  /// Its gradient: dgates (N, 4 H), of the sums, from gates as lstm_cell left them, from dh, and from dc, which holds
  /// c's gradient by way of the next step and is left with c_before's.
  virtual void lstm_cell_backward(const View& dh, const View& gates, const View& c_before, const View& c,
                                  const MutableView& dc, const MutableView& dgates);
  /// All steps of an LSTM: gates (L, N, 4 H) holds W x + b and is left as lstm_cell leaves it, w_hh is (4 H, H), h0 and
  /// c0 (N, H), cells and hidden, the states after each step, (L, N, H); L > 0. `reverse` goes from the last step to
  /// the first.
  virtual void lstm_sequence(const MutableView& gates, const View& w_hh, const View& h0, const View& c0, bool reverse,
                             const MutableView& cells, const MutableView& hidden);
  /// Its gradient: dgates (L, N, 4 H), of the sums, and dh0. dc holds the last cell's gradient and is left with c0's;
  /// without dhidden, hidden's is 0.
  virtual void lstm_sequence_backward(const View* dhidden, const View& gates, const View& w_hh, const View& c0,
                                      const View& cells, bool reverse, const MutableView& dc, const MutableView& dgates,
                                      const MutableView& dh0);
  /// weights = softmax(scale q kᵀ + mask) and y = dropout(weights) v (Vaswani et al. 2017): q (N, H, L, E), k (N, H, S,
  /// E), v (N, H, S, V), weights (N, H, L, S), y (N, H, L, V). mask, where there is one, has weights' shape and is
  /// added, or is boolean: where it is false there is no attention. kept (boolean, weights' shape): which ones dropout
  /// left; there if it has a probability.
  virtual void attention(const View& q, const View& k, const View& v, const View* mask, const AttentionRule& rule,
                         const MutableView& weights, const MutableView* kept, const MutableView& y);
  /// Its gradient, from what attention was given and gave.
  virtual void attention_backward(const View& dy, const View& q, const View& k, const View& v, const View& weights,
                                  const View* kept, const View& y, const AttentionRule& rule, const MutableView& dq,
                                  const MutableView& dk, const MutableView& dv);
  /// y (…, 1, H, W) = 0.2989 R + 0.5870 G + 0.1140 B of x (…, 3, H, W) (ITU-R BT.601; experiment E3).
  virtual void rgb_to_grayscale(const View& x, const MutableView& y);
  /// block.step += 1 unless found_inf (double arithmetic; StepBlock)
  virtual void advance_step(const MutableView& block);
  /// One step of the rule over all parameters. The block counts it already.
  virtual void optimizer_step(std::span<const ParameterViews> parameters, const View& block, const OptimizerRule& rule);
  /// found_inf (float64 scalar) = 1 if an element of a gradient is inf or NaN, else it stays; then every element times
  /// `factor` (float64 scalar, may have null data: the gradients stay).
  virtual void unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf);
  /// The scale of the next step (ScaleBlock), found_inf = 0.
  virtual void update_scale(const MutableView& block, const ScaleRule& rule);
  /// The first of sort's values and indices along `axis`, as many as the outputs have there; both are wanted.
  virtual void topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices);

 protected:
  /// dy where y > 0 and 0 elsewhere: in `masked` if that is given, else in memory that `scratch` then holds, in dy's
  /// order.
  View masked_by_relu(const View& dy, const View& y, const MutableView* masked, Array& scratch);
};

}  // namespace gradus
