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

#include <string_view>

#include <gradus/core/kernel_args.h>

namespace gradus {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual DeviceType device_type() const = 0;
  /// The vendor's libraries that the kernels call, with their versions, for reports: "CUDA 13.0, …". Empty without any.
  virtual std::string libraries() const { return ""; }
  /// A backend whose calls take the scratch memory that those of this one take, and need not compute anything under a
  /// SkipChunksGuard: recorders learn from it how much memory a call needs.
  virtual Backend& dry_run() { return *this; }

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
  /// dx = dy * op'(saved), where saved is x or y as saves_output(op) in core/unary_ops.h tells.
  virtual void unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                              const UnaryArgs& args) = 0;
  /// y = op(a, b); a and b are already broadcast to y's shape. Predicates write booleans.
  virtual void binary(BinaryOp op, const View& a, const View& b, const MutableView& y) = 0;
  /// y = op(a, scalar), or op(scalar, a) when `scalar_first`; the scalar is converted to a's dtype,
  /// to float32 where that is a half type. Predicates compare with it as an element of a's dtype.
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
  /// values and indices keep the rank with size 1; values may be absent.
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

  // ---- Primitives: scans, sorting, indexing ----
  /// y[k] = op over x[0 … k] along `axis` (over x[k … n - 1] when `reverse`), accumulated as reduce does; x and y may
  /// differ in dtype.
  virtual void scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) = 0;
  /// values = x in order along `axis`, indices (int64) = where each came from. Stable; NaN is larger than all numbers.
  /// Both have x's shape; values may be absent.
  virtual void sort(const View& x, int axis, bool descending, const MutableView& values,
                    const MutableView& indices) = 0;
  /// y[i] = x[i with index[i] at `axis`], for y of index's shape; x's other sizes are at least y's. index is int64
  /// (stride 0 where broadcast); negative or too large: IndexError (cpu), 0 (cuda, where the host does not wait to
  /// look).
  virtual void gather(const View& x, int axis, const View& index, const MutableView& y) = 0;
  /// y[i with index[i] at `axis`] = x[i], or += x[i], for x of index's shape, in the logical order of i, whatever the
  /// number of threads (of equal places the last wins). Indices as in gather; bad ones write nothing.
  virtual void scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) = 0;
  /// positions (int64, (count, x.ndim())) = indices of the true elements of a boolean x in row-major order; count is
  /// their number.
  virtual void nonzero(const View& x, const MutableView& positions) = 0;

  // ---- Primitives: random numbers, bit-identical on all backends (core/runtime/random.h) ----
  virtual void uniform(const MutableView& y, const RandomState& state, double low, double high) = 0;
  virtual void normal(const MutableView& y, const RandomState& state, double mean, double deviation) = 0;
  /// y = 1 with probability p, else 0
  virtual void bernoulli(const MutableView& y, const RandomState& state, double p) = 0;
  /// integers in [low, high)
  virtual void randint(const MutableView& y, const RandomState& state, int64_t low, int64_t high) = 0;
  /// y (int64, 1-D) = a permutation of 0 … n - 1
  virtual void randperm(const MutableView& y, const RandomState& state) = 0;

  // ---- Composites. core/kernel_args.h says what those with an argument struct compute. ----
  /// y = x wᵀ + bias: x (M, K), w (N, K), bias (N) or absent, y (M, N).
  virtual void linear(const View& x, const View& w, const View& bias, const MutableView& y);
  /// y = exp(x - max) / sum(exp(x - max)) along `axis`, or its logarithm.
  virtual void softmax(const View& x, int axis, bool log, const MutableView& y);
  /// softmax: dx = y (dy - sum(dy y)); log_softmax: dx = dy - exp(y) sum(dy).
  virtual void softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx);
  virtual void cross_entropy(const CrossEntropyArgs& args);
  virtual void cross_entropy_backward(const CrossEntropyBackwardArgs& args);
  virtual void conv2d_bias_relu(const Conv2dArgs& args);
  virtual void conv2d_bias_relu_backward(const Conv2dBackwardArgs& args);
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
  /// Batch, layer, group and instance norm.
  virtual void normalize(const NormalizeArgs& args);
  virtual void normalize_backward(const NormalizeBackwardArgs& args);
  /// Moves the running statistics towards those of a batch (N, C), averaged over its rows.
  virtual void update_running_statistics(const View& batch_mean, const View& batch_variance,
                                         const RunningStatistics& running);
  /// What follows the products in a step of an LSTM (Hochreiter and Schmidhuber 1997). gates (N, 4 H) holds the sums
  /// that go into i, f, g and o and is left with i, f, o = sigmoid and g = tanh of them: c = f c_before + i g, h = o
  /// tanh(c). c_before, c and h are (N, H).
  virtual void lstm_cell(const MutableView& gates, const View& c_before, const MutableView& c, const MutableView& h);
  /// Its gradient: dgates (N, 4 H), of the sums, from gates as lstm_cell left them, from dh, and from dc, which holds
  /// c's gradient by way of the next step and is left with c_before's.
  virtual void lstm_cell_backward(const View& dh, const View& gates, const View& c_before, const View& c,
                                  const MutableView& dc, const MutableView& dgates);
  virtual void lstm_sequence(const LstmArgs& args);
  virtual void lstm_sequence_backward(const LstmBackwardArgs& args);
  virtual void attention(const AttentionArgs& args);
  virtual void attention_backward(const AttentionBackwardArgs& args);
  /// y (…, 1, H, W) = 0.2989 R + 0.5870 G + 0.1140 B of x (…, 3, H, W) (ITU-R BT.601; experiment E3).
  virtual void rgb_to_grayscale(const View& x, const MutableView& y);
  /// block.step += 1 unless found_inf (double arithmetic; StepBlock)
  virtual void advance_step(const MutableView& block);
  /// One step of the rule over all parameters. The block counts it already.
  virtual void optimizer_step(std::span<const ParameterViews> parameters, const View& block, const OptimizerRule& rule);
  /// found_inf (float64 scalar) = 1 if an element of a gradient is inf or NaN, else it stays; then every element times
  /// `factor` (float64 scalar; absent: the gradients stay).
  virtual void unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf);
  /// The scale of the next step (ScaleBlock), found_inf = 0.
  virtual void update_scale(const MutableView& block, const ScaleRule& rule);
  /// The first of sort's values and indices along `axis`, as many as the outputs have there; both are wanted.
  virtual void topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices);

 protected:
  /// dy where y > 0 and 0 elsewhere: in `masked` if that is given, else in memory that `scratch` then holds, in dy's
  /// order.
  View masked_by_relu(const View& dy, const View& y, const MutableView& masked, Array& scratch);
};

}  // namespace gradus
