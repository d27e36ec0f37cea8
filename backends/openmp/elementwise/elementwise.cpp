// Element-wise operators. Operands are converted block by block to the type of the computation (loops.h), so that every
// operator is one loop over contiguous float, double or int64. The loop applies the formulas of
// core/formulas/scalar_unary.h and core/formulas/scalar_binary.h to vectors (map_kernel.h) or, for integers, to
// numbers.
#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/core/formulas/scalar_binary.h>
#include <gradus/core/formulas/scalar_unary.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// The loops for integers, for which there are no vector kernels. Results must not overlap operands.
template <UnaryOp op, class C, class To>
void loop(const C* __restrict x, To* __restrict y, int64_t count, const UnaryArgs& args) {
  for (int64_t i = 0; i < count; ++i) y[i] = scalar::Unary<op>::apply(x[i], args);
}
template <BinaryOp op, class C, class To>
void loop(const C* __restrict a, const C* __restrict b, To* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = scalar::Binary<op>::apply(a[i], b[i]);
}

// The UnaryKernels or BinaryKernels of an operator for type C: vector kernels, or the loops above for integers. Throws
// a DTypeError if the operator does not exist for this type.
template <class C, class Op>
auto kernels_of_op(Op op) {
  if constexpr (std::is_floating_point_v<C>) {
    if constexpr (std::is_same_v<Op, BinaryOp>)
      if (needs_integral(op)) detail::bad_dtype(dtype_of<C>, "an integer type");
    return kernels_of<C>(kernel_table()).of(op);
  } else {
    std::conditional_t<std::is_same_v<Op, UnaryOp>, UnaryKernels<C>, BinaryKernels<C>> loops;
    visit(op, [&]<Op kOp> {
      if constexpr (needs_floating(kOp)) detail::bad_dtype(dtype_of<C>, "a floating-point type");
      else if constexpr (is_predicate(kOp)) loops.predicate = loop<kOp, C, bool>;
      else loops.apply = loop<kOp, C, C>;
    });
    return loops;
  }
}

// The implementation name for observers: "vectors_avx2" or "loops".
const char* implementation(DType dtype) { return is_floating(dtype) ? kernel_table().vectors : "loops"; }

// Provides an operand's elements along a run, which have stride `step`: in place if possible, otherwise copied block by
// block to a buffer. If the stride is 0, the buffer is filled only once.
template <class C>
class Source {
 public:
  Source(const View& x, int64_t step) : x_(x), step_(step), direct_(step == 1 && x.dtype == dtype_of<C>) {}
  bool direct() const { return direct_; }
  void start_run(int64_t offset, int64_t run) {
    offset_ = offset;
    if (step_ == 0) load_block(x_, offset, 0, std::min(kBlock, run), buffer_);
  }
  const C* get(int64_t i, int64_t count) {
    return step_ == 0 ? buffer_ : load_block(x_, offset_ + i * step_, step_, count, buffer_);
  }

 private:
  const View& x_;
  int64_t step_, offset_ = 0;
  bool direct_;
  C buffer_[kBlock];
};

// The memory in which a block of results is computed: y itself, or a buffer that finish() copies to y. Integer loops
// always use the buffer, because y may be the same view as an operand.
template <class C>
class Result {
 public:
  Result(const MutableView& y, int64_t step)
      : y_(y), step_(step), direct_(!std::is_same_v<C, int64_t> && step == 1 && y.dtype == dtype_of<C>) {}
  bool direct() const { return direct_; }
  void start_run(int64_t offset) { offset_ = offset; }
  C* get(int64_t i) { return direct_ ? y_.as<C>() + offset_ + i : buffer_; }
  void finish(int64_t i, int64_t count) {
    if (!direct_) store_block(buffer_, y_, offset_ + i * step_, step_, count);
  }

 private:
  const MutableView& y_;
  int64_t step_, offset_ = 0;
  bool direct_;
  C buffer_[kBlock];
};

// Computes y = f(x) or y = f(a, b) over a loop nest whose operand 0 is y: calls f(from …, to, count) for blocks of
// contiguous elements.
template <class C, class To = C, int N, class F, class... Views>
void map_runs(const StridedLoop<N>& nest, const MutableView& y, F f, const Views&... operands) {
  const auto run_all = [&]<size_t... k>(std::index_sequence<k...>) {
    parallel_for(nest.numel, kGrain, [&](int64_t begin, int64_t end) {
      Result<To> result(y, step_of(nest, 0));
      Source<C> sources[] = {Source<C>(operands, step_of(nest, static_cast<int>(k) + 1))...};
      const bool direct = result.direct() && (... && sources[k].direct());
      for_each_run(nest, begin, end, [&](const int64_t* at, int64_t run) {
        result.start_run(at[0]), (..., sources[k].start_run(at[k + 1], run));
        for (int64_t i = 0, count; i < run; i += count) {
          count = direct ? run : std::min(kBlock, run - i);
          f(sources[k].get(i, count)..., result.get(i), count);
          result.finish(i, count);
        }
      });
    });
  };
  run_all(std::make_index_sequence<sizeof...(Views)>());
}

// Returns true if elements of x that are far apart in memory are neighbours in y: one is channels-last and the other is
// not. Reading x in the order of y is then slower than a copy first, since copy() transposes in the cache.
bool is_ordered_otherwise(const View& x, const MutableView& y) {
  if (x.numel() < kGrain || size_of(x.dtype) < 4 || x.strides == y.strides) return false;
  const StridedLoop<2> nest(y.shape, {&y.strides, &x.strides});
  bool apart = false;
  for (int i = 0; i + 1 < nest.ndim; ++i) apart = apart || (nest.strides[1][i] == 1 && nest.shape[i] >= 8);
  return apart && step_of(nest, 1) >= 8 && StridedLoop<1>(y.shape, {&y.strides}).all_contiguous();
}

Array copy_ordered_as(const MutableView& y, const View& x, OpenmpBackend& backend) {
  const Array copy = Array::empty_strided(y.shape, y.strides, x.dtype);
  backend.copy(x, copy);
  return copy;
}

// Returns true if the operator gives correct booleans (bytes 0 or 1) when it is applied to booleans as integers.
constexpr bool combines_truths(BinaryOp op) {
  using enum BinaryOp;
  return op == bitwise_and || op == bitwise_or || op == bitwise_xor || op == logical_and || op == logical_or ||
         op == logical_xor || op == eq || op == ne;
}

}  // namespace

void OpenmpBackend::unary(UnaryOp op, const View& x, const MutableView& y, const UnaryArgs& args) {
  visit_compute(x.dtype, [&]<class C> {
    const UnaryKernels<C> kernels = kernels_of_op<C>(op);
    EventScope event(gradus::name(op), "openmp", implementation(x.dtype), {&x, &y}, x.numel());
    const StridedLoop<2> nest(y.shape, {&y.strides, &x.strides});
    if (kernels.predicate)
      map_runs<C, bool>(
          nest, y, [&](const C* from, bool* to, int64_t count) { kernels.predicate(from, to, count, args); }, x);
    else
      map_runs<C>(
          nest, y, [&](const C* from, C* to, int64_t count) { kernels.apply(from, to, count, args); }, x);
  });
}

void OpenmpBackend::unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                                   const UnaryArgs& args) {
  GRADUS_CHECK(has_derivative(op), AutogradError, gradus::name(op), " has no derivative");
  GRADUS_CHECK(is_floating(dx.dtype), DTypeError, "gradients are of floating-point types, not ", dx.dtype);
  if (is_ordered_otherwise(dy, dx)) return unary_backward(op, copy_ordered_as(dx, dy, *this), saved, dx, args);
  if (is_ordered_otherwise(saved, dx)) return unary_backward(op, dy, copy_ordered_as(dx, saved, *this), dx, args);
  EventScope event("unary_backward", "openmp", kernel_table().vectors, {&dy, &saved, &dx}, 2 * dy.numel());
  const StridedLoop<3> nest(dx.shape, {&dx.strides, &dy.strides, &saved.strides});
  visit_wide(dx.dtype, [&]<class C> {
    const auto backward = kernels_of<C>(kernel_table()).of(op).backward;
    map_runs<C>(
        nest, dx,
        [&](const C* gradient, const C* value, C* to, int64_t count) { backward(gradient, value, to, count, args); },
        dy, saved);
  });
}

void OpenmpBackend::binary(BinaryOp op, const View& a, const View& b, const MutableView& y) {
  if (is_ordered_otherwise(a, y)) return binary(op, copy_ordered_as(y, a, *this), b, y);
  if (is_ordered_otherwise(b, y)) return binary(op, a, copy_ordered_as(y, b, *this), y);
  visit_compute(a.dtype, [&]<class C> {
    const BinaryKernels<C> kernels = kernels_of_op<C>(op);
    EventScope event(gradus::name(op), "openmp", implementation(a.dtype), {&a, &b, &y}, y.numel());
    const StridedLoop<3> nest(y.shape, {&y.strides, &a.strides, &b.strides});
    if (a.dtype == DType::boolean && combines_truths(op)) {
      View u = a, v = b;
      MutableView bytes = y;
      u.dtype = v.dtype = bytes.dtype = DType::u8;
      visit(op, [&]<BinaryOp kOp> {
        if constexpr (combines_truths(kOp)) map_runs<uint8_t>(nest, bytes, loop<kOp, uint8_t, uint8_t>, u, v);
      });
    } else if (kernels.predicate) map_runs<C, bool>(nest, y, kernels.predicate, a, b);
    else map_runs<C>(nest, y, kernels.apply, a, b);
  });
}

void OpenmpBackend::binary_scalar(BinaryOp op, const View& a, const Scalar& scalar, bool scalar_first,
                                  const MutableView& y) {
  // The square is the most common power, and UnaryOp::square has the same formula.
  if (op == BinaryOp::pow && !scalar_first && scalar.to_double() == 2) return unary(UnaryOp::square, a, y, {});
  NaiveBackend::binary_scalar(op, a, scalar, scalar_first, y);
}

void OpenmpBackend::where(const View& condition, const View& a, const View& b, const MutableView& y) {
  EventScope event("where", "openmp", kernel_table().vectors, {&condition, &a, &b, &y});
  const StridedLoop<4> nest(y.shape, {&y.strides, &condition.strides, &a.strides, &b.strides});
  const int64_t step[4] = {step_of(nest, 0), step_of(nest, 1), step_of(nest, 2), step_of(nest, 3)};
  const bool vectors = step[0] == 1 && step[1] == 1 && step[2] <= 1 && step[3] <= 1 && step[2] >= 0 && step[3] >= 0;
  visit_bits(y.dtype, [&]<class Bits> {  // elements are only moved, so only their size matters
    parallel_runs(nest, [&](const int64_t* at, int64_t count) {
      Bits* out = y.as<Bits>() + at[0];
      const bool* test = condition.as<bool>() + at[1];
      const Bits *left = a.as<Bits>() + at[2], *right = b.as<Bits>() + at[3];
      if constexpr (sizeof(Bits) >= 4) {
        using T = std::conditional_t<sizeof(Bits) == 4, float, double>;
        if (vectors)
          return kernels_of<T>(kernel_table())
              .choose(test, reinterpret_cast<const T*>(left), step[2], reinterpret_cast<const T*>(right), step[3],
                      reinterpret_cast<T*>(out), count);
      }
      for (int64_t i = 0; i < count; ++i) out[i * step[0]] = test[i * step[1]] ? left[i * step[2]] : right[i * step[3]];
    });
  });
}

}  // namespace gradus
