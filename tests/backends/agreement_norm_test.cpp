// Normalisation and resampling: every backend agrees with naive, and default bodies agree with their overrides.
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include <gradus/core/ops/nn/nn.h>
#include <gradus/tests/backends/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

constexpr bool kBoth[] = {false, true};
constexpr Layout kAllImageLayouts[] = {Layout::contiguous, Layout::channels_last, Layout::gapped, Layout::reversed};

struct NormCase {
  Shape x;
  uint32_t axes;
  Shape parameters;
};

// Batch, layer, group and instance norm, with few and many of each size.
const NormCase kNormCases[] = {
    {{4, 3, 2, 5}, 0b1101, {1, 3, 1, 1}},
    {{2, 130, 3, 3}, 0b1101, {1, 130, 1, 1}},
    {{9, 7}, 0b01, {1, 7}},
    {{3, 2, 90, 80}, 0b1101, {1, 2, 1, 1}},
    {{5, 12}, 0b10, {1, 12}},
    {{70, 600}, 0b10, {1, 600}},
    {{2, 3, 4, 5}, 0b1100, {1, 1, 4, 5}},
    {{2, 2, 3, 4}, 0b1100, {1, 2, 3, 1}},
    {{3, 2, 3, 700}, 0b1100, {1, 2, 3, 1}},
    {{3, 4, 6, 2}, 0b1100, {1, 4, 1, 1}},
    {{1, 40000}, 0b10, {1, 40000}},
    {{3, 1, 2, 2}, 0b1101, {1, 1, 1, 1}},
    {{0, 3, 2, 2}, 0b1101, {1, 3, 1, 1}},
};

/// Checks forward and backward, with or without the ReLU that follows. `image` creates an array of x's shape; `slice`,
/// if given, creates x itself.
void check_normalize(Maker& make, DType dtype, const NormCase& c, bool fixed, bool relu,
                     const std::function<Array()>& image, const std::function<Array()>& slice = {}) {
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const Shape statistics = reduced_shape(c.x, c.axes, true);
  const Array x = slice ? slice() : image(), y = image(), residual = image();
  const Array w = make(c.parameters, dtype), b = make(c.parameters, wide);
  const Array mean = make(statistics, wide), variance = make(statistics, wide, Layout::contiguous, 1, 3);
  const bool weighed = make.integer(0, 3) > 0, shifted = make.integer(0, 3) > 0, added = make.integer(0, 2) > 0;
  const std::string name = relu ? "normalize_relu" : "normalize";
  const auto forward = [&](bool defaults) {
    return [&, defaults](Backend& on, const Arrays& in, const Arrays& out) {
      const NormalizeArgs args{.x = in[0],
                               .axes = c.axes,
                               .weight = weighed ? in[1].expand(c.x) : Array(),
                               .bias = shifted ? in[2].expand(c.x) : Array(),
                               .residual = relu && added ? in[5] : Array(),
                               .relu = relu,
                               .eps = 1e-3,
                               .fixed_statistics = fixed,
                               .y = out[0],
                               .mean = fixed ? in[3] : out[1],
                               .variance = fixed ? in[4] : out[2]};
      if (defaults) on.Backend::normalize(args);
      else on.normalize(args);
    };
  };
  const Arrays results = fixed ? Arrays{y} : Arrays{y, make(statistics, wide), make(statistics, wide)};
  check_agreement(name, {x, w, b, mean, variance, residual}, results, forward(false), forward(true), 10);

  if (!fixed)
    backend("naive").normalize({.x = x, .axes = c.axes, .eps = 1e-3, .y = y, .mean = mean, .variance = variance});
  const Array dy = image(), dx = image(), dresidual = image(), addend = image();
  const bool in_parts = make.integer(0, 1) > 0, alone = relu && !added && make.integer(0, 2) > 0;
  if (alone) {  // a backend may compute y > 0 from x
    backend("naive").normalize({.x = x,
                                .axes = c.axes,
                                .weight = weighed ? w.expand(c.x) : Array(),
                                .bias = weighed ? b.expand(c.x) : Array(),
                                .relu = true,
                                .eps = 1e-3,
                                .fixed_statistics = true,
                                .y = residual,
                                .mean = mean,
                                .variance = variance});
  }
  const Array dw = make(c.parameters, wide), db = make(c.parameters, dtype, make.choice(kOutputLayouts));
  const auto backward = [&](bool defaults) {
    return [&, defaults](Backend& on, const Arrays& in, const Arrays& out) {
      const NormalizeBackwardArgs args{.dy = in[0],
                                       .x = in[1],
                                       .mean = in[3],
                                       .variance = in[4],
                                       .weight = weighed ? in[2].expand(c.x) : Array(),
                                       .y = relu ? in[5] : Array(),
                                       .addend = relu && in_parts ? in[6] : Array(),
                                       .bias = alone && weighed ? in[7].expand(c.x) : Array(),
                                       .alone = alone,
                                       .axes = c.axes,
                                       .eps = 1e-3,
                                       .fixed_statistics = fixed,
                                       .dx = out[0],
                                       .dweight = out[1],
                                       .dbias = out[2],
                                       .dresidual = out.size() > 3 ? out[3] : Array()};
      if (defaults) on.Backend::normalize_backward(args);
      else on.normalize_backward(args);
    };
  };
  const Arrays gradients = relu && added ? Arrays{dx, dw, db, dresidual} : Arrays{dx, dw, db};
  check_agreement(name + "_backward", {dy, x, w, mean, variance, residual, addend, b}, gradients, backward(false),
                  backward(true),
                  30);  // sums whose terms cancel, sometimes over a single channel
}

/// Running statistics from out[first], out[first + 1] and out[first + 2] (means, variances, number of batches); bit i
/// of `which` selects whether entry i is given.
RunningStatistics running_of(const Arrays& out, size_t first, int which) {
  RunningStatistics running;
  if (which & 1) running.mean = out[first];
  if (which & 2) running.variance = out[first + 1];
  if (which & 4) running.batches = out[first + 2];
  running.momentum = 0.1, running.correction = 1.25;
  return running;
}

}  // namespace

TEST_CASE("normalisation and its gradients agree on every backend") {
  Maker make(31);
  for (DType dtype : kFloatingDTypes)
    for (const NormCase& c : kNormCases)
      for (bool fixed : {false, true})
        for (bool relu : sample(make, kBoth))
          check_normalize(make, dtype, c, fixed, relu, [&] {
            return make(c.x, dtype, c.x.size() == 4 ? make.choice(kAllImageLayouts) : make.choice(kOutputLayouts));
          });
}

TEST_CASE("each gradient of normalisation is the same without the others") {
  Maker make(41);
  const Shape shape = {3, 4, 2, 5}, parameters = {1, 4, 1, 1};
  const Array x = make(shape, DType::f32), dy = make(shape, DType::f32), y = make(shape, DType::f32),
              addend = make(shape, DType::f32), weight = make(parameters, DType::f32);
  const Array mean = make(parameters, DType::f32), variance = make(parameters, DType::f32, Layout::contiguous, 1, 3);
  const std::vector<double> unwritten(static_cast<size_t>(x.numel()), -77);
  for (const char* name : {"naive", "openmp"})
    for (const bool defaults : kBoth)
      for (const bool relu : kBoth)
        for (const bool in_parts : {false, relu})
          for (const bool fixed : kBoth) {
            // Bit i of `wanted` selects gradient i: of x, of the weight, of the bias, of the residual.
            const auto gradients = [&](int wanted) {
              std::vector<Array> all;
              for (int i = 0; i < 4; ++i) all.push_back(ops::full(i % 3 ? parameters : shape, -77, DType::f32, {}));
              NormalizeBackwardArgs args{.dy = dy, .x = x, .mean = mean, .variance = variance};
              args.weight = weight.expand(shape), args.axes = 0b1101, args.eps = 1e-3, args.fixed_statistics = fixed;
              if (relu) args.y = y;
              if (in_parts) args.addend = addend;
              if (wanted & 1) args.dx = all[0];
              if (wanted & 2) args.dweight = all[1];
              if (wanted & 4) args.dbias = all[2];
              if (wanted & 8) args.dresidual = all[3];
              Backend& on = backend(name);
              if (defaults) on.Backend::normalize_backward(args);
              else on.normalize_backward(args);
              return all;
            };
            const int every = relu ? 15 : 7;
            const std::vector<Array> together = gradients(every);
            for (int wanted = 1; wanted < every; ++wanted) {
              INFO(name << (defaults ? " defaults" : "") << (relu ? " relu" : "") << (in_parts ? " in parts" : "")
                        << (fixed ? " fixed" : "") << ", wanted: " << wanted);
              const std::vector<Array> some = gradients(wanted);
              for (size_t i = 0; i < 4; ++i) {
                const std::vector<double> numbers = values(some[i]);
                if (wanted & 1 << i) CHECK(error(numbers, values(together[i])) < 1e-5);
                else CHECK(std::equal(numbers.begin(), numbers.end(), unwritten.begin()));
              }
            }
          }
}

TEST_CASE("batch norm of images with equal strides agrees on every backend") {
  Maker make(41);
  const NormCase cases[] = {
      {{4, 8, 6, 6}, 0b1101, {1, 8, 1, 1}},
      {{4, 4, 64, 64}, 0b1101, {1, 4, 1, 1}},
      {{2, 64, 9, 7}, 0b1101, {1, 64, 1, 1}},
      {{33, 12, 3, 4}, 0b1101, {1, 12, 1, 1}},
      {{70, 16}, 0b01, {1, 16}},
      {{3, 1024, 2, 2}, 0b1101, {1, 1024, 1, 1}},
      {{2, 5, 8}, 0b101, {1, 5, 1}},
      {{9, 20, 5, 5}, 0b1101, {1, 20, 1, 1}},
      {{6, 300, 2, 4}, 0b1101, {1, 300, 1, 1}},
      {{6, 1, 5, 5}, 0b1101, {1, 1, 1, 1}},
      {{5, 3, 7, 5}, 0b1101, {1, 3, 1, 1}},
      {{4, 33, 4, 5}, 0b1101, {1, 33, 1, 1}},
      // A block has all channels, and a thread several vectors of them.
      {{3, 8, 12, 12}, 0b1101, {1, 8, 1, 1}},
      {{2, 5, 40, 40}, 0b1101, {1, 5, 1, 1}},
      // Channels-last: many splits with a shorter last one, and a group of channels that is not full; in one launch and
      // in two.
      {{2, 24, 29, 31}, 0b1101, {1, 24, 1, 1}},
      {{3, 24, 29, 31}, 0b1101, {1, 24, 1, 1}}};
  for (DType dtype : kFloatingDTypes)
    for (const NormCase& c : cases)
      for (bool fixed : {false, true})
        for (Layout layout : {Layout::contiguous, Layout::channels_last})
          for (bool relu : sample(make, kBoth))
            if (layout == Layout::contiguous || c.x.size() == 4)
              check_normalize(make, dtype, c, fixed, relu, [&] { return make(c.x, dtype, layout); });
}

TEST_CASE("group and layer norm of images in both layouts agree on every backend") {
  Maker make(61);
  // Group norm of images (N, G, C / G, H, W): with few and many images, channels and pixels.
  const Shape shapes[] = {{3, 2, 4, 3, 5},  {17, 8, 8, 6, 6},  {2, 1, 160, 5, 4}, {1, 4, 4, 70, 70},
                          {2, 32, 2, 7, 9}, {2, 3, 1, 4, 4},   {2, 16, 1, 9, 9},  {3, 2, 3, 1, 1},
                          {9, 3, 5, 1, 7},  {2, 1, 3, 40, 41}, {0, 2, 4, 3, 3}};
  const auto image = [&](const Shape& x, DType dtype, Layout layout) {
    return ops::reshape(make({x[0], x[1] * x[2], x[3], x[4]}, dtype, layout), x);
  };
  for (DType dtype : kFloatingDTypes)
    for (Layout layout : {Layout::contiguous, Layout::channels_last}) {
      for (const Shape& x : shapes)
        for (bool fixed : {false, true})
          check_normalize(make, dtype, {x, 0b11100, {1, x[1], x[2], 1, 1}}, fixed, false,
                          [&] { return image(x, dtype, layout); });
      // Layer norm, whose parameters have another layout than the images; there are fewer rows than parameters.
      for (const Shape& x : {Shape{3, 5, 4, 6}, Shape{4, 40, 20, 30}, Shape{90, 50, 8, 9}})
        check_normalize(make, dtype, {x, 0b1110, {1, x[1], x[2], x[3]}}, false, false,
                        [&] { return make(x, dtype, layout); });
    }
}

TEST_CASE("layer norm of contiguous rows agrees on every backend") {
  Maker make(47);
  // Vectors with and without a tail; one warp or one block per row; one or several rows for each; rows that are too
  // long.
  const NormCase cases[] = {
      {{70, 8}, 0b10, {1, 8}},      {{13, 33}, 0b10, {1, 33}},    {{9, 3}, 0b10, {1, 3}},
      {{5, 1023}, 0b10, {1, 1023}}, {{40, 520}, 0b10, {1, 520}},  {{2, 4, 6, 10}, 0b1100, {1, 1, 6, 10}},
      {{3, 4100}, 0b10, {1, 4100}}, {{2, 8208}, 0b10, {1, 8208}}, {{3, 2, 5, 8}, 0b1100, {1, 2, 1, 1}},
      {{0, 16}, 0b10, {1, 16}},     {{4500, 2}, 0b10, {1, 2}}};
  for (DType dtype : kFloatingDTypes)
    for (const NormCase& c : cases)
      for (int64_t offset : {0, 1})  // 1: no vector is aligned
        check_normalize(make, dtype, c, false, false, [&] {
          const int64_t numel = numel_of(c.x);
          return ops::reshape(make({numel + offset}, dtype).slice(0, offset, numel + offset), c.x);
        });
}

TEST_CASE("layer norm of rows at any distance agrees on every backend") {
  Maker make(67);
  for (DType dtype : kFloatingDTypes)
    for (const Shape& x : {Shape{5, 7, 16}, Shape{3, 4, 33}, Shape{2, 3, 1000}, Shape{65, 9, 8}}) {
      const NormCase c{x, 0b100, {1, 1, x[2]}};
      const auto contiguous = [&] { return make(x, dtype); };
      const auto transposed = [&] { return make({x[1], x[0], x[2]}, dtype).permute({1, 0, 2}); };
      const auto part = [&] { return make({x[0], x[1] + 1, x[2] + 3}, dtype).slice(1, 1, x[1] + 1).slice(2, 0, x[2]); };
      check_normalize(make, dtype, c, false, false, transposed);
      check_normalize(make, dtype, c, false, false, contiguous, transposed);
      check_normalize(make, dtype, c, false, false, transposed, part);
    }
}

TEST_CASE("group and instance norm of long and short rows agree on every backend") {
  Maker make(71);
  // Numbers of groups that do and don't divide the rows of a block; rows for which a thread keeps twice as much, in
  // both passes and in the gradient alone; rows that are too long; planes that do not consist of vectors.
  const NormCase cases[] = {
      {{5, 3, 7, 9}, 0b1100, {1, 3, 1, 1}},           {{9, 5, 2, 2}, 0b1100, {1, 5, 1, 1}},
      {{2, 12, 64, 64}, 0b1100, {1, 12, 1, 1}},       {{3, 2, 2, 48, 64}, 0b11100, {1, 2, 2, 1, 1}},
      {{2, 3, 3, 50, 64}, 0b11100, {1, 3, 3, 1, 1}},  {{1, 2, 5, 41, 47}, 0b11100, {1, 2, 5, 1, 1}},
      {{2, 1, 2, 90, 100}, 0b11100, {1, 1, 2, 1, 1}}, {{33, 4, 3, 2, 2}, 0b11100, {1, 4, 3, 1, 1}}};
  for (DType dtype : kFloatingDTypes)
    for (const NormCase& c : cases) check_normalize(make, dtype, c, false, false, [&] { return make(c.x, dtype); });
}

TEST_CASE("batch norm of images at any offset agrees on every backend") {
  Maker make(53);
  const NormCase c = {{4, 8, 6, 6}, 0b1101, {1, 8, 1, 1}};
  for (DType dtype : kFloatingDTypes)
    for (bool relu : {false, true})
      check_normalize(make, dtype, c, false, relu,
                      [&] { return ops::reshape(make({4 * 8 * 36 + 1}, dtype).slice(0, 1, 4 * 8 * 36 + 1), c.x); });
}

TEST_CASE("batch norm of slices of channels agrees on every backend") {
  Maker make(59);
  // In one launch and in two; pixels that start at a multiple of a vector or elsewhere; sizes of one.
  const Shape shapes[] = {{4, 8, 6, 6}, {3, 24, 29, 31}, {2, 4, 1, 3}, {1, 12, 5, 1}, {40, 64, 1, 1}, {3, 6, 4, 5}};
  for (DType dtype : kFloatingDTypes)
    for (const Shape& shape : shapes)
      for (int64_t others : {1, 4})
        for (bool fixed : {false, true})
          for (bool relu : sample(make, kBoth)) {
            Shape whole = shape;
            whole[1] += others;
            check_normalize(
                make, dtype, {shape, 0b1101, {1, shape[1], 1, 1}}, fixed, relu,
                [&] { return make(shape, dtype, Layout::channels_last); },
                [&] { return make(whole, dtype, Layout::channels_last).slice(1, others, whole[1]); });
          }
}

TEST_CASE("running statistics agree on every backend") {
  Maker make(43);
  for (DType dtype : {DType::f32, DType::f64})
    for (int64_t channels : {1, 3, 300})
      for (int64_t rows : {1, 5})
        for (DType kept : {dtype, DType::bf16})
          for (int which : {1, 2, 3, 7})
            for (Layout layout : kOutputLayouts) {
              const auto run = [&](bool defaults) {
                return [&, defaults](Backend& on, const Arrays& in, const Arrays& out) {
                  const RunningStatistics running = running_of(out, 0, which);
                  if (defaults) on.Backend::update_running_statistics(in[0], in[1], running);
                  else on.update_running_statistics(in[0], in[1], running);
                };
              };
              check_agreement("update_running_statistics",
                              {make({rows, channels}, dtype), make({rows, channels}, dtype)},
                              {make({channels}, kept, layout), make({channels}, kept), make({}, DType::i64)},
                              run(false), run(true), 4);
            }
}

TEST_CASE("batch norm in training agrees on every backend") {
  Maker make(44);
  for (DType dtype : kFloatingDTypes)
    for (const Shape& shape : {Shape{4, 8, 6, 6}, Shape{3, 130, 3, 3}, Shape{70, 16}, Shape{3, 5, 8}})
      for (Layout layout : kAllImageLayouts)
        for (bool instance : {false, true})
          for (bool relu : kBoth) {
            if ((layout == Layout::channels_last && shape.size() != 4) || (instance && shape.size() < 3)) continue;
            const uint32_t axes = ((1u << shape.size()) - 1) & (instance ? ~3u : ~2u);
            const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32,
                        kept = make.choice(std::array{wide, wide, DType::bf16});
            const Shape statistics = reduced_shape(shape, axes, true), channels = {shape[1]};
            const int which = static_cast<int>(make.integer(1, 7));
            const auto run = [&](bool defaults) {
              return [&, defaults](Backend& on, const Arrays& in, const Arrays& out) {
                const NormalizeArgs args{.x = in[0],
                                         .axes = axes,
                                         .residual = relu && which & 1 ? in[1] : Array(),
                                         .relu = relu,
                                         .eps = 1e-3,
                                         .y = out[0],
                                         .mean = out[1],
                                         .variance = out[2],
                                         .running = running_of(out, 3, which)};
                if (defaults) on.Backend::normalize(args);
                else on.normalize(args);
              };
            };
            check_agreement("normalize", {make(shape, dtype, layout), make(shape, dtype, layout)},
                            {make(shape, dtype, layout), make(statistics, wide), make(statistics, wide),
                             make(channels, kept), make(channels, kept), make({}, DType::i64)},
                            run(false), run(true), 10);
          }
}

TEST_CASE("normalisation is accurate if the mean is large") {
  Maker make(37);
  for (const std::string& name : backend_names()) {
    const BackendGuard guard(name);
    const Device device(backend(name).device_type());
    for (Layout layout : {Layout::contiguous, Layout::channels_last})
      for (const NormCase& c : {NormCase{{8, 5, 40, 40}, 0b1101, {}}, NormCase{{8, 8, 40, 40}, 0b1101, {}},
                                NormCase{{6, 5, 40, 40}, 0b1110, {}}}) {
        CAPTURE(name, test::name(layout), c.axes);
        const Array x = make(c.x, DType::f32, layout, 10000 - 4, 10000 + 4);  // multiples of 1/8 are exact in float32
        const ops::Normalized y = ops::normalize(copy_to(x, device), c.axes, {}, {}, 1e-5);
        Array exact = Array::empty(c.x, DType::f64);
        backend("naive").copy(x, exact);
        const ops::Normalized expected = ops::normalize(exact, c.axes, {}, {}, 1e-5);
        // If a second launch computes y, it reads the mean in float32, so the error is half a unit in the mean's last
        // place, divided by the deviation.
        const bool rounded = device.type() == DeviceType::cuda;
        CHECK(error(y.y, expected.y) < (rounded ? 4e-4 : 2e-6));
        CHECK(error(y.variance, expected.variance) < 2e-6);
        CHECK(error(y.mean, expected.mean) < 2e-7);
      }
  }
}

TEST_CASE("resampling agrees on every backend") {
  Maker make(33);
  for (DType dtype : kFloatingDTypes)
    for (int round = 0; round < 20; ++round) {
      const int64_t H = make.integer(1, 12), W = make.integer(1, 40), P = make.integer(1, 9), Q = make.integer(1, 30);
      const auto stencil = [&](int64_t in, int64_t out) {
        const double scale = static_cast<double>(out) / static_cast<double>(in);
        switch (make.integer(0, 4)) {
          case 0: return ops::adaptive_average_stencil(in, out);
          case 1: return ops::linear_stencil(in, out, scale, make.integer(0, 1) == 1);
          case 2: return ops::cubic_stencil(in, out, scale, false);
          case 3: return ops::average_stencil(in, (in + 1) / 2, 2, 2, 0, false, 0);
          default: return ops::linear_stencil(out, in, 1 / scale, false).transposed();
        }
      };
      const ops::OwnedStencil rows = stencil(H, P), columns = stencil(W, Q);
      const int64_t batch = make.integer(0, 3), channels = make.integer(1, 20);
      const Array x = make({batch, channels, H, W}, dtype, make.choice(kAllImageLayouts));
      const Array y =
          make({batch, channels, rows.size_out(), columns.size_out()}, dtype, make.choice(kAllImageLayouts));
      const auto run = [&](Backend& on, const Arrays& in, const Arrays& out) {
        on.resample2d(in[0], rows.view(), columns.view(), out[0]);
      };
      check_agreement("resample2d", {x}, {y}, run, {}, 8);
    }
}

TEST_CASE("resampling leaves infinities and NaN in the windows that contain them") {
  Maker make(34);
  const ops::OwnedStencil averages = ops::average_stencil(12, 6, 2, 2, 0, false, 0),
                          parts = ops::adaptive_average_stencil(12, 5),
                          cubic = ops::cubic_stencil(12, 8, 8. / 12, false),  // weights of both signs
      linear = ops::linear_stencil(12, 23, 23. / 12, true);                   // and zero weights
  for (DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const auto* rows : {&averages, &parts, &cubic, &linear})
      for (const auto* columns : {&averages, &parts, &cubic, &linear}) {
        const Array x = make({1, 2, 12, 12}, dtype), y = make({1, 2, rows->size_out(), columns->size_out()}, dtype);
        const double infinity = std::numeric_limits<double>::infinity();
        for (double value : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
          const int64_t channel = make.integer(0, 1), row = make.integer(0, 11), column = make.integer(0, 11);
          ops::fill(x.select(1, channel).select(1, row).select(1, column), value);
        }
        const auto run = [&](Backend& on, const Arrays& in, const Arrays& out) {
          on.resample2d(in[0], rows->view(), columns->view(), out[0]);
        };
        check_agreement("resample2d", {x}, {y}, run, {}, 8);
      }
}
