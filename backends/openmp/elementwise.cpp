// Element-wise kernels. Operands are taken a block at a time in the type that they compute in (loops.h), so that every
// op is one loop over contiguous memory for float, double and int64. The frequent ones of float and double come from the
// vector kernels, the others from core/scalar_ops.h.
#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp;

template <UnaryOp op, class C>
using UnaryResult = std::conditional_t<is_predicate(op), bool, C>;

// y[i] = op(x[i]) for contiguous blocks.
template <class C>
struct UnaryLoop {
  void (*values)(const C* x, C* y, int64_t count, const UnaryArgs& args) = nullptr;
  void (*predicates)(const C* x, bool* y, int64_t count, const UnaryArgs& args) = nullptr;
};
template <class C>
UnaryLoop<C> unary_loop(UnaryOp op) {
  UnaryLoop<C> loop;
  visit(op, [&]<UnaryOp kOp> {
    if constexpr (needs_floating(kOp) && !std::is_floating_point_v<C>) {
      detail::bad_dtype(dtype_of<C>, "a floating-point type");
    } else {
      const auto apply = [](const C* __restrict x, UnaryResult<kOp, C>* __restrict y, int64_t count,
                            const UnaryArgs& args) {
        for (int64_t i = 0; i < count; ++i) y[i] = scalar::Unary<kOp>::apply(x[i], args);
      };
      if constexpr (is_predicate(kOp)) loop.predicates = apply;
      else loop.values = apply;
    }
  });
  return loop;
}

// y[i] = op(a[i], b[i]) likewise.
template <class C>
struct BinaryLoop {
  void (*values)(const C* a, const C* b, C* y, int64_t count) = nullptr;
  void (*predicates)(const C* a, const C* b, bool* y, int64_t count) = nullptr;
};
template <class C>
BinaryLoop<C> binary_loop(BinaryOp op) {
  BinaryLoop<C> loop;
  visit(op, [&]<BinaryOp kOp> {
    if constexpr (!is_defined<kOp, C>) {
      detail::bad_dtype(dtype_of<C>, needs_integral(kOp) ? "an integer type" : "a floating-point type");
    } else {
      using Result = std::conditional_t<is_predicate(kOp), bool, C>;
      const auto apply = [](const C* __restrict a, const C* __restrict b, Result* __restrict y, int64_t count) {
        for (int64_t i = 0; i < count; ++i) y[i] = scalar::Binary<kOp>::apply(a[i], b[i]);
      };
      if constexpr (is_predicate(kOp)) loop.predicates = apply;
      else loop.values = apply;
    }
  });
  return loop;
}

template <class C>
UnaryKernel<C> unary_vectors(UnaryOp op) {
  if constexpr (std::is_floating_point_v<C>) {
    const Kernels<C>& kernels = kernels_of<C>(kernel_table());
    switch (op) {
      case UnaryOp::neg: return kernels.neg;
      case UnaryOp::abs: return kernels.abs;
      case UnaryOp::square: return kernels.square;
      case UnaryOp::exp: return kernels.exp;
      case UnaryOp::sqrt: return kernels.sqrt;
      case UnaryOp::rsqrt: return kernels.rsqrt;
      case UnaryOp::reciprocal: return kernels.reciprocal;
      case UnaryOp::relu: return kernels.relu;
      case UnaryOp::sigmoid: return kernels.sigmoid;
      case UnaryOp::gelu_tanh: return kernels.gelu_tanh;
      case UnaryOp::mish: return kernels.mish;
      case UnaryOp::silu: return kernels.silu;
      default: break;
    }
  }
  return nullptr;
}
template <class C>
BinaryKernel<C> binary_vectors(BinaryOp op) {
  if constexpr (std::is_floating_point_v<C>) {
    const Kernels<C>& kernels = kernels_of<C>(kernel_table());
    switch (op) {
      case BinaryOp::add: return kernels.add;
      case BinaryOp::sub: return kernels.sub;
      case BinaryOp::mul: return kernels.mul;
      case BinaryOp::div: return kernels.div;
      case BinaryOp::maximum: return kernels.maximum;
      case BinaryOp::minimum: return kernels.minimum;
      default: break;
    }
  }
  return nullptr;
}

// What an observer reads: "vectors_avx2" or "loops".
const char* implementation(bool vectors) { return vectors ? kernel_table().vectors : "loops"; }

// Where a block of results is computed: in place, or in a buffer that finish() moves to its place.
template <class C>
class Result {
 public:
  Result(const MutableView& y, int64_t offset, int64_t step, int64_t count)
      : y_(y), offset_(offset), step_(step), count_(count), in_place_(step == 1 && y.dtype == dtype_of<C>) {}
  C* get(bool in_place_allowed) {
    in_place_ = in_place_ && in_place_allowed;
    return in_place_ ? y_.as<C>() + offset_ : buffer_;
  }
  void finish() {
    if (!in_place_) store_block(buffer_, y_.data, y_.dtype, offset_, step_, count_);
  }

 private:
  const MutableView& y_;
  int64_t offset_, step_, count_;
  bool in_place_;
  C buffer_[kBlock];
};

void scatter_predicates(const bool* from, const MutableView& y, int64_t offset, int64_t step, int64_t count) {
  bool* to = y.as<bool>() + offset;
  for (int64_t i = 0; i < count; ++i) to[i * step] = from[i];
}

}  // namespace

void OpenmpBackend::unary(UnaryOp op, const View& x, const MutableView& y, const UnaryArgs& args) {
  visit_compute(x.dtype, [&]<class C> {
    const UnaryKernel<C> vectors = unary_vectors<C>(op);
    EventScope event(gradus::name(op), "openmp", implementation(vectors), {&x, &y}, x.numel());
    const UnaryLoop<C> loop = unary_loop<C>(op);
    const StridedLoop<2> nest(y.shape, {&y.strides, &x.strides});
    const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1);
    parallel_runs(nest, [&](const int64_t* at, int64_t run) {
      C x_buffer[kBlock];
      for (int64_t i = 0; i < run; i += kBlock) {
        const int64_t count = std::min(kBlock, run - i), y_at = at[0] + i * y_step;
        const C* from = load_block(x.data, x.dtype, at[1] + i * x_step, x_step, count, x_buffer);
        if (loop.predicates) {
          bool results[kBlock];
          loop.predicates(from, results, count, args);
          scatter_predicates(results, y, y_at, y_step, count);
          continue;
        }
        Result<C> result(y, y_at, y_step, count);
        if (vectors) vectors(from, result.get(true), count);
        else loop.values(from, result.get(false), count, args);
        result.finish();
      }
    });
  });
}

void OpenmpBackend::unary_backward(UnaryOp op, const View& dy, const View& saved, const MutableView& dx,
                                   const UnaryArgs& args) {
  GRADUS_CHECK(has_derivative(op), AutogradError, gradus::name(op), " has no derivative");
  GRADUS_CHECK(is_floating(dx.dtype), DTypeError, "gradients are of floating-point types, not ", dx.dtype);
  const bool vectors = op == UnaryOp::relu;
  EventScope event("unary_backward", "openmp", implementation(vectors), {&dy, &saved, &dx}, 2 * dy.numel());
  const auto run_all = [&]<class C> {
    using Loop = void (*)(const C*, const C*, C*, int64_t, const UnaryArgs&);
    Loop loop = nullptr;
    visit(op, [&]<UnaryOp kOp> {
      if constexpr (has_derivative(kOp))
        loop = [](const C* __restrict gradient, const C* __restrict value, C* __restrict out, int64_t count,
                  const UnaryArgs& args) {
          for (int64_t i = 0; i < count; ++i) out[i] = gradient[i] * scalar::Unary<kOp>::derivative(value[i], args);
        };
    });
    const Kernels<C>& kernels = kernels_of<C>(kernel_table());
    const StridedLoop<3> nest(dx.shape, {&dx.strides, &dy.strides, &saved.strides});
    const int64_t dx_step = step_of(nest, 0), dy_step = step_of(nest, 1), saved_step = step_of(nest, 2);
    parallel_runs(nest, [&](const int64_t* at, int64_t run) {
      C dy_buffer[kBlock], saved_buffer[kBlock];
      for (int64_t i = 0; i < run; i += kBlock) {
        const int64_t count = std::min(kBlock, run - i);
        const C* gradient = load_block(dy.data, dy.dtype, at[1] + i * dy_step, dy_step, count, dy_buffer);
        const C* value = load_block(saved.data, saved.dtype, at[2] + i * saved_step, saved_step, count, saved_buffer);
        Result<C> result(dx, at[0] + i * dx_step, dx_step, count);
        if (vectors) kernels.relu_backward(gradient, value, result.get(true), count);
        else loop(gradient, value, result.get(false), count, args);
        result.finish();
      }
    });
  };
  if (dx.dtype == DType::f64) run_all.operator()<double>();
  else run_all.operator()<float>();
}

void OpenmpBackend::binary(BinaryOp op, const View& a, const View& b, const MutableView& y) {
  visit_compute(a.dtype, [&]<class C> {
    const BinaryKernel<C> vectors = binary_vectors<C>(op);
    EventScope event(gradus::name(op), "openmp", implementation(vectors), {&a, &b, &y}, y.numel());
    const BinaryLoop<C> loop = binary_loop<C>(op);
    const StridedLoop<3> nest(y.shape, {&y.strides, &a.strides, &b.strides});
    const int64_t y_step = step_of(nest, 0), a_step = step_of(nest, 1), b_step = step_of(nest, 2);
    parallel_runs(nest, [&](const int64_t* at, int64_t run) {
      C a_buffer[kBlock], b_buffer[kBlock];
      for (int64_t i = 0; i < run; i += kBlock) {
        const int64_t count = std::min(kBlock, run - i), y_at = at[0] + i * y_step;
        const C* left = load_block(a.data, a.dtype, at[1] + i * a_step, a_step, count, a_buffer);
        const C* right = load_block(b.data, b.dtype, at[2] + i * b_step, b_step, count, b_buffer);
        if (loop.predicates) {
          bool results[kBlock];
          loop.predicates(left, right, results, count);
          scatter_predicates(results, y, y_at, y_step, count);
          continue;
        }
        Result<C> result(y, y_at, y_step, count);
        if (vectors) vectors(left, right, result.get(true), count);
        else loop.values(left, right, result.get(false), count);
        result.finish();
      }
    });
  });
}

void OpenmpBackend::binary_scalar(BinaryOp op, const View& a, const Scalar& scalar, bool scalar_first,
                                  const MutableView& y) {
  alignas(8) unsigned char element[8];
  visit(a.dtype, [&]<class T> {
    const T value = scalar.to<T>();
    std::memcpy(element, &value, sizeof value);
  });
  View b = a;  // one element, seen as often as a has elements
  b.data = element;
  b.strides = Dims::filled(a.ndim(), 0);
  if (scalar_first) binary(op, b, a, y);
  else binary(op, a, b, y);
}

void OpenmpBackend::where(const View& condition, const View& a, const View& b, const MutableView& y) {
  EventScope event("where", "openmp", "loops", {&condition, &a, &b, &y});
  const StridedLoop<4> nest(y.shape, {&y.strides, &condition.strides, &a.strides, &b.strides});
  const auto choose = [&]<class Bits> {  // elements are moved, whatever they mean
    const int64_t step[4] = {step_of(nest, 0), step_of(nest, 1), step_of(nest, 2), step_of(nest, 3)};
    parallel_runs(nest, [&](const int64_t* at, int64_t count) {
      Bits* out = y.as<Bits>() + at[0];
      const bool* test = condition.as<bool>() + at[1];
      const Bits *left = a.as<Bits>() + at[2], *right = b.as<Bits>() + at[3];
      for (int64_t i = 0; i < count; ++i) out[i * step[0]] = test[i * step[1]] ? left[i * step[2]] : right[i * step[3]];
    });
  };
  switch (size_of(y.dtype)) {
    case 1: return choose.operator()<uint8_t>();
    case 2: return choose.operator()<uint16_t>();
    case 4: return choose.operator()<uint32_t>();
    default: return choose.operator()<uint64_t>();
  }
}

void OpenmpBackend::rgb_to_grayscale(const View& x, const MutableView& y) {
  EventScope event("rgb_to_grayscale", "openmp", "loops", {&x, &y}, 5 * y.numel());
  const int axis = x.ndim() - 3;
  const StridedLoop<2> nest(y.shape, {&y.strides, &x.strides});  // x's first channel
  const int64_t y_step = step_of(nest, 0), x_step = step_of(nest, 1), channel = x.strides[axis];
  const auto run_all = [&]<class C> {
    parallel_runs(nest, [&](const int64_t* at, int64_t run) {
      C buffer[3][kBlock];
      for (int64_t i = 0; i < run; i += kBlock) {
        const int64_t count = std::min(kBlock, run - i);
        const C* color[3];
        for (int c = 0; c < 3; ++c)
          color[c] = load_block(x.data, x.dtype, at[1] + i * x_step + c * channel, x_step, count, buffer[c]);
        Result<C> result(y, at[0] + i * y_step, y_step, count);
        C* gray = result.get(false);
        for (int64_t j = 0; j < count; ++j)
          gray[j] = static_cast<C>(0.2989) * color[0][j] + static_cast<C>(0.5870) * color[1][j] +
                    static_cast<C>(0.1140) * color[2][j];
        result.finish();
      }
    });
  };
  if (!is_floating(x.dtype)) return NaiveBackend::rgb_to_grayscale(x, y);
  if (x.dtype == DType::f64) run_all.operator()<double>();
  else run_all.operator()<float>();
}

}  // namespace gradus
