// gather   y[…, i, …] = x[…, index[…, i, …], …]
// scatter  y[…, index[…, i, …], …] = x[…, i, …], or += x[…, i, …]
// i is the position along `axis`. Elements are visited in row-major order. This file also has nonzero.
#include <gradus/backends/naive/loops.h>
#include <gradus/backends/naive/naive.h>
#include <gradus/core/composites/arithmetic.h>
#include <gradus/core/formulas/integers.h>

namespace gradus {

using namespace naive_detail;
namespace naive_detail {

Shape distinct_sizes(const View& index) {
  Shape sizes = index.shape;
  for (int i = 0; i < sizes.size(); ++i)
    if (index.strides[i] == 0) sizes[i] = std::min<int64_t>(sizes[i], 1);
  return sizes;
}

void check_index(const View& index, int axis, int64_t size) {
  const Shape sizes = distinct_sizes(index);
  int64_t count = 0;
  for_each(sizes, {&index.strides}, [&](const int64_t* at) {
    const int64_t found = index.as<int64_t>()[at[0]];
    if (found < 0 || found >= size) {
      Dims position;
      for (int i = sizes.size() - 1; i >= 0; --i) {
        if (index.strides[i] != 0) position.insert(0, count % sizes[i]);
        count /= sizes[i];
      }
      GRADUS_FAIL(IndexError, "index ", found, " at position ", position, " is outside dimension ", axis, " of size ",
                  size);
    }
    ++count;
  });
}

bool scatter_add_in_float32(Backend& backend, const View& x, int axis, const View& index, const MutableView& y) {
  if (y.dtype != DType::f16 && y.dtype != DType::bf16) return false;
  const composites::Arithmetic math(backend);
  const Array sums = math.widen(y);
  backend.scatter(math.widen(x), axis, index, /*accumulate=*/true, sums);
  backend.copy(sums, y);
  return true;
}

}  // namespace naive_detail

// `strides` with stride 0 at `axis`, for loops over the other axes.
static Strides without_step(Strides strides, int axis) {
  strides[axis] = 0;
  return strides;
}

void NaiveBackend::gather(const View& x, int axis, const View& index, const MutableView& y) {
  NaiveEvent event("gather", {&x, &index, &y});
  check_index(index, axis, x.shape[axis]);
  const Strides others = without_step(x.strides, axis);
  visit(y.dtype, [&]<class T> {
    for_each(y.shape, {&y.strides, &others, &index.strides}, [&](const int64_t* at) {
      y.as<T>()[at[0]] = x.as<T>()[at[1] + index.as<int64_t>()[at[2]] * x.strides[axis]];
    });
  });
}

void NaiveBackend::scatter(const View& x, int axis, const View& index, bool accumulate, const MutableView& y) {
  if (accumulate && scatter_add_in_float32(*this, x, axis, index, y)) return;
  NaiveEvent event("scatter", {&x, &index, &y}, accumulate ? x.numel() : 0);
  check_index(index, axis, y.shape[axis]);
  const Strides others = without_step(y.strides, axis);
  visit(y.dtype, [&]<class T> {
    for_each(x.shape, {&x.strides, &others, &index.strides}, [&](const int64_t* at) {
      T& out = y.as<T>()[at[1] + index.as<int64_t>()[at[2]] * y.strides[axis]];
      const T element = x.as<T>()[at[0]];
      out = accumulate ? static_cast<T>(wrapping_sum<compute_t<T>>(out, element)) : element;
    });
  });
}

void NaiveBackend::nonzero(const View& x, const MutableView& positions) {
  NaiveEvent event("nonzero", {&x, &positions});
  int64_t element = 0, row = 0;
  for_each(x.shape, {&x.strides}, [&](const int64_t* at) {
    if (x.as<bool>()[at[0]]) {
      int64_t* out = positions.as<int64_t>() + row++ * positions.strides[0];
      int64_t rest = element;
      for (int i = x.ndim() - 1; i >= 0; rest /= x.shape[i--]) out[i * positions.strides[1]] = rest % x.shape[i];
    }
    ++element;
  });
}

}  // namespace gradus
