// Cross-entropy, a row at a time: -log_softmax(x)[i, target[i]] of row i;  dx = (softmax(x) - onehot(target)) dloss.
#include <cmath>
#include <limits>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/backends/openmp/simd/scratch.h>
#include <gradus/backends/openmp/simd/softmax.h>
#include <gradus/core/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

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

// Rows per chunk of parallel work.
int64_t rows_per_chunk(int64_t size) { return ceil_div(kGrain / 8, std::max<int64_t>(size, 1)); }

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
    parallel_for(dx.shape[0], ceil_div(kGrain, dx.shape[1] + 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* row = dx.as<T>() + i * dx.strides[0];
        for (int64_t j = 0; j < dx.shape[1]; ++j) row[j * dx.strides[1]] = T(0);
        if (classes[i] >= 0) row[classes[i] * dx.strides[1]] = dy.as<T>()[i * dy.strides[0]];
      }
    });
  });
}

void OpenmpBackend::cross_entropy(const CrossEntropyArgs& args) {
  const View &x = args.x, &target = args.target;
  const MutableView &log_probabilities = args.log_probabilities, &loss = args.loss, &weight_sum = args.weight_sum;
  EventScope event("cross_entropy", "openmp", kernel_table().vectors, {&x, &target, &log_probabilities}, 5 * x.numel());
  const int64_t rows = x.shape[0], size = x.shape[1];
  const Scratch<int64_t> classes = classes_of(target, args.ignore_index, size);
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
      if (args.reduction == Reduction::none) loss.as<T>()[i * loss.strides[0]] = scalar::convert<T>(losses[i]);
      sum += losses[i];
      counted += classes[i] >= 0;
    }
    *weight_sum.as<T>() = scalar::convert<T>(counted);
    if (args.reduction == Reduction::sum) *loss.as<T>() = scalar::convert<T>(sum);
    if (args.reduction == Reduction::mean) *loss.as<T>() = scalar::convert<T>(sum / static_cast<double>(counted));
  });
}

void OpenmpBackend::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  const View &dloss = args.dloss, &log_probabilities = args.log_probabilities, &target = args.target,
             &weight_sum = args.weight_sum;
  const MutableView& dx = args.dx;
  EventScope event("cross_entropy_backward", "openmp", kernel_table().vectors,
                   {&dloss, &log_probabilities, &target, &dx}, 3 * dx.numel());
  const int64_t rows = dx.shape[0], size = dx.shape[1];
  const Scratch<int64_t> classes = classes_of(target, args.ignore_index, size);
  visit_wide(dx.dtype, [&]<class C> {
    const Kernels<C>& kernels = kernels_of<C>(kernel_table());
    const auto scale_of = [&](int64_t row) {
      C scale, weight;
      const int64_t at = args.reduction == Reduction::none ? row * dloss.strides[0] : 0;
      scale = *load_block(dloss.data, dloss.dtype, at, 1, 1, &scale);
      if (args.reduction == Reduction::mean) scale /= *load_block(weight_sum.data, weight_sum.dtype, 0, 1, 1, &weight);
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
          kernels.unary[UnaryOp::exp].apply(row, buffer.get(), size, {});
          buffer[classes[i]] -= C(1);
          for (int64_t j = 0; j < size; ++j) buffer[j] *= scale;
        }
        store_block(buffer.get(), dx.data, dx.dtype, i * dx.strides[0], dx.strides[1], size);
      }
    });
  });
}

}  // namespace gradus
