// Operators on images against their definitions, written as loops. All sizes of an image differ, and so do those of a
// kernel, because equal ones hide that one was taken for another.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/catch.h>

#include "op_testing.h"

namespace image_definitions_test {

using namespace gradus;
using Index = std::vector<int64_t>;

Tensor numbered(const Shape& shape) { return arange(1, 1 + numel_of(shape), kDouble).reshape(shape); }

double at(const Tensor& x, const Index& index) {
  int64_t place = 0;
  for (int i = 0; i < x.dim(); ++i) place += index[static_cast<size_t>(i)] * x.stride(i);
  return static_cast<const double*>(x.data_ptr())[place];
}

/// A tensor of this shape whose element at each index is value(index).
Tensor tabulated(const Shape& shape, const std::function<double(const Index&)>& value) {
  const Tensor y = zeros(shape, kDouble);
  double* const numbers = y.data_ptr<double>();
  for (int64_t count = 0; count < y.numel(); ++count) {
    Index index(static_cast<size_t>(shape.size()));
    int64_t rest = count;
    for (int i = shape.size() - 1; i >= 0; rest /= shape[i--]) index[static_cast<size_t>(i)] = rest % shape[i];
    numbers[count] = value(index);
  }
  return y;
}

TEST_CASE("pixels and channels are shuffled within each image") {
  const int64_t r = 2;
  for (const Shape& lead : {Shape{}, Shape{5}, Shape{3, 5}}) {
    Shape shape = lead;
    for (const int64_t size : {12, 3, 7}) shape.push_back(size);
    const Tensor x = numbered(shape), y = pixel_shuffle(x, r);
    shape[lead.size()] = 3, shape[lead.size() + 1] = 6, shape[lead.size() + 2] = 14;
    const size_t c = static_cast<size_t>(lead.size());
    const Tensor wanted = tabulated(shape, [&](const Index& to) {
      Index from = to;
      from[c] = to[c] * r * r + to[c + 1] % r * r + to[c + 2] % r, from[c + 1] = to[c + 1] / r,
      from[c + 2] = to[c + 2] / r;
      return at(x, from);
    });
    CHECK(y.equal(wanted));
    CHECK(pixel_unshuffle(y, r).equal(x));
  }
  for (const Shape& shape : {Shape{5, 6, 2}, Shape{5, 6, 2, 7}, Shape{5, 6, 2, 7, 4}}) {
    const Tensor x = numbered(shape);
    CHECK(channel_shuffle(x, 3).equal(tabulated(shape, [&](const Index& to) {
      Index from = to;
      from[1] = to[1] % 3 * 2 + to[1] / 3;
      return at(x, from);
    })));
  }
}

TEST_CASE("unfold lists the windows of an image, and fold adds them up") {
  struct Geometry {
    int64_t h, w;
    Pair kernel, dilation, padding, stride;
  };
  for (const Geometry& g :
       {Geometry{7, 10, {2, 3}, {1, 1}, {0, 0}, {1, 1}}, Geometry{7, 10, {3, 2}, {2, 3}, {1, 0}, {2, 1}},
        Geometry{6, 9, {1, 4}, {1, 2}, {0, 3}, {3, 2}}, Geometry{4, 5, {4, 5}, {1, 1}, {0, 0}, {1, 1}},
        Geometry{5, 4, {2, 1}, {4, 1}, {0, 1}, {1, 5}}, Geometry{1, 2, {3, 2}, {1, 3}, {1, 1}, {1, 1}}}) {
    CAPTURE(g.h, g.w, g.kernel.h, g.kernel.w);
    const int64_t p = (g.h + 2 * g.padding.h - g.dilation.h * (g.kernel.h - 1) - 1) / g.stride.h + 1,
                  q = (g.w + 2 * g.padding.w - g.dilation.w * (g.kernel.w - 1) - 1) / g.stride.w + 1;
    const int64_t n = 2, c = 3, taps = g.kernel.h * g.kernel.w;
    const Tensor x = numbered({n, c, g.h, g.w});
    // Calls body(row, column, h, w) for each tap of each window that is inside the image.
    const auto each = [&](const auto& body) {
      for (int64_t row = 0; row < c * taps; ++row)
        for (int64_t column = 0; column < p * q; ++column) {
          const int64_t tap = row % taps;
          const int64_t h = column / q * g.stride.h + tap / g.kernel.w * g.dilation.h - g.padding.h;
          const int64_t w = column % q * g.stride.w + tap % g.kernel.w * g.dilation.w - g.padding.w;
          if (h >= 0 && h < g.h && w >= 0 && w < g.w) body(row, column, h, w);
        }
    };
    const Tensor wanted = zeros({n, c * taps, p * q}, kDouble), sums = zeros({n, c, g.h, g.w}, kDouble);
    const Tensor windows = numbered({n, c * taps, p * q});
    for (int64_t image = 0; image < n; ++image)
      each([&](int64_t row, int64_t column, int64_t h, int64_t w) {
        wanted.data_ptr<double>()[(image * c * taps + row) * p * q + column] = at(x, {image, row / taps, h, w});
        sums.data_ptr<double>()[((image * c + row / taps) * g.h + h) * g.w + w] += at(windows, {image, row, column});
      });
    CHECK(unfold(x, g.kernel, g.dilation, g.padding, g.stride).equal(wanted));
    CHECK(unfold(x[1], g.kernel, g.dilation, g.padding, g.stride).equal(wanted[1]));
    const Pair size{g.h, g.w};
    CHECK(fold(windows, size, g.kernel, g.dilation, g.padding, g.stride).equal(sums));
    CHECK(fold(windows[1], size, g.kernel, g.dilation, g.padding, g.stride).equal(sums[1]));
  }
}

TEST_CASE("windows need positive kernel sizes, dilations and strides along both axes") {
  const Tensor x = numbered({1, 1, 4, 4}), windows = numbered({1, 4, 9});
  const auto message = [](const std::string& what, const Pair& size) {
    return test::contains(what + " must be positive, got (" + std::to_string(size.h) + ", " + std::to_string(size.w));
  };
  for (const Pair& wrong : {Pair{0, 1}, Pair{1, 0}, Pair{-1, 1}, Pair{0, 0}}) {
    CHECK_THROWS_WITH(unfold(x, wrong), message("kernel_size", wrong));
    CHECK_THROWS_WITH(unfold(x, 2, wrong), message("dilation", wrong));
    CHECK_THROWS_WITH(unfold(x, 2, 1, 0, wrong), message("stride", wrong));
    CHECK_THROWS_WITH(fold(windows, 4, wrong), message("kernel_size", wrong));
    CHECK_THROWS_WITH(fold(windows, 4, 2, wrong), message("dilation", wrong));
    CHECK_THROWS_WITH(fold(windows, 4, 2, 1, 0, wrong), message("stride", wrong));
  }
}

TEST_CASE("padding repeats, reflects or wraps the elements of each axis") {
  // The place in an axis that element i of the padded axis copies, or -1 if it is the constant.
  const auto source = [](PadMode mode, int64_t i, int64_t size, int64_t before) -> int64_t {
    const int64_t place = i - before;
    if (place >= 0 && place < size) return place;
    if (mode == kReplicate) return place < 0 ? 0 : size - 1;
    if (mode == kReflect) return place < 0 ? -place : 2 * (size - 1) - place;
    return mode == kCircular ? (place + size) % size : -1;
  };
  const std::vector<std::vector<int64_t>> pads = {{2, 1},
                                                  {0, 3},
                                                  {2, 0},
                                                  {1, 2, 3, 0},
                                                  {0, 0, 0, 2},
                                                  {3, 1, 0, 0},
                                                  {1, 0, 2, 3, 0, 1},
                                                  {0, 2, 0, 0, 2, 0},
                                                  {-1, 2},
                                                  {1, -2},
                                                  {0, -1, -2, 1},
                                                  {-1, -1, 0, 0, 1, -1}};
  for (const PadMode mode : {kConstant, kReflect, kReplicate, kCircular})
    for (const std::vector<int64_t>& pad : pads)
      for (const int batch : {0, 1}) {
        const int axes = static_cast<int>(pad.size()) / 2;
        const bool crops = *std::min_element(pad.begin(), pad.end()) < 0;
        if (mode == kCircular && crops) continue;
        Shape shape = batch ? Shape{2, 3} : Shape{3};
        for (int i = axes - 1; i >= 0; --i) shape.push_back(4 + i);  // (…, 6, 5, 4)
        const Tensor x = numbered(shape);
        Shape padded = shape;
        for (int i = 0; i < axes; ++i) {
          const auto k = static_cast<size_t>(2 * i);
          padded[shape.size() - 1 - i] += pad[k] + pad[k + 1];
        }
        const Tensor wanted = tabulated(padded, [&](const Index& to) {
          Index from = to;
          for (int i = 0; i < axes; ++i) {
            const auto axis = static_cast<size_t>(shape.size() - 1 - i);
            from[axis] = source(mode, to[axis], shape[static_cast<int>(axis)], pad[static_cast<size_t>(2 * i)]);
            if (from[axis] < 0) return 0.5;
          }
          return at(x, from);
        });
        INFO(static_cast<int>(mode) << " " << to_string(pad) << " " << to_string(shape));
        CHECK(gradus::pad(x, pad, mode, 0.5).equal(wanted));
      }
  // A circular axis is cropped before it is repeated.
  CHECK(
      pad(numbered({1, 1, 5}), {2, -1}, kCircular).equal(tensor({3., 4., 1., 2., 3., 4.}, kDouble).reshape({1, 1, 6})));
  CHECK(pad(numbered({1, 1, 5}), {-2, 2}, kCircular).equal(tensor({3., 4., 5., 3., 4.}, kDouble).reshape({1, 1, 5})));
}

TEST_CASE("the largest margins that each mode allows are allowed, and larger ones are not") {
  const Tensor x = numbered({1, 1, 4});
  CHECK(pad(x, {3, 3}, kReflect).numel() == 10);
  CHECK_THROWS_AS(pad(x, {4, 0}, kReflect), ShapeError);
  CHECK_THROWS_AS(pad(x, {0, 4}, kReflect), ShapeError);
  CHECK(pad(x, {4, 4}, kCircular).numel() == 12);
  CHECK_THROWS_AS(pad(x, {5, 0}, kCircular), ShapeError);
  CHECK_THROWS_AS(pad(x, {0, 5}, kCircular), ShapeError);
  for (const int64_t before : {-1, 3}) {  // a circular axis of three elements after it is cropped
    CHECK(pad(x, {before, 2 - before}, kCircular).numel() == 6);
    CHECK_THROWS_AS(pad(x, before < 0 ? IntArrayRef{-1, 4} : IntArrayRef{4, -1}, kCircular), ShapeError);
  }
  CHECK(pad(x, {9, 9}, kReplicate).numel() == 22);
  CHECK(pad(numbered({1, 1, 1}), {2, 0}, kReplicate).numel() == 3);
  for (const PadMode mode : {kReflect, kReplicate, kCircular}) {
    CHECK(pad(x, {-3, 0}, mode).numel() == 1);
    CHECK_THROWS_AS(pad(x, {-4, 0}, mode), ShapeError);
    CHECK_THROWS_AS(pad(x, {0, -4}, mode), ShapeError);
    CHECK_THROWS_AS(pad(zeros({1, 1, 0}), {1, 1}, mode), ShapeError);
  }
  CHECK(pad(x, {-4, 0}).numel() == 0);
  CHECK(pad(x, {-2, -2}).numel() == 0);
  CHECK(pad(x, {-4, 2}).equal(zeros({1, 1, 2}, kDouble)));
  CHECK_THROWS_AS(pad(x, {-5, 2}), ShapeError);
  CHECK_THROWS_AS(pad(x, {2, -5}), ShapeError);
  CHECK_THROWS_AS(pad(x, {-3, -2}), ShapeError);
  const Tensor high = numbered({1, 9, 4});
  CHECK(pad(high, {0, 0, 0, -6}).equal(high.slice(1, 0, 3)));
  CHECK(pad(high, {0, 0, -6, 0}).equal(high.slice(1, 6)));
  for (const std::vector<int64_t>& too_much :
       std::vector<std::vector<int64_t>>{{2, -5, 0, 0}, {-5, 2, 0, 0}, {0, 0, 2, -10}, {0, 0, -10, 2}})
    CHECK_THROWS_AS(pad(high, too_much), ShapeError);
}

TEST_CASE("pooling combines the elements of its windows") {
  const Tensor x = numbered({2, 3, 7, 10}).sin();
  // The mean, or the maximum, of the part of a plane from (h, w) up to (h_end, w_end).
  const auto combined = [&](bool largest, int64_t n, int64_t c, int64_t h, int64_t w, int64_t h_end, int64_t w_end) {
    double sum = 0, most = -2;
    for (int64_t i = h; i < h_end; ++i)
      for (int64_t j = w; j < w_end; ++j) {
        sum += at(x, {n, c, i, j});
        most = std::max(most, at(x, {n, c, i, j}));
      }
    return largest ? most : sum / static_cast<double>((h_end - h) * (w_end - w));
  };
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{3, 4}, {1, 1}, {7, 10}, {5, 1}, {2, 10}, {9, 13}, {4, 3}})
    for (const bool largest : {false, true}) {
      CAPTURE(rows, columns, largest);
      const int64_t p = rows, q = columns;
      const Tensor wanted = tabulated({2, 3, p, q}, [&, p, q, largest](const Index& to) {
        return combined(largest, to[0], to[1], to[2] * 7 / p, to[3] * 10 / q, ((to[2] + 1) * 7 + p - 1) / p,
                        ((to[3] + 1) * 10 + q - 1) / q);
      });
      const Tensor y = largest ? adaptive_max_pool2d(x, {p, q}) : adaptive_avg_pool2d(x, {p, q});
      CHECK(y.allclose(wanted, 1e-12, 1e-12));
      const Tensor one = largest ? adaptive_max_pool2d(x[1], {p, q}) : adaptive_avg_pool2d(x[1], {p, q});
      CHECK(one.allclose(wanted[1], 1e-12, 1e-12));
    }
  struct Windows {
    Pair kernel, stride, padding;
  };
  for (const Windows& g : {Windows{{2, 3}, {2, 3}, {0, 0}}, Windows{{3, 5}, {1, 2}, {1, 2}},
                           Windows{{7, 2}, {4, 1}, {3, 1}}, Windows{{1, 10}, {3, 1}, {0, 5}}})
    for (const bool largest : {false, true}) {
      CAPTURE(g.kernel.h, g.kernel.w, largest);
      const int64_t p = (7 + 2 * g.padding.h - g.kernel.h) / g.stride.h + 1;
      const int64_t q = (10 + 2 * g.padding.w - g.kernel.w) / g.stride.w + 1;
      const Tensor wanted = tabulated({2, 3, p, q}, [&](const Index& to) {
        const int64_t h = to[2] * g.stride.h - g.padding.h, w = to[3] * g.stride.w - g.padding.w;
        return combined(largest, to[0], to[1], std::max<int64_t>(h, 0), std::max<int64_t>(w, 0),
                        std::min<int64_t>(h + g.kernel.h, 7), std::min<int64_t>(w + g.kernel.w, 10));
      });
      const Tensor y = largest ? max_pool2d(x, g.kernel, g.stride, g.padding)
                               : avg_pool2d(x, g.kernel, g.stride, g.padding, false, /*count_include_pad=*/false);
      CHECK(y.allclose(wanted, 1e-12, 1e-12));
    }
}

TEST_CASE("images are resized to every size by the nearest pixel or by an average of pixels") {
  const Tensor x = numbered({2, 3, 4, 6}).sin();
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{4, 6}, {8, 3}, {1, 1}, {3, 9}, {2, 12}, {5, 7}})
    for (const bool align : {false, true}) {
      CAPTURE(rows, columns, align);
      const int64_t p = rows, q = columns;
      const auto position = [align](int64_t i, int64_t in, int64_t out) {
        const double to = static_cast<double>(i), from = static_cast<double>(in), size = static_cast<double>(out);
        if (align) return out > 1 ? to * (from - 1) / (size - 1) : 0.0;
        return std::max(0.0, (to + 0.5) * from / size - 0.5);
      };
      const Tensor wanted = tabulated({2, 3, p, q}, [&, p, q](const Index& to) {
        const double h = position(to[2], 4, p), w = position(to[3], 6, q);
        const auto top = static_cast<int64_t>(h), left = static_cast<int64_t>(w);
        const double down = h - static_cast<double>(top), right = w - static_cast<double>(left);
        const auto pixel = [&](int64_t i, int64_t j) {
          return at(x, {to[0], to[1], std::min<int64_t>(i, 3), std::min<int64_t>(j, 5)});
        };
        return (1 - down) * ((1 - right) * pixel(top, left) + right * pixel(top, left + 1)) +
               down * ((1 - right) * pixel(top + 1, left) + right * pixel(top + 1, left + 1));
      });
      CHECK(interpolate(x, IntArrayRef{p, q}, {}, kBilinear, align).allclose(wanted, 1e-12, 1e-12));
      const Tensor row = interpolate(x.select(2, 1), IntArrayRef{q}, {}, InterpolateMode::linear, align);
      const Tensor image = interpolate(x.slice(2, 1, 2), IntArrayRef{1, q}, {}, kBilinear, align);
      CHECK(row.allclose(image.squeeze(2), 1e-12, 1e-12));
      if (align) continue;
      const Tensor nearest = tabulated({2, 3, p, q}, [&, p, q](const Index& to) {
        return at(x, {to[0], to[1], to[2] * 4 / p, to[3] * 6 / q});
      });
      CHECK(interpolate(x, IntArrayRef{p, q}).equal(nearest));
      const Tensor exact = tabulated({2, 3, p, q}, [&, p, q](const Index& to) {
        return at(x, {to[0], to[1], (2 * to[2] + 1) * 4 / (2 * p), (2 * to[3] + 1) * 6 / (2 * q)});
      });
      CHECK(interpolate(x, IntArrayRef{p, q}, {}, kNearestExact).equal(exact));
      CHECK(interpolate(x, IntArrayRef{p, q}, {}, kArea).equal(adaptive_avg_pool2d(x, {p, q})));
      const Tensor sequence = x.select(2, 1), one_row = x.slice(2, 1, 2);
      for (const InterpolateMode mode : {kNearest, kNearestExact, kArea})
        CHECK(interpolate(sequence, IntArrayRef{q}, {}, mode)
                  .equal(interpolate(one_row, IntArrayRef{1, q}, {}, mode).squeeze(2)));
    }
  const std::vector<double> scales = {1.5, 0.7};
  CHECK(interpolate(x, {}, scales).sizes() == Shape{2, 3, 6, 4});  // 4 * 1.5, and 6 * 0.7 rounded down
  CHECK(interpolate(x, {}, std::vector<double>{2}).sizes() == Shape{2, 3, 8, 12});
  CHECK(interpolate(x.select(2, 0), {}, std::vector<double>{2}).sizes() == Shape{2, 3, 12});
  // The scale decides about positions, unless it is computed again from the rounded size.
  const Tensor given = interpolate(x, {}, scales, kBilinear, false);
  const Tensor size = interpolate(x, IntArrayRef{6, 4}, {}, kBilinear, false);
  CHECK(interpolate(x, {}, scales, kBilinear, false, true).equal(size));
  CHECK_FALSE(given.allclose(size));
}

}  // namespace image_definitions_test
