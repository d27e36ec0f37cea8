// Convolution, pooling, losses, dropout and optimizer steps: every backend agrees with naive, and every composite's
// default body agrees with its override.
#include <array>
#include <cmath>

#include <gradus/core/ops/ops.h>
#include <gradus/core/runtime/random.h>
#include <gradus/tests/backends/optimizer_rules.h>
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

struct ConvCase {
  Conv2dGeometry geometry;
  Shape x, w, y;
};

// Random geometries of all kinds, some with outputs that do not reach the input's border.
ConvCase random_conv(Maker& make) {
  ConvCase c;
  c.geometry.groups = make.integer(1, 3);
  const int64_t channels = make.integer(1, 4), filters = make.integer(1, 5);
  const int64_t kernel[2] = {make.integer(1, 5), make.integer(1, 4)};
  int64_t input[2], output[2];
  for (int i = 0; i < 2; ++i) {
    c.geometry.stride[i] = make.integer(1, 3);
    c.geometry.padding[i] = make.integer(0, 3);
    c.geometry.dilation[i] = make.integer(1, 3);
    const int64_t reach = c.geometry.dilation[i] * (kernel[i] - 1) + 1;
    input[i] = std::max<int64_t>(1, reach - 2 * c.geometry.padding[i]) + make.integer(0, 9);
    output[i] = (input[i] + 2 * c.geometry.padding[i] - reach) / c.geometry.stride[i] + 1;
  }
  const int64_t batch = make.integer(0, 8) == 0 ? 0 : make.integer(1, 3);
  c.x = {batch, channels * c.geometry.groups, input[0], input[1]};
  c.w = {filters * c.geometry.groups, channels, kernel[0], kernel[1]};
  c.y = {batch, filters * c.geometry.groups, output[0], output[1]};
  return c;
}

RandomState draw() { return {42, 7, nullptr}; }

}  // namespace

TEST_CASE("convolution agrees on every backend, fused and composed") {
  Maker make(20);
  for (DType dtype : kFloatingDTypes)
    for (int round = 0; round < (dtype == DType::f32 ? 40 : 12); ++round) {
      const ConvCase c = random_conv(make);
      const Array x = make(c.x, dtype, make.choice(kImageLayouts), -1, 1);
      const Array w = make(c.w, dtype, make.choice(kImageLayouts), -1, 1);
      const Array dy = make(c.y, dtype, make.choice(kImageLayouts), -1, 1);
      const Array bias = make({c.w[0]}, dtype, make.choice(kOutputLayouts), -1, 1);
      const Array y = make(c.y, dtype, make.choice(kImageLayouts));
      const Array dx = make(c.x, dtype, make.choice(kImageLayouts));
      const Array dw = make(c.w, dtype, make.choice(kImageLayouts));
      const Array db = make({c.w[0]}, dtype, make.choice(kOutputLayouts));

      check_agreement(
          "conv2d", {x, w}, {y},
          [&](Backend& b, const Arrays& in, const Arrays& out) { b.conv2d(in[0], in[1], out[0], c.geometry); }, {}, 2);
      check_agreement(
          "conv2d_backward_data", {dy, w}, {dx},
          [&](Backend& b, const Arrays& in, const Arrays& out) {
            b.conv2d_backward_data(in[0], in[1], out[0], c.geometry);
          },
          {}, 2);
      check_agreement(
          "conv2d_backward_weight", {dy, x}, {dw},
          [&](Backend& b, const Arrays& in, const Arrays& out) {
            b.conv2d_backward_weight(in[0], in[1], out[0], c.geometry);
          },
          {}, 2);

      const bool relu = round % 2, biased = round % 3;
      auto forward = [&](bool defaults) {
        return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
          const Conv2dArgs args{.x = in[0],
                                .w = in[1],
                                .bias = biased ? in[2] : Array(),
                                .relu = relu,
                                .geometry = c.geometry,
                                .y = out[0]};
          if (defaults) b.Backend::conv2d_bias_relu(args);
          else b.conv2d_bias_relu(args);
        };
      };
      check_agreement("conv2d_bias_relu", {x, w, bias}, {y}, forward(false), forward(true), 4);

      // Some gradients are not requested; the arrays that stay unwritten must agree too.
      const int wanted = static_cast<int>(make.integer(1, 7));
      const bool in_place = make.integer(0, 1) && !dy.may_overlap();
      auto backward = [&](bool defaults) {
        return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
          const auto want = [&](size_t i) { return wanted >> i & 1 ? out[i] : Array(); };
          const Array own_dy = copy_to(in[0], in[0].device());
          const Conv2dBackwardArgs args{.dy = own_dy,
                                        .x = in[1],
                                        .w = in[2],
                                        .y = relu ? in[3] : Array(),
                                        .geometry = c.geometry,
                                        .dx = want(0),
                                        .dw = want(1),
                                        .dbias = want(2),
                                        .masked = in_place ? own_dy : Array()};
          if (defaults) b.Backend::conv2d_bias_relu_backward(args);
          else b.conv2d_bias_relu_backward(args);
        };
      };
      check_agreement("conv2d_bias_relu_backward", {dy, x, w, y}, {dx, dw, db}, backward(false), backward(true), 4);
    }
}

TEST_CASE("NaN passes through convolution, bias and ReLU, and y's previous contents are not read") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Conv2dGeometry geometry{{1, 1}, {1, 1}, {1, 1}, 1};
  Maker make(25);
  for (DType dtype : kFloatingDTypes)
    for (Layout layout : {Layout::contiguous, Layout::channels_last}) {
      const Array x = make({2, 16, 6, 6}, dtype, layout, -1, 1), w = make({16, 16, 3, 3}, dtype, layout, -1, 1);
      const Array bias = make({16}, dtype), y = make({2, 16, 6, 6}, dtype, layout);
      ops::fill(x.select(0, 1).select(1, 2), nan);  // one row of the second image
      ops::fill(y, nan);
      check_agreement(
          "conv2d_bias_relu", {x, w, bias}, {y},
          [&](Backend& b, const Arrays& in, const Arrays& out) {
            b.conv2d_bias_relu(
                {.x = in[0], .w = in[1], .bias = in[2], .relu = true, .geometry = geometry, .y = out[0]});
          },
          {}, 4);
    }
}

TEST_CASE("max pooling agrees on every backend, with ties, NaN and windows in the padding") {
  Maker make(21);
  for (DType dtype : kFloatingDTypes)
    for (int round = 0; round < 35; ++round) {
      Pool2dGeometry geometry;
      int64_t input[2], output[2];
      for (int i = 0; i < 2; ++i) {
        const bool tiles = round % 4 == 0;  // adjacent windows, sometimes with a remainder
        const bool overlap = round >= 25;   // stride 2, windows of up to 3 x 3
        geometry.kernel[i] = make.integer(1, overlap ? 3 : 4);
        geometry.stride[i] = overlap ? 2 : tiles ? geometry.kernel[i] : make.integer(1, 4);
        geometry.dilation[i] = overlap || tiles ? 1 : make.integer(1, 3);
        geometry.padding[i] = tiles && !overlap ? 0 : make.integer(0, geometry.kernel[i] / 2);
        const int64_t reach = geometry.dilation[i] * (geometry.kernel[i] - 1) + 1;
        input[i] = std::max<int64_t>(1, reach - 2 * geometry.padding[i]) + make.integer(0, 8);
        output[i] = (input[i] + 2 * geometry.padding[i] - reach) / geometry.stride[i] + 1;
      }
      const int64_t batch = make.integer(0, 3), channels = round % 5 == 1 ? 8 : make.integer(1, 5);
      const Shape x_shape{batch, channels, input[0], input[1]}, y_shape{batch, channels, output[0], output[1]};
      const Array x = make(x_shape, dtype, make.choice(kImageLayouts), -1, 1);
      if (round % 3 == 0 && x.numel() > 0) visit_floating(dtype, [&]<class T> { *static_cast<T*>(x.data()) = T(NAN); });
      const Array y = make(y_shape, dtype, make.choice(kImageLayouts));
      const Array indices = make(y_shape, DType::i32, make.choice(kImageLayouts));
      check_agreement("max_pool2d", {x}, {y, indices}, [&](Backend& b, const Arrays& in, const Arrays& out) {
        b.max_pool2d(in[0], out[0], out[1], geometry);
      });
      backend("naive").max_pool2d(x, y, indices, geometry);
      const Array dy = make(y_shape, dtype, make.choice(kImageLayouts));
      check_agreement(
          "max_pool2d_backward", {dy, indices}, {make(x_shape, dtype, make.choice(kImageLayouts))},
          [&](Backend& b, const Arrays& in, const Arrays& out) {
            b.max_pool2d_backward(in[0], in[1], out[0], geometry);
          },
          {}, 2);
    }
}

TEST_CASE("linear agrees on every backend") {
  Maker make(22);
  const int64_t sizes[] = {0, 1, 3, 10, 64, 120};
  for (DType dtype : kFloatingDTypes)
    for (int round = 0; round < 12; ++round) {
      const int64_t M = make.choice(sizes), N = make.choice(sizes), K = make.choice(sizes);
      const Array x = make({M, K}, dtype, make.choice(kInputLayouts), -1, 1);
      const Array w = make({N, K}, dtype, make.choice(kInputLayouts), -1, 1);
      const Array bias = make({N}, dtype, make.choice(kInputLayouts), -1, 1);
      auto run = [&](bool defaults) {
        return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
          const Array given = round % 2 ? in[2] : Array();
          if (defaults) b.Backend::linear(in[0], in[1], given, out[0]);
          else b.linear(in[0], in[1], given, out[0]);
        };
      };
      check_agreement("linear", {x, w, bias}, {make({M, N}, dtype, make.choice(kOutputLayouts))}, run(false), run(true),
                      4);
    }
}

TEST_CASE("softmax and its gradient agree on every backend") {
  Maker make_any(23), make_packs(28);
  const Shape shapes[] = {{},          {5},        {0, 3},     {3, 0},    {4, 10},   {64, 10},  {2, 3, 4},
                          {3, 1, 257}, {301, 120}, {120, 301}, {1500, 3}, {3, 5000}, {9, 3001}, {9, 64},
                          {9, 1000},   {9, 24},    {9, 200},   {9, 2000}, {9, 6000}, {9, 8200}};
  for (DType dtype : kFloatingDTypes)
    for (const Shape& shape : shapes)
      for (const SoftmaxKind kind : {SoftmaxKind::softmax, SoftmaxKind::log_softmax, SoftmaxKind::or_zeros}) {
        const bool log = kind == SoftmaxKind::log_softmax;
        const bool packs = shape.size() == 2 && shape[0] == 9;  // rows long enough for vectors, if they are aligned
        Maker& make = packs ? make_packs : make_any;
        const int axis = shape.empty() ? 0 : packs ? 1 : static_cast<int>(make.integer(0, shape.size() - 1));
        const auto layout = [&](const auto& all) { return packs ? Layout::contiguous : make.choice(all); };
        const Array x = make(shape, dtype, layout(kInputLayouts), -20, 20);
        if (kind == SoftmaxKind::or_zeros && x.numel() > 0) {  // rows of -infinity, of which some have a NaN
          const int across = axis == 0 ? 1 : 0;
          const auto rows = [&](int64_t i) { return x.ndim() < 2 ? x : x.select(across, i % x.shape()[across]); };
          for (const int64_t i : {1, 0}) {
            backend("naive").fill(rows(i), -std::numeric_limits<double>::infinity());
            if (i == 1 && x.ndim() > 0) backend("naive").fill(rows(i).select(0, 0), std::nan(""));
          }
        }
        const Array y = make(shape, dtype, layout(kOutputLayouts));
        const Array dy = make(shape, dtype, layout(kOutputLayouts));  // a constant dy would cancel to zero
        const Array dx = make(shape, dtype, layout(kOutputLayouts));
        auto forward = [&](bool defaults) {
          return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
            if (defaults) b.Backend::softmax(in[0], axis, kind, out[0]);
            else b.softmax(in[0], axis, kind, out[0]);
          };
        };
        check_agreement("softmax", {x}, {y}, forward(false), forward(true), 4);
        backend("naive").softmax(x, axis, kind, y);
        auto backward = [&](bool defaults) {
          return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
            if (defaults) b.Backend::softmax_backward(in[0], in[1], axis, log, out[0]);
            else b.softmax_backward(in[0], in[1], axis, log, out[0]);
          };
        };
        check_agreement("softmax_backward", {dy, y}, {dx}, backward(false), backward(true), 8);
      }
}

TEST_CASE("pick, cross-entropy and their gradients agree on every backend") {
  Maker make(24);
  for (DType dtype : kFloatingDTypes)
    for (int64_t rows : {0, 1, 5, 64, 150})
      for (Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum})
        for (int64_t ignored : {int64_t{-100}, int64_t{3}}) {
          const int64_t classes = rows == 5 ? 3001 : rows == 150 ? 60 : make.integer(4, 12);  // long and short rows
          const bool dense = rows == 5 && ignored < 0;  // long rows at every alignment
          const auto layout = [&](const auto& all) { return dense ? Layout::contiguous : make.choice(all); };
          const Array x = make({rows, classes}, dtype, layout(kInputLayouts), -10, 10);
          const Array target =
              make({rows}, DType::i64, make.choice(kOutputLayouts), 0, static_cast<double>(classes - 1));
          const Array row_values = make({rows}, dtype, make.choice(kOutputLayouts));
          check_agreement("pick", {x, target}, {row_values}, [&](Backend& b, const Arrays& in, const Arrays& out) {
            b.pick(in[0], in[1], ignored, out[0]);
          });
          check_agreement(
              "pick_backward", {row_values, target}, {make(x.shape(), dtype, make.choice(kOutputLayouts))},
              [&](Backend& b, const Arrays& in, const Arrays& out) { b.pick_backward(in[0], in[1], ignored, out[0]); });

          const Array log_probabilities = make(x.shape(), dtype, layout(kOutputLayouts));
          const Shape loss_shape = reduction == Reduction::none ? Shape{rows} : Shape{};
          const auto some_losses = [&] { return make(loss_shape, dtype, make.choice(kOutputLayouts)); };
          const Array loss = some_losses(), weight_sum = make({}, dtype);
          auto forward = [&](bool defaults) {
            return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
              const CrossEntropyArgs args{.x = in[0],
                                          .target = in[1],
                                          .ignore_index = ignored,
                                          .reduction = reduction,
                                          .log_probabilities = out[0],
                                          .loss = out[1],
                                          .weight_sum = out[2]};
              if (defaults) b.Backend::cross_entropy(args);
              else b.cross_entropy(args);
            };
          };
          check_agreement("cross_entropy", {x, target}, {log_probabilities, loss, weight_sum}, forward(false),
                          forward(true), 4);
          forward(false)(backend("naive"), {x, target}, {log_probabilities, loss, weight_sum});
          const Array dloss = some_losses();
          auto backward = [&](bool defaults) {
            return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
              const CrossEntropyBackwardArgs args{.dloss = in[0],
                                                  .log_probabilities = in[1],
                                                  .target = in[2],
                                                  .ignore_index = ignored,
                                                  .reduction = reduction,
                                                  .weight_sum = in[3],
                                                  .dx = out[0]};
              if (defaults) b.Backend::cross_entropy_backward(args);
              else b.cross_entropy_backward(args);
            };
          };
          check_agreement("cross_entropy_backward", {dloss, log_probabilities, target, weight_sum},
                          {make(x.shape(), dtype, layout(kOutputLayouts))}, backward(false), backward(true), 4);
        }
}

TEST_CASE("dropout agrees on every backend") {
  Maker make(25);
  for (DType dtype : kFloatingDTypes)
    for (double p : {0.0, 0.3, 1.0})
      for (const Shape& shape : {Shape{}, Shape{0, 4}, Shape{33, 7}, Shape{2, 3, 4, 5}}) {
        const bool dense = shape == Shape{33, 7};  // four elements at a time
        const auto layout = [&](const auto& all) { return dense ? Layout::contiguous : make.choice(all); };
        const Array x = make(shape, dtype, layout(kInputLayouts));
        const Array mask = make(shape, DType::boolean, layout(kOutputLayouts));
        const Array y = make(shape, dtype, layout(kOutputLayouts));
        auto forward = [&](bool defaults) {
          return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
            if (defaults) b.Backend::dropout(in[0], p, draw(), out[0], out[1]);
            else b.dropout(in[0], p, draw(), out[0], out[1]);
          };
        };
        check_agreement("dropout", {x}, {mask, y}, forward(false), forward(true));
        auto backward = [&](bool defaults) {
          return [&, defaults](Backend& b, const Arrays& in, const Arrays& out) {
            if (defaults) b.Backend::dropout_backward(in[0], in[1], p, out[0]);
            else b.dropout_backward(in[0], in[1], p, out[0]);
          };
        };
        check_agreement("dropout_backward", {x, mask}, {y}, backward(false), backward(true));
      }
}

TEST_CASE("rgb_to_grayscale agrees on every backend") {
  Maker make(26);
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::u8})
    for (const Shape& lead : {Shape{}, Shape{4}, Shape{0}, Shape{2, 3}}) {
      Shape x_shape = lead, y_shape = lead;
      for (int64_t size : {3, 5, 6}) x_shape.push_back(size);
      for (int64_t size : {1, 5, 6}) y_shape.push_back(size);
      auto run = [](bool defaults) {
        return [defaults](Backend& b, const Arrays& in, const Arrays& out) {
          if (defaults) b.Backend::rgb_to_grayscale(in[0], out[0]);
          else b.rgb_to_grayscale(in[0], out[0]);
        };
      };
      check_agreement("rgb_to_grayscale", {make(x_shape, dtype, make.choice(kInputLayouts), 0, 100)},
                      {make(y_shape, dtype, make.choice(kOutputLayouts))}, run(false), run(true));
    }
}

TEST_CASE("loss scaling agrees on every backend") {
  Maker make(28);
  for (DType dtype : kFloatingDTypes)
    for (int round = 0; round < 8; ++round) {
      const bool divides = round & 1;
      const Layout layout = make.choice(kOutputLayouts);
      const Array huge = round & 2 ? array_of({1}, {round & 4 ? INFINITY : -NAN}, dtype) : make({1}, dtype);
      auto run = [&](bool defaults) {
        return [=](Backend& b, const Arrays& in, const Arrays& out) {
          const MutableView gradients[] = {out[1], out[2], out[3]};
          const View factor = divides ? View(in[0]) : View();
          if (defaults) b.Backend::unscale(gradients, factor, out[0]);
          else b.unscale(gradients, factor, out[0]);
        };
      };
      const Array before = scalar_of(round == 1), matrix = make({7, 321}, dtype, layout);
      check_agreement("unscale", {scalar_of(0x1p-12)}, {before, matrix, make({}, dtype), huge}, run(false), run(true));
    }

  for (const double value : {double{INFINITY}, double{NAN}})
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 4}, Shape{2, 1, 3}})
      for (int64_t at = 0; at < numel_of(shape); ++at) {  // one element that is not finite, at each place
        std::vector<double> numbers(static_cast<size_t>(numel_of(shape)), 1);
        numbers[static_cast<size_t>(at)] = value;
        const Array gradient = array_of(shape, numbers);
        const MutableView gradients[] = {array_of({2}, {1, 2}), gradient, array_of({}, {3})};
        for (const bool defaults : {false, true}) {
          const Array found = scalar_of(0);
          Backend& naive = backend("naive");
          if (defaults) naive.Backend::unscale(gradients, {}, found);
          else naive.unscale(gradients, {}, found);
          INFO("shape " << shape << ", element " << at);
          CHECK(values(found) == std::vector<double>{1});
        }
      }

  const ScaleRule rule{2, 0.25, 3};
  const std::vector<double> blocks[] = {{1024, 0, 0}, {1024, 1, 0}, {1024, 2, 0}, {1024, 2, 1}, {0x1p127, 2, 0}};
  const std::vector<double> next[] = {{1024, 1, 0}, {1024, 2, 0}, {2048, 0, 0}, {256, 0, 0}, {0x1p127, 0, 0}};
  for (size_t i = 0; i < std::size(blocks); ++i) {
    const auto run = [&rule](Backend& b, const Arrays&, const Arrays& out) { b.update_scale(out[0], rule); };
    check_agreement("update_scale", {}, {array_of({3}, blocks[i])}, run);
    const Array block = array_of({3}, blocks[i]);
    backend("naive").update_scale(block, rule);
    CHECK(values(block) == next[i]);
  }
}

TEST_CASE("optimizer steps agree on every backend") {
  Maker make(27);
  for (DType dtype : kFloatingDTypes)
    for (int round = 0; round < 12; ++round) {
      const double step = std::array{1, 2, 40}[round % 3], found_inf = round % 8 == 7;
      const Array block = array_of({StepBlock::size}, {step, 0.05, 0.5, found_inf, 0.3});
      check_agreement(
          "advance_step", {}, {block}, [](Backend& b, const Arrays&, const Arrays& out) { b.advance_step(out[0]); },
          [](Backend& b, const Arrays&, const Arrays& out) { b.Backend::advance_step(out[0]); });

      // Two parameters, a scalar and a matrix. Each has a gradient and three states of the same strides.
      constexpr int kArrays = 1 + kMaxOptimizerStates;
      Arrays in{block}, out;
      const Layout layout = make.choice(kOutputLayouts);
      // float32 parameters also have half copies, and gradients of a half type.
      const DType half = round & 2 ? DType::bf16 : DType::f16;
      const bool has_half = dtype == DType::f32 && round % 3 > 0 && !found_inf,
                 half_gradient = has_half && round % 3 == 2;
      for (const Shape& shape : {Shape{}, Shape{7, 19}}) {
        in.push_back(make(shape, half_gradient ? half : dtype, layout));
        out.push_back(make(shape, dtype, layout));
        for (int k = 0; k < kMaxOptimizerStates; ++k)
          out.push_back(make(shape, dtype, layout, kStateLow[k], kStateHigh[k]));
      }
      if (has_half)
        for (const Shape& shape : {Shape{}, Shape{7, 19}}) out.push_back(make(shape, half, layout));
      rules::Common common;
      common.weight_decay = round & 1 ? 0.125 : 0, common.decoupled = round & 2, common.maximize = round & 4;
      for (const NamedRule& named : optimizer_rules(common)) {
        auto run = [&](bool defaults) {
          return [&, defaults](Backend& b, const Arrays& inputs, const Arrays& outputs) {
            ParameterViews views[2];
            for (int i = 0; i < 2; ++i) {
              views[i].parameter = outputs[kArrays * i], views[i].gradient = inputs[1 + i];
              for (int k = 0; k < kMaxOptimizerStates; ++k)
                if (named.uses(k)) views[i].states[k] = outputs[kArrays * i + 1 + k];
              if (has_half) views[i].half = outputs[2 * kArrays + i];
            }
            if (defaults) b.Backend::optimizer_step(views, inputs[0], named.rule);
            else b.optimizer_step(views, inputs[0], named.rule);
          };
        };
        check_agreement(named.name, in, out, run(false), run(true), 8);
      }
    }
}
