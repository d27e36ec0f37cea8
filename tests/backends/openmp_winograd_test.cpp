// Winograd convolutions of the openmp backend: agreement with naive, the bounds of their errors, and when they run.
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/backends/openmp/conv2d/select_tiles.h>
#include <gradus/core/convolution_accuracy.h>
#include <gradus/core/observer.h>
#include <gradus/tests/backends/openmp_compare.h>

using namespace gradus;
using namespace gradus::test;
using openmp_detail::Images;

namespace {

// Differences from exact results, relative to the largest of these, as core/convolution_accuracy.h has them.
constexpr double bound(ConvolutionAccuracy accuracy) {
  return accuracy == ConvolutionAccuracy::winograd_4x4 ? 3e-5 : 4e-6;
}
constexpr ConvolutionAccuracy kWinograd[] = {ConvolutionAccuracy::winograd_2x2, ConvolutionAccuracy::winograd_4x4};

// The plan that runs Winograd's algorithm whether or not it is the fastest here.
openmp_detail::WinogradTiles tiles_of(ConvolutionAccuracy accuracy, const View& in, const View& w, const View& out,
                                      const Conv2dGeometry& geometry, bool backward, bool mask) {
  using openmp_detail::ImageLayout;
  const openmp_detail::ConvSettings settings{openmp_detail::kernel_table()};
  openmp_detail::WinogradTiles tiles = {};
  openmp_detail::cut(
      tiles, {settings, DType::f32, ImageLayout(in), ImageLayout(w), ImageLayout(out), geometry, backward, mask},
      accuracy == ConvolutionAccuracy::winograd_2x2 ? 2 : 4);
  return tiles;
}

Conv2dGeometry winograd_geometry(int64_t padding, int64_t groups = 1) {
  return {{1, 1}, {padding, padding}, {1, 1}, groups};
}

struct WinogradCase {
  int64_t N, C, H, W, K, padding, groups;
};

struct WinogradOperands {
  Array x, w, bias, y;
  Conv2dGeometry geometry;
  WinogradOperands(const WinogradCase& c, MemoryFormat format)
      : x(random({c.N, c.C, c.H, c.W}, DType::f32, format)), w(random({c.K, c.C / c.groups, 3, 3})),
        bias(random({c.K})),
        y(random({c.N, c.K, c.H + 2 * c.padding - 2, c.W + 2 * c.padding - 2}, DType::f32, format)),
        geometry(winograd_geometry(c.padding, c.groups)) {}
};

// y = relu(x * w + bias) by naive, or by a Winograd kernel.
void forward(Backend& on, ConvolutionAccuracy accuracy, const WinogradOperands& o, const Array& x, const Array& y) {
  if (&on == &naive())
    return on.conv2d_bias_relu({.x = x, .w = o.w, .bias = o.bias, .relu = true, .geometry = o.geometry, .y = y});
  openmp_detail::run(tiles_of(accuracy, x, o.w, y, o.geometry, false, false),
                     {openmp_detail::kernel_table(), o.geometry, false, Images<const float>(View(x)), nullptr,
                      Images<const float>(View(o.w)), o.bias.data<float>(), true, Images<float>(MutableView(y))});
}
void backward_data(Backend& on, ConvolutionAccuracy accuracy, const WinogradOperands& o, const Array& dy,
                   const Array* y, const Array& dx) {
  const View mask = y ? View(*y) : View();
  const MutableView out(dx);
  if (&on == &naive())
    return on.conv2d_bias_relu_backward({.dy = dy, .x = dx, .w = o.w, .y = mask, .geometry = o.geometry, .dx = out});
  openmp_detail::run(tiles_of(accuracy, dy, o.w, dx, o.geometry, true, y),
                     {openmp_detail::kernel_table(), o.geometry, true, Images<const float>(View(dy)), mask.as<float>(),
                      Images<const float>(View(o.w)), nullptr, false, Images<float>(out)});
}

// Sees which implementation of a convolution ran.
class Implementation final : public Observer {
 public:
  Implementation() { add_observer(this); }
  ~Implementation() override { remove_observer(this); }
  void on_end(const ObservedEvent& event) override {
    if (std::string_view(event.name).starts_with("conv2d")) name_ = event.implementation;
  }
  // What ran since the last look.
  std::string take() { return std::exchange(name_, ""); }

 private:
  std::string name_;
};

}  // namespace

TEST_CASE("Winograd convolutions agree with naive") {
  const WinogradCase cases[] = {
      {1, 16, 8, 8, 32, 1, 1},     // whole tiles
      {64, 1, 3, 3, 1, 0, 1},      // one result an image
      {2, 3, 4, 5, 5, 1, 1},       // channels and filters that fill no vector
      {3, 40, 7, 9, 50, 1, 1},     // odd sizes, the last tiles reach over the image
      {2, 17, 6, 11, 33, 0, 1},    // no padding
      {2, 16, 5, 6, 16, 2, 1},     // a margin of padding that no pixel is in
      {1, 8, 1, 1, 8, 1, 1},       // one pixel
      {1, 8, 1, 1, 8, 3, 1},       // more padding than the kernel reaches
      {2, 36, 10, 6, 68, 1, 4},    // groups
      {1, 6, 9, 9, 6, 1, 6},       // of one channel
      {1, 400, 5, 5, 24, 1, 1},    // two blocks of the depth
      {1, 16, 3, 75, 16, 1, 1},    // rows of tiles that are transformed in pieces
      {1, 64, 33, 31, 64, 1, 1},   // several bands of rows
      {40, 32, 4, 4, 40, 1, 1},    // several images in a part
      {140, 96, 2, 2, 160, 1, 1},  // weights that are transformed by each part anew, several parts of the filters
  };
  for (const WinogradCase& c : cases)
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
      for (ConvolutionAccuracy accuracy : kWinograd) {
        INFO(name(accuracy) << " N " << c.N << " C " << c.C << " H " << c.H << " W " << c.W << " K " << c.K
                            << " padding " << c.padding << " groups " << c.groups << " format "
                            << static_cast<int>(format));
        const WinogradOperands o(c, format);
        const double allowed = bound(accuracy);
        compare(o.y, allowed, [&](Backend& on, const Array& y) { forward(on, accuracy, o, o.x, y); });
        const Array dy = random(o.y.shape(), DType::f32, format);
        compare(o.x, allowed, [&](Backend& on, const Array& dx) { backward_data(on, accuracy, o, dy, nullptr, dx); });
        compare(o.x, allowed, [&](Backend& on, const Array& dx) { backward_data(on, accuracy, o, dy, &o.y, dx); });
      }
}

TEST_CASE("Winograd convolutions read and write slices of larger images") {
  const auto inner = [](const Array& x) { return x.slice(1, 3, 35).slice(2, 1, 8).slice(3, 0, 12, 2); };
  const WinogradOperands o({2, 32, 7, 6, 32, 1, 1}, MemoryFormat::contiguous);
  for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
    for (ConvolutionAccuracy accuracy : kWinograd) {
      const Array x = random({2, 40, 9, 12}, DType::f32, format), y = random({2, 40, 9, 12}, DType::f32, format);
      const double allowed = bound(accuracy);
      compare(y, allowed, [&](Backend& on, const Array& out) { forward(on, accuracy, o, inner(x), inner(out)); });
      compare(o.y, allowed, [&](Backend& on, const Array& out) { forward(on, accuracy, o, inner(x), out); });
      compare(x, allowed,
              [&](Backend& on, const Array& dx) { backward_data(on, accuracy, o, inner(y), nullptr, inner(dx)); });
    }
}

TEST_CASE("errors of Winograd convolutions stay below the documented bounds") {
  for (int64_t channels : {1, 16, 64, 512}) {
    const WinogradOperands o({2, channels, 24, 24, 16, 1, 1}, MemoryFormat::channels_last);
    const Array exact = dense(o.y), x = dense(o.x), w = dense(o.w), bias = dense(o.bias);
    test::openmp().conv2d_bias_relu({.x = x, .w = w, .bias = bias, .relu = true, .geometry = o.geometry, .y = exact});
    const CpuIsa before = cpu_isa();
    for (CpuIsa isa : instruction_sets())
      for (ConvolutionAccuracy accuracy : kWinograd) {
        set_cpu_isa(isa);
        forward(test::openmp(), accuracy, o, o.x, o.y);
        INFO(name(isa) << ' ' << name(accuracy) << ' ' << channels << " channels");
        CHECK(error(o.y, exact) <= bound(accuracy));
      }
    set_cpu_isa(before);
  }
}

TEST_CASE("results of a Winograd convolution that see a NaN are NaN, and other images are untouched") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const WinogradOperands o({2, 32, 9, 9, 32, 1, 1}, MemoryFormat::channels_last);
  naive().fill(o.x.select(0, 0).select(0, 5).select(0, 4).slice(0, 4, 5), nan);
  for (ConvolutionAccuracy accuracy : kWinograd) {
    forward(test::openmp(), accuracy, o, o.x, o.y);
    const Array y = dense(o.y);  // (2, 32, 9, 9)
    const auto is_nan = [&](int64_t n, int64_t k, int64_t h, int64_t w) {
      return std::isnan(y.data<double>()[((n * 32 + k) * 9 + h) * 9 + w]);
    };
    for (int64_t k = 0; k < 32; ++k)
      for (int64_t h = 0; h < 9; ++h)
        for (int64_t w = 0; w < 9; ++w) {
          if (h >= 3 && h <= 5 && w >= 3 && w <= 5) CHECK(is_nan(0, k, h, w));
          CHECK(!is_nan(1, k, h, w));
        }
  }
}

TEST_CASE("convolutions are exact unless the user allows less, and where nothing is gained") {
  Implementation last;
  const auto runs = [&](const WinogradCase& c, DType dtype = DType::f32, int64_t stride = 1, int64_t dilation = 1) {
    const Conv2dGeometry g{{stride, stride}, {c.padding, c.padding}, {dilation, dilation}, c.groups};
    const auto out = [&](int64_t size) { return (size + 2 * c.padding - 2 * dilation - 1) / stride + 1; };
    const Array x = random({c.N, c.C, c.H, c.W}, dtype), w = random({c.K, c.C / c.groups, 3, 3}, dtype);
    const Array y = random({c.N, c.K, out(c.H), out(c.W)}, dtype), dw = Array::empty_like(w);
    // Without the instruction set and the layout.
    const auto ran = [&] {
      const std::string full = last.take(), algorithm = full.substr(0, full.rfind('_'));
      return algorithm.starts_with("implicit_gemm") ? "implicit_gemm" : algorithm;
    };
    test::openmp().conv2d(x, w, y, g);
    const std::string forward = ran();
    test::openmp().conv2d_backward_data(y, w, x, g);
    const std::string data = ran();  // of few channels, the exact one is direct
    CHECK((data == forward || (data == "direct" && forward == "implicit_gemm")));
    test::openmp().conv2d_backward_weight(y, x, dw, g);
    CHECK(!ran().starts_with("winograd"));
    return forward;
  };
  const WinogradCase layer{4, 64, 16, 16, 64, 1, 1};
  CHECK(runs(layer) == "implicit_gemm");
  {
    ConvolutionAccuracyGuard guard(ConvolutionAccuracy::winograd_2x2);
    CHECK(runs(layer) == "winograd_2x2");
  }
  ConvolutionAccuracyGuard guard(ConvolutionAccuracy::winograd_4x4);
  CHECK(runs(layer) == "winograd_4x4");
  CHECK(runs(layer, DType::bf16) == "winograd_4x4");
  CHECK(runs({32, 512, 4, 4, 512, 1, 1}) == "winograd_4x4");
  CHECK(runs({4, 64, 16, 16, 64, 1, 2}) == "winograd_4x4");
  CHECK(runs({32, 64, 6, 6, 64, 1, 1}) == "winograd_2x2");  // tiles of 4x4 would reach far over the image
  CHECK(runs(layer, DType::f64) == "implicit_gemm");
  CHECK(runs(layer, DType::f32, 2) == "implicit_gemm");
  CHECK(runs(layer, DType::f32, 1, 2) == "implicit_gemm");
  CHECK(runs({1, 64, 3, 3, 64, 1, 1}) == "implicit_gemm");   // few tiles for the weights' transform
  CHECK(runs({4, 4, 28, 28, 32, 1, 1}) == "implicit_gemm");  // few channels for the image's
  CHECK(runs({4, 1, 28, 28, 1, 1, 1}) == "direct");
  CHECK(runs({4, 32, 28, 28, 32, 1, 32}) == "direct");
  CHECK(runs({0, 64, 16, 16, 64, 1, 1}) == "implicit_gemm");
  CHECK(runs({4, 0, 16, 16, 64, 1, 1}) == "implicit_gemm");
}
