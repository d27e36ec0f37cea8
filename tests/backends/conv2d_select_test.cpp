// What select_conv2d() decides (backends/openmp/conv2d/select.h), without a kernel being run.
#include <sstream>

#include <gradus/backends/openmp/conv2d/select.h>
#include <gradus/tests/backends/decisions.h>

using namespace gradus;
using namespace gradus::openmp;

namespace {

struct Layer {
  int64_t N, C, H, W, K, R;
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;

  Conv2dGeometry geometry() const { return {{stride, stride}, {padding, padding}, {dilation, dilation}, groups}; }
  int64_t out(int64_t size) const { return (size + 2 * padding - dilation * (R - 1) - 1) / stride + 1; }
};

std::ostream& operator<<(std::ostream& out, const Layer& l) {
  out << l.N << "x" << l.C << "x" << l.H << "x" << l.W << ", " << l.K << " filters " << l.R << "x" << l.R;
  if (l.stride > 1) out << ", stride " << l.stride;
  if (l.padding > 0) out << ", padding " << l.padding;
  if (l.dilation > 1) out << ", dilation " << l.dilation;
  if (l.groups > 1) out << ", groups " << l.groups;
  return out;
}

StridedLayout layout(const Shape& shape, DType dtype, MemoryFormat format) {
  StridedLayout x;
  x.dtype = dtype, x.shape = shape;
  x.strides = format == MemoryFormat::contiguous ? contiguous_strides(shape) : channels_last_strides(shape);
  return x;
}

struct Operands {
  StridedLayout x, w, bias, y;
  Operands(const Layer& l, DType dtype, MemoryFormat format)
      : x(layout({l.N, l.C, l.H, l.W}, dtype, format)), w(layout({l.K, l.C / l.groups, l.R, l.R}, dtype, format)),
        bias(layout({l.K}, dtype, MemoryFormat::contiguous)),
        y(layout({l.N, l.K, l.out(l.H), l.out(l.W)}, dtype, format)) {}
};

// The tiles that matter, in the words of select.h.
struct Printer {
  std::ostream& out;
  void operator()(const std::monostate&) const { out << "nothing to do"; }
  void operator()(const NhwcTiles& t) const {
    out << "images " << t.images << " rows " << t.rows << " filter_tiles " << t.filter_tiles << ", parts " << t.parts;
  }
  void operator()(const NhwcWeightTiles& t) const {
    out << "item " << t.item_images << " x " << t.item_rows << " block " << t.block_images << " x " << t.block_rows
        << " filter_tiles " << t.filter_tiles << (t.joins_taps ? " joins_taps" : "") << ", parts " << t.parts << " x "
        << t.filter_parts;
  }
  void operator()(const NchwTiles& t) const { out << "band " << t.band << " pitch " << t.planes.pitch; }
  void operator()(const NchwWeightTiles& t) const {
    out << "band " << t.band << " pitch " << t.x.pitch << " images " << t.images << ", parts " << t.parts;
  }
  void operator()(const DirectTiles& t) const {
    out << "band " << t.band << " pitch " << t.planes.pitch << " grain " << t.grain;
  }
  void operator()(const DirectBackwardTiles& t) const {
    out << "band " << t.band << " pitch " << t.dy.pitch << " grain " << t.grain << ", parts " << t.parts;
  }
  void operator()(const DepthwiseTiles& t) const { out << "grain " << t.grain << ", parts " << t.parts; }
  void operator()(const WinogradTiles& t) const {
    out << "images " << t.part_images << " rows " << t.part_rows << " filter_tiles " << t.part_filter_tiles
        << (t.keeps_u ? " keeps_u" : "") << ", parts " << t.parts[0] << " x " << t.parts[1] << " x " << t.parts[2];
  }
};

void print(std::ostream& out, const char* pass, const ConvPlan& plan) {
  static constexpr const char* names[] = {"implicit_gemm_nhwc", "implicit_gemm_nchw", "direct",
                                          "depthwise",          "winograd_2x2",       "winograd_4x4"};
  out << " | " << pass << " | " << names[static_cast<int>(plan.algorithm)] << " | ";
  std::visit(Printer{out}, plan.tiles);
  out << " | " << plan.workspace_bytes << '\n';
}

// The three passes; both gradients where they are computed at once.
std::string decisions(const Layer& l, const std::string& isa, const KernelTable& table, DType dtype,
                      MemoryFormat format, ConvolutionAccuracy accuracy = ConvolutionAccuracy::exact, int threads = 2) {
  const Operands o(l, dtype, format);
  const ConvSettings settings{table, accuracy, threads};
  const ConvPlan forward = select_conv2d(settings, o.x, o.w, &o.bias, o.y, l.geometry());
  const ConvBackwardPlan backward =
      select_conv2d_backward(settings, o.y, o.x, o.w, &o.y, &o.x, &o.w, &o.bias, l.geometry(), true);
  std::ostringstream out;
  std::string who = isa + " " + std::string(name(dtype)) + (format == MemoryFormat::contiguous ? " nchw" : " nhwc");
  if (accuracy != ConvolutionAccuracy::exact) who += std::string(" ") + name(accuracy);
  out << who, print(out, "forward", forward);
  out << who, print(out, backward.at_once ? "gradients" : "data", backward.data);
  if (!backward.at_once) out << who, print(out, "weight", backward.weight);
  return out.str();
}

constexpr Layer kLayers[] = {
    {.N = 128, .C = 1, .H = 28, .W = 28, .K = 1, .R = 3, .padding = 1},
    {.N = 64, .C = 3, .H = 28, .W = 28, .K = 3, .R = 3, .padding = 1},
    {.N = 128, .C = 1, .H = 28, .W = 28, .K = 6, .R = 5, .padding = 2},
    {.N = 128, .C = 6, .H = 14, .W = 14, .K = 16, .R = 5},
    {.N = 128, .C = 1, .H = 28, .W = 28, .K = 32, .R = 3, .padding = 1},
    {.N = 128, .C = 32, .H = 28, .W = 28, .K = 32, .R = 3, .padding = 1},
    {.N = 32, .C = 3, .H = 96, .W = 96, .K = 32, .R = 3, .padding = 1},
    {.N = 32, .C = 64, .H = 32, .W = 32, .K = 128, .R = 3, .stride = 2, .padding = 1},
    {.N = 32, .C = 512, .H = 4, .W = 4, .K = 512, .R = 3, .padding = 1},
    {.N = 32, .C = 256, .H = 16, .W = 16, .K = 256, .R = 1},
    {.N = 1, .C = 3, .H = 224, .W = 224, .K = 64, .R = 7, .stride = 2, .padding = 3},
    {.N = 8, .C = 20, .H = 24, .W = 24, .K = 17, .R = 3, .padding = 2, .dilation = 2},
    {.N = 8, .C = 64, .H = 56, .W = 56, .K = 64, .R = 3, .padding = 1, .groups = 64},
    {.N = 8, .C = 128, .H = 14, .W = 14, .K = 128, .R = 3, .stride = 2, .padding = 1, .groups = 128},
    {.N = 16, .C = 96, .H = 28, .W = 28, .K = 96, .R = 3, .padding = 1, .groups = 3},
};

}  // namespace

TEST_CASE("the openmp backend chooses the listed algorithms and tiles for convolutions") {
  std::ostringstream out;
  out << "instruction set, type, layout | pass | algorithm | tiles | workspace in bytes, two threads\n";
  using enum MemoryFormat;
  for (const Layer& layer : kLayers) {
    out << '\n' << layer << '\n';
    for (const auto& [isa, table] : test::all_instruction_sets())
      for (MemoryFormat format : {contiguous, channels_last}) out << decisions(layer, isa, *table, DType::f32, format);
    const KernelTable& widest = *test::all_instruction_sets().back().second;
    out << decisions(layer, "avx512", widest, DType::f64, contiguous);
    out << decisions(layer, "avx512", widest, DType::bf16, channels_last);
    if (layer.R == 3 && layer.stride == 1 && layer.dilation == 1 && layer.C / layer.groups > 3)
      for (const auto& [isa, table] : test::all_instruction_sets())
        for (auto accuracy : {ConvolutionAccuracy::winograd_2x2, ConvolutionAccuracy::winograd_4x4})
          out << decisions(layer, isa, *table, DType::f32, contiguous, accuracy);
  }
  test::check_decisions("conv2d_decisions.txt", out.str());
}

TEST_CASE("the number of threads changes nothing but the workspace of a convolution's plan") {
  const auto without_workspace = [](const std::string& lines) {
    std::istringstream in(lines);
    std::string kept;
    for (std::string line; std::getline(in, line);) kept += line.substr(0, line.rfind(" | ")) + '\n';
    return kept;
  };
  bool larger = false;
  for (const auto& set : test::all_instruction_sets())
    for (const Layer& layer : kLayers) {
      const auto with = [&](int threads) {
        return decisions(layer, set.first, *set.second, DType::f32, MemoryFormat::contiguous,
                         ConvolutionAccuracy::winograd_4x4, threads);
      };
      const std::string one = with(1), many = with(16);
      CHECK(without_workspace(one) == without_workspace(many));
      larger = larger || one != many;
    }
  CHECK(larger);
}
