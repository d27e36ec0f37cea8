// Convolutions and poolings of images and sequences against loops over their windows. All sizes differ.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/catch.h>

namespace windows_test {

using namespace gradus;
using test::contains;

Tensor numbers(const Shape& shape, double step) {
  return (arange(1, 1 + numel_of(shape), kDouble) * step).sin().reshape(shape);
}

double& at(const Tensor& x, int64_t a, int64_t b, int64_t c, int64_t d) {
  return x.data_ptr<double>()[((a * x.size(1) + b) * x.size(2) + c) * x.size(3) + d];
}

struct Geometry {
  Pair stride, padding, dilation;
  int64_t groups;
};

/// Calls body(n, k, c, channel, p, q, r, s, h, w) for each product of an output pixel (p, q), a tap (r, s) and a pixel
/// (h, w) of the image (N, C, H, W), for filters (K, C / groups, R, S). c counts the channels of a group.
template <class Body>
void for_each_product(const Shape& x, const Shape& w, const Shape& y, const Geometry& g, const Body& body) {
  for (int64_t n = 0; n < x[0]; ++n)
    for (int64_t k = 0; k < w[0]; ++k)
      for (int64_t c = 0; c < w[1]; ++c)
        for (int64_t p = 0; p < y[2]; ++p)
          for (int64_t q = 0; q < y[3]; ++q)
            for (int64_t r = 0; r < w[2]; ++r)
              for (int64_t s = 0; s < w[3]; ++s) {
                const int64_t h = p * g.stride.h + r * g.dilation.h - g.padding.h;
                const int64_t v = q * g.stride.w + s * g.dilation.w - g.padding.w;
                if (h < 0 || h >= x[2] || v < 0 || v >= x[3]) continue;
                body(n, k, c, k / (w[0] / g.groups) * w[1] + c, p, q, r, s, h, v);
              }
}

int64_t windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

const Geometry kGeometries[] = {{{1, 1}, {0, 0}, {1, 1}, 1},
                                {{2, 1}, {1, 0}, {1, 2}, 2},
                                {{1, 3}, {0, 2}, {2, 1}, 1},
                                {{3, 2}, {2, 1}, {1, 1}, 2},
                                {{2, 2}, {1, 1}, {2, 3}, 2}};

TEST_CASE("convolutions sum products over their windows, of images and of sequences") {
  for (const Geometry& g : kGeometries) {
    CAPTURE(g.stride.h, g.stride.w, g.padding.h, g.padding.w, g.dilation.h, g.dilation.w, g.groups);
    const Tensor x = numbers({2, 4, 7, 9}, 1.1), w = numbers({6, 4 / g.groups, 3, 2}, 1.7), bias = numbers({6}, 0.9);
    const Tensor y = zeros({2, 6, windows(7, 3, g.stride.h, g.padding.h, g.dilation.h),
                            windows(9, 2, g.stride.w, g.padding.w, g.dilation.w)},
                           kDouble);
    for_each_product(x.sizes(), w.sizes(), y.sizes(), g,
                     [&](int64_t n, int64_t k, int64_t c, int64_t channel, int64_t p, int64_t q, int64_t r, int64_t s,
                         int64_t h, int64_t v) { at(y, n, k, p, q) += at(x, n, channel, h, v) * at(w, k, c, r, s); });
    const Tensor biased = y + bias.reshape({6, 1, 1});
    CHECK(conv2d(x, w, {}, g.stride, {g.padding.h, g.padding.w}, g.dilation, g.groups).allclose(y, 1e-10, 1e-10));
    CHECK(
        conv2d(x, w, bias, g.stride, {g.padding.h, g.padding.w}, g.dilation, g.groups).allclose(biased, 1e-10, 1e-10));
    CHECK(conv2d_relu(x, w, bias, g.stride, {g.padding.h, g.padding.w}, g.dilation, g.groups)
              .allclose(relu(biased), 1e-10, 1e-10));
    CHECK(conv2d(x[1], w, bias, g.stride, {g.padding.h, g.padding.w}, g.dilation, g.groups)
              .allclose(biased[1], 1e-10, 1e-10));
    const Tensor row = x.select(2, 3), taps = w.select(2, 1);
    const Tensor of_rows = conv2d(row.unsqueeze(2), taps.unsqueeze(2), bias, {1, g.stride.w}, {0, g.padding.w},
                                  {1, g.dilation.w}, g.groups);
    CHECK(conv1d(row, taps, bias, g.stride.w, g.padding.w, g.dilation.w, g.groups)
              .allclose(of_rows.squeeze(2), 1e-12, 1e-12));
    CHECK(conv1d(row[1], taps, bias, g.stride.w, g.padding.w, g.dilation.w, g.groups)
              .allclose(of_rows.squeeze(2)[1], 1e-12, 1e-12));
  }
}

TEST_CASE("transposed convolutions hand each pixel to its windows, and output_padding adds pixels at the end") {
  for (const Geometry& g : kGeometries)
    for (const Pair extra : {Pair{0, 0}, Pair{0, 1}, Pair{1, 2}}) {
      const auto fits = [](int64_t by, int64_t stride, int64_t dilation) { return by < std::max(stride, dilation); };
      if (!fits(extra.h, g.stride.h, g.dilation.h) || !fits(extra.w, g.stride.w, g.dilation.w)) continue;
      CAPTURE(g.stride.h, g.stride.w, g.padding.h, g.padding.w, g.dilation.h, g.dilation.w, g.groups, extra.h, extra.w);
      const Tensor y = numbers({2, 4, 3, 5}, 1.3), w = numbers({4, 6 / g.groups, 3, 2}, 1.9), bias = numbers({6}, 0.7);
      const auto size = [](int64_t pixels, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                           int64_t by) {
        return (pixels - 1) * stride - 2 * padding + dilation * (kernel - 1) + by + 1;
      };
      const Tensor x = zeros({2, 6, size(3, 3, g.stride.h, g.padding.h, g.dilation.h, extra.h),
                              size(5, 2, g.stride.w, g.padding.w, g.dilation.w, extra.w)},
                             kDouble);
      for_each_product(x.sizes(), w.sizes(), y.sizes(), g,
                       [&](int64_t n, int64_t k, int64_t c, int64_t channel, int64_t p, int64_t q, int64_t r, int64_t s,
                           int64_t h, int64_t v) { at(x, n, channel, h, v) += at(y, n, k, p, q) * at(w, k, c, r, s); });
      const Tensor biased = x + bias.reshape({6, 1, 1});
      CHECK(conv_transpose2d(y, w, {}, g.stride, g.padding, extra, g.groups, g.dilation).allclose(x, 1e-10, 1e-10));
      CHECK(conv_transpose2d(y, w, bias, g.stride, g.padding, extra, g.groups, g.dilation)
                .allclose(biased, 1e-10, 1e-10));
      CHECK(conv_transpose2d(y[1], w, bias, g.stride, g.padding, extra, g.groups, g.dilation)
                .allclose(biased[1], 1e-10, 1e-10));
      const Tensor row = y.select(2, 1), taps = w.select(2, 1);
      const Tensor of_rows = conv_transpose2d(row.unsqueeze(2), taps.unsqueeze(2), bias, {1, g.stride.w},
                                              {0, g.padding.w}, {0, extra.w}, g.groups, {1, g.dilation.w});
      CHECK(conv_transpose1d(row, taps, bias, g.stride.w, g.padding.w, extra.w, g.groups, g.dilation.w)
                .allclose(of_rows.squeeze(2), 1e-12, 1e-12));
    }
  const Tensor x = ones({1, 1, 2, 2}), w = ones({1, 1, 3, 3});
  CHECK(conv_transpose2d(x, w, {}, 2, 0, 1).sizes() == Shape{1, 1, 6, 6});
  CHECK(conv_transpose2d(x, w, {}, 1, 0, 1, 1, 2).sizes() == Shape{1, 1, 7, 7});
  CHECK_THROWS_WITH(conv_transpose2d(x, w, {}, 2, 0, 2),
                    contains("output_padding must be less than stride or dilation, got 2 with stride 2"));
  CHECK_THROWS_WITH(conv_transpose2d(x, w, {}, 1, 0, 1), contains("output_padding must be less"));
  CHECK_THROWS_WITH(conv_transpose2d(x, w, {}, 2, 0, -1), contains("output_padding must be less"));
  CHECK_THROWS_WITH(conv_transpose2d(x, w, {}, 0), contains("stride and dilation must be positive"));
  CHECK_THROWS_WITH(conv_transpose2d(x, w, {}, 1, 0, 0, 1, 0), contains("stride and dilation must be positive"));
  CHECK_THROWS_WITH(conv_transpose2d(x, w, {}, 1, -1), contains("padding must not be negative"));
  CHECK(conv_transpose2d(x, ones({1, 1, 3, 3}), {}, 1, 1).sizes() == Shape{1, 1, 2, 2});
  CHECK_THROWS_WITH(conv_transpose2d(x, ones({1, 1, 1, 1}), {}, 1, 1), contains("padding 1 leaves an empty result"));
}

TEST_CASE("padding 'same' keeps the size, with the odd pixel at the end") {
  for (const int64_t kernel : {1, 2, 3, 4, 5})
    for (const int64_t dilation : {1, 2, 3}) {
      CAPTURE(kernel, dilation);
      const Tensor x = numbers({2, 3, 8}, 1.1), w = numbers({4, 3, kernel}, 1.7);
      const int64_t total = dilation * (kernel - 1);
      const Tensor padded = pad(x, {total / 2, total - total / 2});
      CHECK(conv1d(x, w, {}, 1, "same", dilation).allclose(conv1d(padded, w, {}, 1, 0, dilation), 1e-12, 1e-12));
      CHECK(conv1d(x, w, {}, 1, "valid").sizes() == Shape{2, 4, 9 - kernel});
    }
  CHECK_THROWS_AS(conv1d(ones({1, 1, 4}), ones({1, 1, 2}), {}, 2, "same"), ValueError);
}

TEST_CASE("poolings of sequences are those of images of one row, with every option") {
  const Tensor x = numbers({2, 3, 11}, 1.3), image = x.unsqueeze(2);
  for (const int64_t kernel : {2, 3})
    for (const std::optional<int64_t> stride : {std::optional<int64_t>(), std::optional<int64_t>(2)})
      for (const int64_t padding : {0, 1})
        for (const bool ceil_mode : {false, true}) {
          CAPTURE(kernel, stride.value_or(0), padding, ceil_mode);
          const int64_t step = stride.value_or(kernel);
          for (const int64_t dilation : {1, 2}) {
            const auto [y, indices] = max_pool1d_with_indices(x, kernel, stride, padding, dilation, ceil_mode);
            const auto [wide, wide_indices] =
                max_pool2d_with_indices(image, {1, kernel}, Pair{1, step}, {0, padding}, {1, dilation}, ceil_mode);
            CHECK(y.equal(wide.squeeze(2)));
            CHECK(indices.equal(wide_indices.squeeze(2)));
            CHECK((indices.dtype() == kLong && wide_indices.dtype() == kLong));
            CHECK(x.gather(2, indices).equal(y));
          }
          for (const bool counts : {false, true}) {
            const Tensor wide = avg_pool2d(image, {1, kernel}, Pair{1, step}, {0, padding}, ceil_mode, counts);
            CHECK(avg_pool1d(x, kernel, stride, padding, ceil_mode, counts).equal(wide.squeeze(2)));
            // Each window's sum, divided by the elements that count.
            for (int64_t p = 0; p < wide.size(3); ++p) {
              const int64_t first = p * step - padding, last = std::min(first + kernel, 11 + padding);
              const int64_t inside = std::min<int64_t>(last, 11) - std::max<int64_t>(first, 0);
              const Tensor sum = x.slice(2, std::max<int64_t>(first, 0), std::min<int64_t>(last, 11)).sum({2});
              CHECK(wide.squeeze(2).select(2, p).allclose(sum / static_cast<double>(counts ? last - first : inside),
                                                          1e-12, 1e-12));
            }
          }
          const Tensor divided = avg_pool2d(image, {1, kernel}, Pair{1, step}, {0, padding}, ceil_mode, true, 5);
          const Tensor sums = avg_pool2d(image, {1, kernel}, Pair{1, step}, {0, padding}, ceil_mode, true, 1);
          CHECK(divided.allclose(sums / 5, 1e-12, 1e-12));
        }
  for (const int64_t size : {1, 4, 11, 13}) {
    CHECK(adaptive_avg_pool1d(x, size).equal(adaptive_avg_pool2d(image, {1, size}).squeeze(2)));
    CHECK(adaptive_max_pool1d(x, size).equal(adaptive_max_pool2d(image, {1, size}).squeeze(2)));
    CHECK(adaptive_avg_pool1d(x[1], size).equal(adaptive_avg_pool1d(x, size)[1]));
  }
  CHECK(adaptive_avg_pool2d(zeros({2, 3, 0, 4}), {1, 1}).isnan().all().item<bool>());
  CHECK(adaptive_avg_pool2d(zeros({2, 3, 0, 4}), {0, 2}).sizes() == Shape{2, 3, 0, 2});
  CHECK_THROWS_AS(adaptive_avg_pool2d(zeros({2, 3, 0, 4}), {1, 2}), ShapeError);
  CHECK_THROWS_AS(adaptive_max_pool2d(zeros({2, 3, 0, 4}), {1, 1}), ShapeError);
  CHECK_THROWS_AS(adaptive_avg_pool2d(zeros({2, 3, 4, 4}), {-1, 2}), ValueError);
}

}  // namespace windows_test
