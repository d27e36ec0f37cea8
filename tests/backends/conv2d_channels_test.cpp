// Convolutions with enough channels for kernels with large tiles, and with so few that special kernels are used
// (stencils, and kernels for half types): tails of rows, columns and channels, groups, strides, dilation, every layout.
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

struct ChannelsCase {
  int64_t batch, channels, height, width, filters, kernel[2];
  Conv2dGeometry geometry;

  Shape x() const { return {batch, channels * geometry.groups, height, width}; }
  Shape w() const { return {filters * geometry.groups, channels, kernel[0], kernel[1]}; }
  Shape y() const {
    Shape shape = {batch, filters * geometry.groups, height, width};
    for (int i = 0; i < 2; ++i)
      shape[2 + i] =
          (shape[2 + i] + 2 * geometry.padding[i] - geometry.dilation[i] * (kernel[i] - 1) - 1) / geometry.stride[i] +
          1;
    return shape;
  }
};

const ChannelsCase kCases[] = {
    {2, 32, 9, 8, 32, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},    // whole tiles of channels
    {1, 16, 8, 8, 64, {1, 1}, {{1, 1}, {0, 0}, {1, 1}, 1}},    // one tap
    {3, 40, 7, 5, 33, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},    // tails everywhere
    {2, 19, 11, 6, 70, {5, 3}, {{1, 1}, {2, 0}, {1, 1}, 1}},   // channels that do not fill 16 bytes
    {2, 32, 10, 11, 40, {3, 3}, {{2, 2}, {1, 1}, {1, 1}, 1}},  // strided
    {1, 24, 12, 9, 48, {3, 2}, {{3, 1}, {2, 1}, {2, 3}, 1}},   // strided and dilated
    {2, 20, 6, 7, 36, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 2}},    // groups
    {1, 1, 9, 9, 1, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 24}},     // depthwise
    {1, 64, 5, 5, 130, {3, 3}, {{1, 1}, {4, 4}, {1, 1}, 1}},   // more padding than the filter reaches
    {1, 72, 6, 6, 20, {6, 6}, {{1, 1}, {3, 3}, {1, 1}, 1}},    // more taps than a mask has bits
    {1, 32, 8, 8, 80, {3, 3}, {{2, 1}, {1, 1}, {1, 1}, 2}},    // two tiles of filters, stride along one axis, groups
    {2, 32, 7, 8, 48, {1, 1}, {{2, 2}, {0, 0}, {1, 1}, 1}},    // stride larger than the filter
    {2, 3, 8, 10, 40, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 2}},    // few channels, many filters
    {0, 2, 5, 5, 3, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},      // no images
    // Stencils:
    {2, 6, 14, 14, 16, {5, 5}, {{1, 1}, {0, 0}, {1, 1}, 1}},   // strips with a tail
    {3, 3, 7, 8, 4, {3, 3}, {{1, 1}, {2, 0}, {1, 1}, 1}},      // whole strips, uneven padding
    {2, 2, 3, 2, 5, {5, 5}, {{1, 1}, {4, 5}, {1, 1}, 1}},      // an image smaller than the padding around it
    {1, 2, 3, 1100, 1, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},   // several tiles per line
    {1, 16, 5, 6, 12, {5, 5}, {{1, 1}, {2, 2}, {1, 1}, 3}},    // groups
    {14, 1, 5, 5, 1, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 24}},    // several images per block, depthwise
    {1, 150, 4, 9, 10, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},   // more channels than are staged at a time
    {33, 1, 28, 28, 16, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},  // large enough for eight rows per thread,
    {60, 1, 28, 28, 6, {5, 5}, {{1, 1}, {2, 2}, {1, 1}, 1}},   // or for six
};

const ChannelsCase kFewChannels[] = {
    {2, 3, 20, 28, 32, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},  // several tiles per image
    {3, 1, 9, 11, 24, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},   // lines of odd length
    {2, 2, 13, 10, 40, {5, 4}, {{2, 3}, {2, 1}, {1, 2}, 1}},  // strided and dilated, a tail of filters
    {1, 4, 8, 17, 72, {4, 4}, {{1, 1}, {3, 0}, {1, 1}, 1}},   // maximum number of taps, two groups of filters
    {2, 7, 4, 4, 8, {1, 1}, {{1, 1}, {0, 0}, {1, 1}, 1}},     // one tap per channel
    {1, 3, 3, 3, 136, {3, 3}, {{1, 1}, {4, 5}, {1, 1}, 1}},   // more padding than image
    {1, 3, 5, 660, 16, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},  // lines that just fit in shared memory
    {1, 3, 5, 900, 16, {5, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},  // lines that do not fit
};

// 3x3 and 5x5 filters with stride 1 and few channels or filters. Their weight gradient has its own kernel on a GPU.
const ChannelsCase kSliding[] = {
    {3, 3, 9, 12, 32, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},  // whole pieces
    {9, 1, 13, 8, 1, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},   // one filter of one channel
    {2, 2, 7, 12, 7, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},   // few filters
    {2, 6, 5, 14, 36, {3, 3}, {{1, 1}, {2, 2}, {1, 1}, 1}},  // more padding than usual, tiles of channels and filters
    {5, 2, 8, 18, 20, {3, 3}, {{1, 1}, {0, 0}, {1, 1}, 2}},  // no padding, groups
    {3, 1, 11, 10, 6, {5, 5}, {{1, 1}, {2, 2}, {1, 1}, 1}},  // a row ends within a group of four
    {2, 3, 9, 10, 14, {5, 5}, {{1, 1}, {0, 1}, {1, 1}, 1}},  // a tail of filters
    {1, 3, 4, 6, 8, {3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},    // rows of dy that do not fill vectors
};

void check_fused(const ChannelsCase& c, const Array& x, const Array& w, const Array& bias, const Array& y) {
  check_agreement(
      "conv2d_bias_relu", {x, w, bias}, {y},
      [&](Backend& b, const Arrays& in, const Arrays& out) {
        b.conv2d_bias_relu({.x = in[0], .w = in[1], .bias = in[2], .relu = true, .geometry = c.geometry, .y = out[0]});
      },
      {}, 4);
}

void check_weight_gradient(const ChannelsCase& c, const Array& dy, const Array& x, const Array& dw) {
  check_agreement(
      "conv2d_backward_weight", {dy, x}, {dw},
      [&](Backend& b, const Arrays& in, const Arrays& out) {
        b.conv2d_backward_weight(in[0], in[1], out[0], c.geometry);
      },
      {}, 4);
}

// The gradients of weights and bias only, with dy masked by y.
void check_masked_gradient(const ChannelsCase& c, const Array& dy, const Array& x, const Array& w, const Array& y,
                           const Array& dw, const Array& dbias) {
  check_agreement(
      "conv2d_bias_relu_backward", {dy, x, w, y}, {dw, dbias},
      [&](Backend& b, const Arrays& in, const Arrays& out) {
        b.conv2d_bias_relu_backward(
            {.dy = in[0], .x = in[1], .w = in[2], .y = in[3], .geometry = c.geometry, .dw = out[0], .dbias = out[1]});
      },
      {}, 4);
}

}  // namespace

TEST_CASE("convolution with many channels agrees on every backend") {
  Maker make(22);
  for (DType dtype : kFloatingDTypes)
    for (const ChannelsCase& c : kCases)
      for (Layout layout : sample(make, kImageLayouts)) {
        const Array x = make(c.x(), dtype, layout, -1, 1), dy = make(c.y(), dtype, layout, -1, 1);
        const Array w = make(c.w(), dtype, make.choice(kImageLayouts), -1, 1);
        const Array bias = make({c.w()[0]}, dtype, make.choice(kOutputLayouts), -1, 1);
        const Array y = make(c.y(), dtype, layout), dx = make(c.x(), dtype, layout), dw = make(c.w(), dtype);
        const Array dbias = make({c.w()[0]}, dtype);
        check_fused(c, x, w, bias, y);
        check_agreement(
            "conv2d_backward_data", {dy, w}, {dx},
            [&](Backend& b, const Arrays& in, const Arrays& out) {
              b.conv2d_backward_data(in[0], in[1], out[0], c.geometry);
            },
            {}, 4);
        check_agreement(
            "conv2d_bias_relu_backward", {dy, x, w, y}, {dx, dw, dbias},
            [&](Backend& b, const Arrays& in, const Arrays& out) {
              b.conv2d_bias_relu_backward({.dy = in[0],
                                           .x = in[1],
                                           .w = in[2],
                                           .y = in[3],
                                           .geometry = c.geometry,
                                           .dx = out[0],
                                           .dw = out[1],
                                           .dbias = out[2]});
            },
            {}, 4);
        check_weight_gradient(c, dy, x, dw);
      }
}

TEST_CASE("convolution of half types with few channels agrees on every backend") {
  Maker make(23);
  for (DType dtype : {DType::f16, DType::bf16})
    for (const ChannelsCase& c : kFewChannels)
      for (Layout layout : sample(make, kImageLayouts)) {
        const Array x = make(c.x(), dtype, layout, -1, 1), dy = make(c.y(), dtype, Layout::channels_last, -1, 1);
        const Array w = make(c.w(), dtype, make.choice(kImageLayouts), -1, 1);
        const Array bias = make({c.filters}, dtype, make.choice(kOutputLayouts), -1, 1);
        const Array y = make(c.y(), dtype, Layout::channels_last), dw = make(c.w(), dtype),
                    dbias = make({c.filters}, dtype);
        check_fused(c, x, w, bias, y);
        check_agreement(
            "conv2d", {x, w}, {y},
            [&](Backend& b, const Arrays& in, const Arrays& out) { b.conv2d(in[0], in[1], out[0], c.geometry); }, {},
            4);
        check_masked_gradient(c, dy, x, w, y, dw, dbias);
        check_weight_gradient(c, dy, x, dw);
      }
}

TEST_CASE("the gradient of weights of few channels or filters agrees on every backend") {
  Maker make(24);
  for (DType dtype : kFloatingDTypes)
    for (const ChannelsCase& c : kSliding)
      for (Layout layout : sample(make, kImageLayouts)) {
        const Array dy = make(c.y(), dtype, layout, -1, 1), y = make(c.y(), dtype, layout);
        const Array x = make(c.x(), dtype, make.choice(kImageLayouts), -1, 1), w = make(c.w(), dtype);
        const Array dw = make(c.w(), dtype, make.choice(kImageLayouts)), dbias = make({c.w()[0]}, dtype);
        check_masked_gradient(c, dy, x, w, y, dw, dbias);
        check_weight_gradient(c, dy, x, dw);
      }
}
