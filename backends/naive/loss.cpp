// Softmax and cross-entropy, in double.
//   softmax      y = exp(x - m) / Z,  m = max(x),  Z = sum(exp(x - m)) along the axis;   dx = y (dy - sum(dy y))
//   log_softmax  y = x - m - ln Z;                                                        dx = dy - exp(y) sum(dy)
//   cross-entropy of row i:  -log_softmax(x)[i, target[i]];                    dx = (softmax(x) - onehot(target)) dloss
#include <algorithm>
#include <cmath>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>

namespace gradus {

using namespace naive_detail;

int64_t naive_detail::class_of(const View& target, int64_t row, int64_t ignore_index, int64_t classes) {
  const int64_t index = target.as<int64_t>()[row * target.strides[0]];
  if (index == ignore_index) return -1;
  GRADUS_CHECK(index >= 0 && index < classes, IndexError, "target ", index, " of row ", row, " is not one of the ",
               classes, " classes 0 to ", classes - 1);
  return index;
}

void NaiveBackend::pick(const View& x, const View& target, int64_t ignore_index, const MutableView& y) {
  NaiveEvent event("pick", {&x, &target, &y});
  visit(x.dtype, [&]<class T> {
    loop(x.shape[0], [&](int64_t i) {
      const int64_t c = class_of(target, i, ignore_index, x.shape[1]);
      y.as<T>()[i * y.strides[0]] = c < 0 ? T(0) : x.as<T>()[i * x.strides[0] + c * x.strides[1]];
    });
  });
}

void NaiveBackend::pick_backward(const View& dy, const View& target, int64_t ignore_index, const MutableView& dx) {
  NaiveEvent event("pick_backward", {&dy, &target, &dx});
  visit(dx.dtype, [&]<class T> {
    loop(dx.shape[0], [&](int64_t i) {
      const int64_t c = class_of(target, i, ignore_index, dx.shape[1]);
      T* row = dx.as<T>() + i * dx.strides[0];
      for (int64_t j = 0; j < dx.shape[1]; ++j) row[j * dx.strides[1]] = T(0);
      if (c >= 0) row[c * dx.strides[1]] = dy.as<T>()[i * dy.strides[0]];
    });
  });
}

void NaiveBackend::softmax(const View& x, int axis, SoftmaxKind kind, const MutableView& y) {
  const bool log = kind == SoftmaxKind::log_softmax, or_zeros = kind == SoftmaxKind::or_zeros;
  NaiveEvent event(log ? "log_softmax" : "softmax", {&x, &y}, 5 * x.numel());
  const int64_t size = x.ndim() ? x.shape[axis] : 1;
  visit_floating(y.dtype, [&]<class T> {
    for_each(without_axis(x.shape, axis), {&x.strides, &y.strides}, [&](const int64_t* at) {
      const auto input = [&](int64_t i) { return static_cast<double>(x.as<T>()[at[0] + i * x.strides[axis]]); };
      double max = -INFINITY, sum = 0;
      for (int64_t i = 0; i < size; ++i) max = std::max(max, input(i));
      if (or_zeros && max == -INFINITY) max = 0;
      for (int64_t i = 0; i < size; ++i) sum += std::exp(input(i) - max);
      if (or_zeros && sum == 0) sum = 1;
      const double log_sum = std::log(sum);
      for (int64_t i = 0; i < size; ++i)
        y.as<T>()[at[1] + i * y.strides[axis]] =
            scalar::convert<T>(log ? input(i) - max - log_sum : std::exp(input(i) - max) / sum);
    });
  });
}

void NaiveBackend::softmax_backward(const View& dy, const View& y, int axis, bool log, const MutableView& dx) {
  NaiveEvent event(log ? "log_softmax_backward" : "softmax_backward", {&dy, &y, &dx}, 4 * dx.numel());
  const int64_t size = y.ndim() ? y.shape[axis] : 1;
  visit_floating(dx.dtype, [&]<class T> {
    for_each(without_axis(y.shape, axis), {&dy.strides, &y.strides, &dx.strides}, [&](const int64_t* at) {
      auto gradient = [&](int64_t i) { return static_cast<double>(dy.as<T>()[at[0] + i * dy.strides[axis]]); };
      auto output = [&](int64_t i) { return static_cast<double>(y.as<T>()[at[1] + i * y.strides[axis]]); };
      double sum = 0;
      for (int64_t i = 0; i < size; ++i) sum += log ? gradient(i) : gradient(i) * output(i);
      for (int64_t i = 0; i < size; ++i)
        dx.as<T>()[at[2] + i * dx.strides[axis]] =
            scalar::convert<T>(log ? gradient(i) - std::exp(output(i)) * sum : output(i) * (gradient(i) - sum));
    });
  });
}

void NaiveBackend::cross_entropy(const CrossEntropyArgs& args) {
  const View &x = args.x, &target = args.target;
  const MutableView &log_probabilities = args.log_probabilities, &loss = args.loss, &weight_sum = args.weight_sum;
  NaiveEvent event("cross_entropy", {&x, &target, &log_probabilities}, 5 * x.numel());
  softmax(x, 1, SoftmaxKind::log_softmax, log_probabilities);  // a virtual call: derived backends may override softmax
  double sum = 0;
  int64_t counted = 0;
  loop(x.shape[0], [&](int64_t i) {
    const int64_t c = class_of(target, i, args.ignore_index, x.shape[1]);
    const Strides& strides = log_probabilities.strides;
    const double row_loss = c < 0 ? 0 : -load(log_probabilities, i * strides[0] + c * strides[1]);
    if (args.reduction == Reduction::none) store(loss, i * loss.strides[0], row_loss);
    sum += row_loss;
    counted += c >= 0;
  });
  store(weight_sum, 0, static_cast<double>(counted));
  if (args.reduction == Reduction::sum) store(loss, 0, sum);
  if (args.reduction == Reduction::mean) store(loss, 0, sum / static_cast<double>(counted));
}

void NaiveBackend::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  const View &dloss = args.dloss, &log_probabilities = args.log_probabilities, &target = args.target;
  const MutableView& dx = args.dx;
  NaiveEvent event("cross_entropy_backward", {&dloss, &log_probabilities, &target, &dx}, 3 * dx.numel());
  const int64_t classes = dx.shape[1];
  loop(dx.shape[0], [&](int64_t i) {
    const int64_t c = class_of(target, i, args.ignore_index, classes);
    double scale = load(dloss, args.reduction == Reduction::none ? i * dloss.strides[0] : 0);
    if (args.reduction == Reduction::mean) scale /= load(args.weight_sum, 0);
    for (int64_t j = 0; j < classes; ++j) {
      const Strides& strides = log_probabilities.strides;
      const double probability = std::exp(load(log_probabilities, i * strides[0] + j * strides[1]));
      const double gradient = c < 0 ? 0 : (probability - (j == c ? 1 : 0)) * scale;
      store(dx, i * dx.strides[0] + j * dx.strides[1], gradient);
    }
  });
}

}  // namespace gradus
