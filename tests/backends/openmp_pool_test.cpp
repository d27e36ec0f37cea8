// Pooling and resampling of the openmp backend compared with naive, at sizes around the edges of vectors.
#include <limits>
#include <utility>

#include <gradus/core/ops/nn/nn.h>
#include <gradus/tests/backends/openmp_compare.h>

using namespace gradus;
using namespace gradus::test;

namespace {

constexpr MemoryFormat kFormats[] = {MemoryFormat::contiguous, MemoryFormat::channels_last};

// Values and indices concatenated to one array of doubles.
Array joined(const Array& values, const Array& indices) {
  const Array all = Array::empty({2, values.numel()}, DType::f64);
  naive().copy(values, all.select(0, 0).view(values.shape()));
  naive().copy(indices, all.select(0, 1).view(values.shape()));
  return all;
}

void check_max_pool(const Array& x, const Pool2dGeometry& g, bool ceil_mode) {
  INFO("x " << x.shape()[0] << ' ' << x.shape()[1] << ' ' << x.shape()[2] << ' ' << x.shape()[3] << " kernel "
            << g.kernel[0] << ' ' << g.kernel[1] << " stride " << g.stride[0] << " padding " << g.padding[0]
            << " dilation " << g.dilation[0] << " ceil " << ceil_mode);
  const Shape shape = ops::pool2d_shape(x.shape(), g, ceil_mode);
  const MemoryFormat format = x.strides()[1] == 1 ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  const Array y = Array::empty(shape, x.dtype(), {}, format), indices = Array::empty(shape, DType::i32, {}, format);
  compare(joined(y, indices), 0, [&](Backend& on, const Array& out) {
    const Array values = Array::empty_like(y), places = Array::empty_like(indices);
    on.max_pool2d(x, values, places, g);
    naive().copy(joined(values, places), out);
  });
  naive().max_pool2d(x, y, indices, g);
  const Array dy = random(shape, x.dtype(), format);
  compare(x, tolerance_of(x.dtype()),
          [&](Backend& on, const Array& dx) { on.max_pool2d_backward(dy, indices, dx, g); });
}

}  // namespace

TEST_CASE("openmp max pooling agrees with naive around the edges of vectors") {
  const Pool2dGeometry geometries[] = {
      {{2, 2}, {2, 2}, {0, 0}, {1, 1}}, {{3, 3}, {2, 2}, {1, 1}, {1, 1}}, {{3, 2}, {1, 1}, {1, 0}, {1, 1}},
      {{2, 3}, {3, 3}, {1, 1}, {2, 1}}, {{5, 5}, {1, 1}, {2, 2}, {1, 1}}, {{3, 3}, {2, 1}, {1, 1}, {2, 2}},
  };
  for (const Pool2dGeometry& g : geometries)
    for (int64_t width : {5, 7, 16, 17, 28, 33, 66})
      for (MemoryFormat format : kFormats) {
        check_max_pool(random({2, 3, 9, width}, DType::f32, format), g, width % 2 == 1);
        if (width == 17 || width == 28) check_max_pool(random({1, 18, 6, width}, DType::f64, format), g, width == 28);
      }
  for (MemoryFormat format : kFormats)
    for (int64_t channels : {1, 7, 15, 16, 17, 33})
      check_max_pool(random({2, channels, 8, 11}, DType::f32, format), geometries[1], false);
  check_max_pool(random({2, 3, 8, 9}, DType::f16), geometries[1], false);
  check_max_pool(random({0, 3, 8, 9}), geometries[1], false);
}

TEST_CASE("openmp max pooling of 2 x 2 windows, cut by the edge along either axis, and of almost such windows") {
  const Pool2dGeometry geometries[] = {
      {{2, 2}, {2, 2}, {0, 0}, {1, 1}}, {{3, 2}, {2, 2}, {0, 0}, {1, 1}}, {{2, 3}, {2, 2}, {0, 0}, {1, 1}},
      {{2, 2}, {1, 2}, {0, 0}, {1, 1}}, {{2, 2}, {2, 1}, {0, 0}, {1, 1}}, {{2, 2}, {2, 2}, {1, 0}, {1, 1}},
      {{2, 2}, {2, 2}, {0, 1}, {1, 1}}, {{2, 2}, {2, 2}, {0, 0}, {2, 1}}, {{2, 2}, {2, 2}, {0, 0}, {1, 2}},
      {{1, 1}, {2, 2}, {0, 0}, {1, 1}}, {{2, 2}, {3, 2}, {0, 0}, {1, 1}}, {{2, 2}, {2, 3}, {0, 0}, {1, 1}},
  };
  for (const Pool2dGeometry& g : geometries)
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>{4, 4}, {4, 5}, {5, 4}, {5, 5}, {8, 33}, {33, 8}})
      for (const bool ceil_mode : {false, true})
        for (MemoryFormat format : kFormats)
          check_max_pool(random({1, 3, height, width}, DType::f32, format), g, ceil_mode);
}

TEST_CASE("openmp max pooling: equals, NaN and infinities") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (MemoryFormat format : kFormats) {
    const Array x = Array::empty({1, 2, 6, 40}, DType::f32, {}, format);
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = i % 7 == 0   ? nan
                           : i % 5 == 0 ? infinity
                           : i % 3 == 0 ? -infinity
                                        : static_cast<float>(i % 4);
    check_max_pool(x, {{3, 3}, {2, 2}, {1, 1}, {1, 1}}, true);
    naive().fill(x, -infinity);  // the first element of each window, not its padding
    check_max_pool(x, {{3, 3}, {2, 2}, {1, 1}, {1, 1}}, true);
    check_max_pool(x, {{2, 2}, {2, 2}, {0, 0}, {1, 1}}, true);
  }
}

namespace {

void check_resample(const Shape& size, const ops::OwnedStencil& rows, const ops::OwnedStencil& columns, DType dtype) {
  INFO("x " << size[0] << ' ' << size[1] << ' ' << size[2] << ' ' << size[3] << " to " << rows.size_out() << ' '
            << columns.size_out() << " dtype " << static_cast<int>(dtype));
  for (MemoryFormat format : kFormats) {
    const Array x = random(size, dtype, format);
    const Array y = random({size[0], size[1], rows.size_out(), columns.size_out()}, dtype, format);
    compare(y, tolerance_of(dtype) * 4,
            [&](Backend& on, const Array& out) { on.resample2d(x, rows.view(), columns.view(), out); });
    const ops::OwnedStencil up = rows.transposed(), across = columns.transposed();
    compare(x, tolerance_of(dtype) * 4,
            [&](Backend& on, const Array& out) { on.resample2d(y, up.view(), across.view(), out); });
  }
}

}  // namespace

TEST_CASE("openmp resampling agrees with naive around the edges of vectors") {
  for (int64_t size : {1, 2, 7, 15, 16, 17, 28, 33}) {
    const Shape x = {2, 3, 5, size};
    const ops::OwnedStencil keep = ops::OwnedStencil::identity(5);
    check_resample(x, ops::nearest_stencil(5, 10, 2, false), ops::nearest_stencil(size, 2 * size, 2, false),
                   DType::f32);
    check_resample(x, ops::nearest_stencil(5, 15, 3, false), ops::nearest_stencil(size, 3 * size, 3, false),
                   DType::f32);
    check_resample(x, ops::linear_stencil(5, 10, 2, false), ops::linear_stencil(size, 2 * size, 2, false), DType::f32);
    check_resample(x, keep, ops::linear_stencil(size, size + 3, 1.0 + 3.0 / static_cast<double>(size), true),
                   DType::f64);
    check_resample(x, ops::adaptive_average_stencil(5, 1), ops::adaptive_average_stencil(size, 1), DType::f32);
    check_resample(x, ops::adaptive_average_stencil(5, 3), ops::adaptive_average_stencil(size, 4), DType::f32);
    check_resample(x, ops::average_stencil(5, 3, 3, 2, 1, true, 0),
                   ops::average_stencil(size, (size - 1) / 2 + 1, 3, 2, 1, false, 0), DType::f32);
    if (size > 1) check_resample(x, keep, ops::average_stencil(size, size / 2, 2, 2, 0, true, 0), DType::f64);
  }
  check_resample({1, 33, 6, 8}, ops::nearest_stencil(6, 12, 2, false), ops::cubic_stencil(8, 20, 2.5, false),
                 DType::f32);
  check_resample({1, 17, 6, 8}, ops::nearest_stencil(6, 12, 2, false), ops::linear_stencil(8, 16, 2, false),
                 DType::bf16);
}

TEST_CASE("openmp resampling: infinities and NaN reach only outputs that depend on them") {
  const float infinity = std::numeric_limits<float>::infinity();
  Array x = random({1, 1, 4, 20});
  x.data<float>()[0] = infinity;
  const ops::OwnedStencil rows = ops::average_stencil(4, 2, 3, 2, 1, true, 0);
  const ops::OwnedStencil columns = ops::average_stencil(20, 10, 3, 2, 1, true, 0);
  compare(random({1, 1, 2, 10}), 1e-5,
          [&](Backend& on, const Array& out) { on.resample2d(x, rows.view(), columns.view(), out); });
}
