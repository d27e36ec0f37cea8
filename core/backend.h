// The seam between operators and kernels: one interface with every kernel that the framework needs.
//
// Rules. Arguments are non-owning views. Outputs are preallocated with their final shape: a backend never allocates a
// result, never infers a shape and knows nothing of autograd. Views may have any strides (0 where broadcast). The
// elements of an output never overlap, and an output may be the same view as an input only where a method says so.
// Every kernel accepts zero-size views. All views of a call are on one device of the backend's type and, unless a
// method says otherwise, have the same dtype. core/ops checks shapes before the call; backends do not check them again.
//
// Two tiers. Primitives are pure virtual. Composites have default bodies that call primitives (core/composites); a
// backend overrides a composite to fuse it. Tests compare the overrides with the defaults.
#pragma once

#include <string_view>

#include <gradus/core/kernel_args.h>

namespace gradus {

/// Operations that the kernels of some backends do together. Operators ask for them with Backend::can.
enum class Fusion : uint8_t {
  /// The backward pass of y = relu(normalize(x) + residual) where two operators use y, so that the gradient of y is a
  /// sum, dy + NormalizeBackwardArgs::addend. normalize_backward adds the two while it reads them, which saves a kernel
  /// that adds them, and it may write dresidual over dy.
  sum_of_gradients,
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual DeviceType device_type() const = 0;
  /// The vendor libraries that the kernels call, with their versions, for reports: "CUDA 13.0, …". Empty if there are
  /// none.
  virtual std::string libraries() const { return ""; }
  /// True if the kernels do these operations together. The results are the same in either case.
  virtual bool can(Fusion) const { return false; }

  // ---- Primitives: memory ----
  /// y[i] = value
  virtual void fill(const MutableView& y, const Scalar& value) = 0;
  /// y[i] = x[i], converted between any two dtypes (float to integer truncates; any value but 0 becomes true).
  virtual void copy(const View& x, const MutableView& y) = 0;
  /// y[i] = start + i * step for a 1-D y
  virtual void arange(const MutableView& y, const Scalar& start, const Scalar& step) = 0;

  // ---- Primitives: element-wise. y may be the same view as an input. ----
  /// y = op(x); predicates write booleans.
  virtual void unary(UnaryOp op, const View& x, const MutableView& y, const UnaryArgs& args) = 0;
  /// dx = dy * op'(saved), where `saved` is y if saves_output(op) (core/op_lists.h) and x otherwise.
  virtual void unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                              const UnaryArgs& args) = 0;
  /// y = op(a, b); a and b are already broadcast to y's shape. Predicates write booleans.
  virtual void binary(BinaryOp op, const View& a, const View& b, const MutableView& y) = 0;
  /// y = op(a, scalar), or op(scalar, a) if `scalar_first`. The scalar is converted to a's dtype, or to float32 if that
  /// is a half type; predicates always convert it to a's dtype.
  virtual void binary_scalar(BinaryOp op, const View& a, const Scalar& scalar, bool scalar_first,
                             const MutableView& y) = 0;
  /// y = condition ? a : b; condition is boolean; all are already broadcast to y's shape.
  virtual void where(const View& condition, const View& a, const View& b, const MutableView& y) = 0;

  // ---- Primitives: reductions ----
  /// y = reduction of x over `axes` (bit i is axis i); y has x's rank, with size 1 at those axes. sum, mean and prod
  /// accumulate half types in float32 or wider and integers in int64. x and y may differ in dtype (sum of booleans into
  /// int64). all and any write booleans.
  virtual void reduce(ReduceOp op, const View& x, uint32_t axes, const MutableView& y) = 0;
  /// Value and index (int64) of the extreme element along `axis`. Among equal elements the first is taken; NaN counts
  /// as extreme. Both outputs keep x's rank, with size 1 at `axis`; `values` may be absent.
  virtual void arg_reduce(ArgReduceOp op, const View& x, int axis, const MutableView& values,
                          const MutableView& indices) = 0;

  // ---- Primitives: linear algebra, convolution, pooling, resampling ----
  /// y = a b, or y += a b if `accumulate`: a (…, M, K), b (…, K, N), y (…, M, N) with equal leading sizes (strides 0
  /// where broadcast).
  virtual void matmul(const View& a, const View& b, const MutableView& y, bool accumulate) = 0;
  /// y (N, K, P, Q) = x (N, C, H, W) * w (K, C / groups, R, S): cross-correlation. The strides of the views say whether
  /// they are NCHW or NHWC.
  virtual void conv2d(const View& x, const View& w, const MutableView& y, const Conv2dGeometry& geometry) = 0;
  /// dx of conv2d, from dy and w.
  virtual void conv2d_backward_data(const View& dy, const View& w, const MutableView& dx,
                                    const Conv2dGeometry& geometry) = 0;
  /// dw of conv2d, from dy and x.
  virtual void conv2d_backward_weight(const View& dy, const View& x, const MutableView& dw,
                                      const Conv2dGeometry& geometry) = 0;
  /// y = maximum of each window; indices (int32) = h * W + w, the position of that maximum in the input plane. Among
  /// equal elements the first is taken; NaN counts as the maximum. A window entirely outside the image gives -infinity
  /// and index -1, which the backward kernel skips.
  virtual void max_pool2d(const View& x, const MutableView& y, const MutableView& indices,
                          const Pool2dGeometry& geometry) = 0;
  /// dx = 0, then dx[indices] += dy, added in a fixed order where windows overlap.
  virtual void max_pool2d_backward(const View& dy, const View& indices, const MutableView& dx,
                                   const Pool2dGeometry& geometry) = 0;
  /// y (N, C, P, Q) = x (N, C, H, W) resampled by `rows` (H to P) and `columns` (W to Q).
  virtual void resample2d(const View& x, const Stencil& rows, const Stencil& columns, const MutableView& y) = 0;

  // ---- Primitives: selection by class index (losses). target is int64 (N); rows with target == ignore_index are
  // skipped.
  /// y[i] = x[i, target[i]] for x (N, C); 0 for skipped rows. A target outside [0, C) throws an IndexError on the CPU
  /// and gives NaN on CUDA, where the host does not wait for the result.
  virtual void pick(const View& x, const View& target, int64_t ignore_index, const MutableView& y) = 0;
  /// dx = 0, then dx[i, target[i]] = dy[i]; skipped rows stay 0.
  virtual void pick_backward(const View& dy, const View& target, int64_t ignore_index, const MutableView& dx) = 0;

  // ---- Primitives: scans, sorting, indexing ----
  /// y[k] = op over x[0 … k] along `axis` (over x[k … n - 1] if `reverse`), accumulated in the same types as in reduce.
  /// x and y may differ in dtype.
  virtual void scan(ScanOp op, const View& x, int axis, bool reverse, const MutableView& y) = 0;
  /// values = x sorted along `axis`; indices (int64) = the position in x of each value. Stable; NaN is larger than all
  /// numbers. Both outputs have x's shape; `values` may be absent.
  virtual void sort(const View& x, int axis, bool descending, const MutableView& values,
                    const MutableView& indices) = 0;
  /// torch.gather: y[i] = x[j], where position j equals i except that j[axis] = index[i]. y has the shape of `index`; x
  /// is at least as large as y along every other axis. `index` is int64 (strides 0 where broadcast). An index that is
  /// negative or too large throws an IndexError on the CPU. On CUDA, where the host does not wait for the result, it
  /// gives 0.
  virtual void gather(const View& x, int axis, const View& index, const MutableView& y) = 0;
  /// torch.scatter_: y[j] = x[i], or y[j] += x[i] if `accumulate`, where j is as in gather. x has the shape of `index`.
  /// Elements are written in the row-major order of i for any number of threads, so the last of several writes to one
  /// element of y wins. An invalid index throws an IndexError on the CPU and writes nothing on CUDA.
  virtual void scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) = 0;
  /// positions (int64, (count, x.ndim())) = indices of the `count` true elements of a boolean x, in row-major order.
  virtual void nonzero(const View& x, const MutableView& positions) = 0;

  // ---- Primitives: recurrent cells ----
  /// The element-wise part of a recurrent step, after the matrix products. gates (N, G H) holds G sums for each unit
  /// and is overwritten with what backward needs: G is 1 for an RNN; 4 for an LSTM, in the order i, f, g, o; and 4 for
  /// a GRU: r, z, and the candidate's sums over the state and over the input. c_before, c and h are (N, H). Of cells
  /// other than the LSTM, c_before is the last h, and c may be h itself.
  virtual void recurrent_cell(RecurrentCell cell, const MutableView& gates, const View& c_before, const MutableView& c,
                              const MutableView& h) = 0;
  /// Gradient of recurrent_cell: dgates (N, G H) is the gradient of the sums; `gates` holds what recurrent_cell wrote.
  /// On entry dc holds the part of the gradient of c that comes from the next step other than through its sums; on
  /// return that of c_before.
  virtual void recurrent_cell_backward(RecurrentCell cell, const View& dh, const View& gates, const View& c_before,
                                       const View& c, const MutableView& dc, const MutableView& dgates) = 0;

  // ---- Primitives: random numbers, bit-identical on all backends (core/runtime/random.h) ----
  virtual void uniform(const MutableView& y, const RandomState& state, double low, double high) = 0;
  virtual void normal(const MutableView& y, const RandomState& state, double mean, double deviation) = 0;
  /// y = 1 with probability p, else 0.
  virtual void bernoulli(const MutableView& y, const RandomState& state, double p) = 0;
  /// Integers in [low, high).
  virtual void randint(const MutableView& y, const RandomState& state, int64_t low, int64_t high) = 0;
  /// y (int64, 1-D) = a permutation of 0 … n - 1.
  virtual void randperm(const MutableView& y, const RandomState& state) = 0;

  // ---- Primitives: loss scaling ----
  /// Computes the scale of the next step from a ScaleBlock and resets its found_inf to 0.
  virtual void update_scale(const MutableView& block, const ScaleRule& rule) = 0;

  // ---- Composites. Those with an argument struct are documented at the struct, in core/kernel_args.h. ----
  /// y = x wᵀ + bias: x (M, K), w (N, K), bias (N) or absent, y (M, N).
  virtual void linear(const View& x, const View& w, const View& bias, const MutableView& y);
  /// y = exp(x - max) / sum(exp(x - max)) along `axis`, or its logarithm.
  virtual void softmax(const View& x, int axis, SoftmaxKind kind, const MutableView& y);
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
  /// y[k] = b[k] + a[k] y[k - 1] along `axis` (b[k] + a[k] y[k + 1] if `reverse`); the first y computed is b alone.
  /// Accumulated in the same types as in reduce. The gradient of a running product uses it to avoid a division.
  virtual void linear_recurrence(const View& a, const View& b, int axis, bool reverse, const MutableView& y);
  /// Batch, layer, group and instance norm.
  virtual void normalize(const NormalizeArgs& args);
  virtual void normalize_backward(const NormalizeBackwardArgs& args);
  /// Updates the running statistics with the means over the rows of batch_mean and batch_variance, (N, C) each. N is 1
  /// for batch norm and the number of images for instance norm.
  virtual void update_running_statistics(const View& batch_mean, const View& batch_variance,
                                         const RunningStatistics& running);
  virtual void recurrent_sequence(const RecurrentArgs& args);
  virtual void recurrent_sequence_backward(const RecurrentBackwardArgs& args);
  virtual void attention(const AttentionArgs& args);
  virtual void attention_backward(const AttentionBackwardArgs& args);
  /// y (…, 1, H, W) = 0.2989 R + 0.5870 G + 0.1140 B of x (…, 3, H, W) (ITU-R BT.601).
  virtual void rgb_to_grayscale(const View& x, const MutableView& y);
  /// Adds 1 to the step in a StepBlock unless its found_inf is set.
  virtual void advance_step(const MutableView& block);
  /// One step of the rule for all parameters. The step number in the StepBlock already includes this step.
  virtual void optimizer_step(std::span<const ParameterViews> parameters, const View& block, const OptimizerRule& rule);
  /// Sets found_inf (float64 scalar) to 1 if any gradient element is inf or NaN, and otherwise leaves it as it is; then
  /// multiplies every element by `factor` (float64 scalar). If `factor` is absent, the gradients are not changed.
  virtual void unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf);
  /// The first k of sort's values and indices along `axis`, where k is the outputs' size there. Both outputs are
  /// required.
  virtual void topk(const View& x, int axis, bool largest, const MutableView& values, const MutableView& indices);

 protected:
  /// Returns dy where y > 0 and 0 elsewhere. The result is written to `masked` if that view is present, else to a new
  /// array with dy's strides that is assigned to `scratch`.
  View masked_by_relu(const View& dy, const View& y, const MutableView& masked, Array& scratch);
};

}  // namespace gradus
