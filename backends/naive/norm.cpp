// y = (x - mean) s w + b with s = 1 / sqrt(variance + eps); mean and variance over `axes` in two passes, in double.
// With g = dy w and h = (x - mean) s:  dx = s (g - avg(g) - h avg(g h)),  dw = sum(dy h),  db = sum(dy).
#include <cmath>
#include <vector>

#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>

namespace gradus {

using namespace naive_detail;
namespace {

// A weight or bias. If it is absent, all its elements have the value `absent`.
struct Parameter {
  Parameter(const View& view, int ndim, double absent)
      : view(view), strides(view ? view.strides : Dims::filled(ndim, 0)), absent(absent) {}
  double operator[](int64_t at) const { return view ? load(view, at) : absent; }
  const View& view;
  Strides strides;
  double absent;
};

}  // namespace

void NaiveBackend::normalize(const NormalizeArgs& args) {
  if (args.relu || args.running) return Backend::normalize(args);
  const View& x = args.x;
  const MutableView &y = args.y, &mean = args.mean, &variance = args.variance;
  NaiveEvent event("normalize", {&x, &y}, 8 * x.numel());
  const Shape outer = only_axes(x.shape, ~args.axes), inner = only_axes(x.shape, args.axes);
  const Parameter w(args.weight, x.ndim(), 1), b(args.bias, x.ndim(), 0);
  for_each(outer, {&x.strides, &y.strides, &w.strides, &b.strides, &mean.strides, &variance.strides},
           [&](const int64_t* o) {
             double average = 0, deviation2 = 0, count = 0;
             if (args.fixed_statistics) {
               average = load(mean, o[4]), deviation2 = load(variance, o[5]);
             } else {
               for_each(inner, {&x.strides}, [&](const int64_t* i) { average += load(x, o[0] + i[0]), ++count; });
               average /= count;
               for_each(inner, {&x.strides}, [&](const int64_t* i) {
                 const double d = load(x, o[0] + i[0]) - average;
                 deviation2 += d * d;
               });
               deviation2 /= count;
               store(mean, o[4], average), store(variance, o[5], deviation2);
             }
             const double s = 1 / std::sqrt(deviation2 + args.eps);
             for_each(inner, {&x.strides, &y.strides, &w.strides, &b.strides}, [&](const int64_t* i) {
               store(y, o[1] + i[1], (load(x, o[0] + i[0]) - average) * s * w[o[2] + i[2]] + b[o[3] + i[3]]);
             });
           });
}

void NaiveBackend::normalize_backward(const NormalizeBackwardArgs& args) {
  if (args.y) return Backend::normalize_backward(args);
  const View &dy = args.dy, &x = args.x, &mean = args.mean, &variance = args.variance;
  const MutableView &dx = args.dx, &dweight = args.dweight, &dbias = args.dbias;
  NaiveEvent event("normalize_backward", {&dy, &x}, 12 * x.numel());
  const Shape outer = only_axes(x.shape, ~args.axes), inner = only_axes(x.shape, args.axes);
  const Parameter w(args.weight, x.ndim(), 1);
  // Gradients of the parameters accumulate in double, in row-major arrays of the parameters' shape.
  const Shape shape = dweight ? dweight.shape : dbias ? dbias.shape : Dims::filled(x.ndim(), 1);
  Strides p = contiguous_strides(shape);
  for (int i = 0; i < p.size(); ++i)
    if (shape[i] == 1) p[i] = 0;
  std::vector<double> dw(static_cast<size_t>(numel_of(shape))), db(dw.size());

  const Strides dx_strides = dx ? dx.strides : Dims::filled(x.ndim(), 0);
  for_each(outer, {&dy.strides, &x.strides, &w.strides, &p, &dx_strides, &mean.strides, &variance.strides},
           [&](const int64_t* o) {
             const double average = load(mean, o[5]), s = 1 / std::sqrt(load(variance, o[6]) + args.eps);
             double count = 0, sum_g = 0, sum_gh = 0;
             for_each(inner, {&dy.strides, &x.strides, &w.strides, &p}, [&](const int64_t* i) {
               const double gradient = load(dy, o[0] + i[0]), h = (load(x, o[1] + i[1]) - average) * s;
               const double g = gradient * w[o[2] + i[2]];
               sum_g += g, sum_gh += g * h, ++count;
               dw[static_cast<size_t>(o[3] + i[3])] += gradient * h;
               db[static_cast<size_t>(o[3] + i[3])] += gradient;
             });
             if (!dx) return;
             if (args.fixed_statistics) sum_g = sum_gh = 0;
             for_each(inner, {&dy.strides, &x.strides, &w.strides, &dx_strides}, [&](const int64_t* i) {
               const double g = load(dy, o[0] + i[0]) * w[o[2] + i[2]], h = (load(x, o[1] + i[1]) - average) * s;
               store(dx, o[4] + i[3], s * (g - sum_g / count - h * sum_gh / count));
             });
           });
  size_t next = 0;
  const Strides dw_strides = dweight ? dweight.strides : p, db_strides = dbias ? dbias.strides : p;
  for_each(shape, {&dw_strides, &db_strides}, [&](const int64_t* at) {
    if (dweight) store(dweight, at[0], dw[next]);
    if (dbias) store(dbias, at[1], db[next]);
    ++next;
  });
}

}  // namespace gradus
