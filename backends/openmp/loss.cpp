// Softmax and cross-entropy, a row at a time:
//   softmax      y = exp(x - m) / Z,  m = max(x),  Z = sum(exp(x - m)) along the axis;   dx = y (dy - sum(dy y))
//   log_softmax  y = x - m - ln Z;                                                        dx = dy - exp(y) sum(dy)
//   cross-entropy of row i:  -log_softmax(x)[i, target[i]];                    dx = (softmax(x) - onehot(target)) dloss
#include <cmath>
#include <limits>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/loops.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/scratch.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp;

// Classes by row, checked before any thread starts; -1 where the row is ignored.
Scratch<int64_t> classes_of(const View& target, int64_t ignore_index, int64_t classes) {
  const int64_t rows = target.shape[0];
  Scratch<int64_t> result(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t index = target.as<int64_t>()[row * target.strides[0]];
    GRADUS_CHECK(index == ignore_index || (index >= 0 && index < classes), IndexError, "target ", index, " of row ",
                 row, " is not one of the ", classes, " classes 0 to ", classes - 1);
    result[row] = index == ignore_index ? -1 : index;
  }
  return result;
}

template <class F>
void visit_wide(DType dtype, F&& f) {
  GRADUS_CHECK(is_floating(dtype), DTypeError, "needs a floating-point type, got ", dtype);
  if (dtype == DType::f64) f.template operator()<double>();
  else f.template operator()<float>();
}

// Rows per chunk of parallel work.
int64_t rows_per_chunk(int64_t size) { return divide_up(kGrain / 8, std::max<int64_t>(size, 1)); }

// y = softmax or log_softmax of x; all contiguous. y may be x.
template <class C>
void softmax_row(const Kernels<C>& kernels, const C* x, C* y, int64_t size, bool log) {
  C max = -std::numeric_limits<C>::infinity();
  for (int64_t i = 0; i < size; ++i) max = x[i] > max ? x[i] : max;
  const C sum = kernels.exp_sum(x, max, log ? nullptr : y, size);
  if (log) {
    const C log_sum = std::log(sum);
    for (int64_t i = 0; i < size; ++i) y[i] = x[i] - max - log_sum;
  } else {
    const C scale = C(1) / sum;
    for (int64_t i = 0; i < size; ++i) y[i] *= scale;
  }
}

// Calls row(n, offsets) for every row along `axis`: operand k's starts at offsets[k]. Chunks by shape.
template <int N, class F>
void parallel_rows(const Shape& shape, int axis, const Strides* const (&strides)[N], F&& make_row) {
  Shape outer = shape;
  if (outer.size() > 0) outer[axis] = 1;
  const int64_t size = shape.size() ? shape[axis] : 1;
  const StridedLoop<N> nest(outer, strides);
  parallel_for(nest.numel, rows_per_chunk(size), [&](int64_t begin, int64_t end) {
    auto row = make_row(size);
    for_each_run(nest, begin, end, [&](const int64_t* at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        int64_t offsets[N];
        for (int k = 0; k < N; ++k) offsets[k] = at[k] + i * step_of(nest, k);
        row(offsets);
      }
    });
  });
}

}  // namespace

void OpenmpBackend::pick(const View& x, const View& target, int64_t ignore_index, const MutableView& y) {
  EventScope event("pick", "openmp", "loops", {&x, &target, &y});
  const Scratch<int64_t> classes = classes_of(target, ignore_index, x.shape[1]);
  visit(x.dtype, [&]<class T> {
    parallel_for(x.shape[0], kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        y.as<T>()[i * y.strides[0]] = classes[i] < 0 ? T(0) : x.as<T>()[i * x.strides[0] + classes[i] * x.strides[1]];
    });
  });
}

void OpenmpBackend::pick_backward(const View& dy, const View& target, int64_t ignore_index, const MutableView& dx) {
  EventScope event("pick_backward", "openmp", "loops", {&dy, &target, &dx});
  const Scratch<int64_t> classes = classes_of(target, ignore_index, dx.shape[1]);
  visit(dx.dtype, [&]<class T> {
    parallel_for(dx.shape[0], divide_up(kGrain, dx.shape[1] + 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* row = dx.as<T>() + i * dx.strides[0];
        for (int64_t j = 0; j < dx.shape[1]; ++j) row[j * dx.strides[1]] = T(0);
        if (classes[i] >= 0) row[classes[i] * dx.strides[1]] = dy.as<T>()[i * dy.strides[0]];
      }
    });
  });
}

void OpenmpBackend::softmax(const View& x, int axis, bool log, const MutableView& y) {
  const KernelTable& table = kernel_table();
  EventScope event(log ? "log_softmax" : "softmax", "openmp", table.vectors, {&x, &y}, 5 * x.numel());
  if (x.numel() == 0) return;
  const int64_t x_step = x.ndim() ? x.strides[axis] : 0, y_step = y.ndim() ? y.strides[axis] : 0;
  visit_wide(y.dtype, [&]<class C> {
    parallel_rows<2>(x.shape, axis, {&y.strides, &x.strides}, [&](int64_t size) {
      return [&, size, buffer = Scratch<C>(size)](const int64_t* at) {
        const C* row = load_block(x.data, x.dtype, at[1], x_step, size, buffer.get());
        softmax_row(kernels_of<C>(table), row, buffer.get(), size, log);
        store_block(buffer.get(), y.data, y.dtype, at[0], y_step, size);
      };
    });
  });
}

void OpenmpBackend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  const KernelTable& table = kernel_table();
  EventScope event(log ? "log_softmax_backward" : "softmax_backward", "openmp", table.vectors, {&dy, &y, &dx},
                   4 * dx.numel());
  if (y.numel() == 0) return;
  const auto step = [&](const Strides& strides) { return strides.size() ? strides[axis] : 0; };
  visit_wide(dx.dtype, [&]<class C> {
    parallel_rows<3>(y.shape, axis, {&dx.strides, &dy.strides, &y.strides}, [&](int64_t size) {
      return [&, size, out = Scratch<C>(size), g_buffer = Scratch<C>(size),
              y_buffer = Scratch<C>(size)](const int64_t* at) {
        const C* gradient = load_block(dy.data, dy.dtype, at[1], step(dy.strides), size, g_buffer.get());
        const C* output = load_block(y.data, y.dtype, at[2], step(y.strides), size, y_buffer.get());
        const Kernels<C>& kernels = kernels_of<C>(table);
        if (log) {
          kernels.exp(output, out.get(), size);
          const C sum = kernels.sum(gradient, size);
          for (int64_t i = 0; i < size; ++i) out[i] = gradient[i] - out[i] * sum;
        } else {
          kernels.mul(gradient, output, out.get(), size);
          const C sum = kernels.sum(out.get(), size);
          for (int64_t i = 0; i < size; ++i) out[i] = output[i] * (gradient[i] - sum);
        }
        store_block(out.get(), dx.data, dx.dtype, at[0], step(dx.strides), size);
      };
    });
  });
}

void OpenmpBackend::cross_entropy(const View& x, const View& target, int64_t ignore_index, Reduction reduction,
                                  const MutableView& log_probabilities, const MutableView& loss,
                                  const MutableView& weight_sum) {
  EventScope event("cross_entropy", "openmp", kernel_table().vectors, {&x, &target, &log_probabilities}, 5 * x.numel());
  const int64_t rows = x.shape[0], size = x.shape[1];
  const Scratch<int64_t> classes = classes_of(target, ignore_index, size);
  const Scratch<double> losses(rows);
  visit_wide(x.dtype, [&]<class C> {
    const Kernels<C>& kernels = kernels_of<C>(kernel_table());
    parallel_for(rows, rows_per_chunk(size), [&](int64_t begin, int64_t end) {
      const Scratch<C> buffer(size);
      for (int64_t i = begin; i < end; ++i) {
        const C* row = load_block(x.data, x.dtype, i * x.strides[0], x.strides[1], size, buffer.get());
        softmax_row(kernels, row, buffer.get(), size, true);
        store_block(buffer.get(), log_probabilities.data, log_probabilities.dtype, i * log_probabilities.strides[0],
                    log_probabilities.strides[1], size);
        losses[i] = classes[i] < 0 ? 0 : -static_cast<double>(buffer[classes[i]]);
      }
    });
  });
  visit_floating(x.dtype, [&]<class T> {
    double sum = 0;
    int64_t counted = 0;
    for (int64_t i = 0; i < rows; ++i) {
      if (reduction == Reduction::none) loss.as<T>()[i * loss.strides[0]] = scalar::convert<T>(losses[i]);
      sum += losses[i];
      counted += classes[i] >= 0;
    }
    *weight_sum.as<T>() = scalar::convert<T>(counted);
    if (reduction == Reduction::sum) *loss.as<T>() = scalar::convert<T>(sum);
    if (reduction == Reduction::mean) *loss.as<T>() = scalar::convert<T>(sum / static_cast<double>(counted));
  });
}

void OpenmpBackend::cross_entropy_backward(const View& dloss, const View& log_probabilities, const View& target,
                                           int64_t ignore_index, Reduction reduction, const View& weight_sum,
                                           const MutableView& dx) {
  EventScope event("cross_entropy_backward", "openmp", kernel_table().vectors,
                   {&dloss, &log_probabilities, &target, &dx}, 3 * dx.numel());
  const int64_t rows = dx.shape[0], size = dx.shape[1];
  const Scratch<int64_t> classes = classes_of(target, ignore_index, size);
  visit_wide(dx.dtype, [&]<class C> {
    const Kernels<C>& kernels = kernels_of<C>(kernel_table());
    const auto scale_of = [&](int64_t row) {
      C scale, weight;
      const int64_t at = reduction == Reduction::none ? row * dloss.strides[0] : 0;
      scale = *load_block(dloss.data, dloss.dtype, at, 1, 1, &scale);
      if (reduction == Reduction::mean) scale /= *load_block(weight_sum.data, weight_sum.dtype, 0, 1, 1, &weight);
      return scale;
    };
    parallel_for(rows, rows_per_chunk(size), [&](int64_t begin, int64_t end) {
      const Scratch<C> buffer(size);
      for (int64_t i = begin; i < end; ++i) {
        if (classes[i] < 0) {
          std::fill_n(buffer.get(), size, C(0));
        } else {
          const C scale = scale_of(i);
          const C* row = load_block(log_probabilities.data, log_probabilities.dtype, i * log_probabilities.strides[0],
                                    log_probabilities.strides[1], size, buffer.get());
          kernels.exp(row, buffer.get(), size);
          buffer[classes[i]] -= C(1);
          for (int64_t j = 0; j < size; ++j) buffer[j] *= scale;
        }
        store_block(buffer.get(), dx.data, dx.dtype, i * dx.strides[0], dx.strides[1], size);
      }
    });
  });
}

}  // namespace gradus
