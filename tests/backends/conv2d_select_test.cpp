// The choices of select_conv2d() (backends/openmp/conv2d/conv2d.h), and that kernels allocate the memory of the plan.
#include <algorithm>
#include <sstream>
#include <string_view>

#include <gradus/backends/openmp/conv2d/conv2d.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/tests/backends/decisions.h>
#include <gradus/tests/backends/openmp_compare.h>

using namespace gradus;
using namespace gradus::openmp_detail;

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

// Prints the important tiles under their names in conv2d.h.
struct Printer {
  std::ostream& out;
  bool backward;
  void operator()(const std::monostate&) const { out << "nothing to do"; }
  void operator()(const NhwcTiles& t) const {
    out << "images " << t.images << " rows " << t.rows << " filter_tiles " << t.filter_tiles << ", parts " << t.parts;
  }
  void operator()(const NhwcWeightTiles& t) const {
    out << "item " << t.item_images << " x " << t.item_rows << " block " << t.block_images << " x " << t.block_rows
        << " filter_tiles " << t.filter_tiles << (t.joins_taps ? " joins_taps" : "") << ", parts " << t.parts << " x "
        << t.filter_parts;
  }
  void operator()(const DirectTiles& t) const {
    out << "band " << t.band << " pitch " << t.in.pitch << " grain " << t.grain;
    if (backward) out << ", parts " << t.parts;
  }
};

void print(std::ostream& out, const char* pass, const ConvPlan& plan) {
  out << " | " << pass << " | " << plan.algorithm->name << " | ";
  std::visit(Printer{out, std::string_view(pass) != "forward"}, plan.tiles);
  out << " | " << plan.workspace_bytes << '\n';
}

// The plans of the three passes, or of both gradients together if one pass computes them.
std::string decisions(const Layer& l, const std::string& isa, const KernelTable& table, DType dtype,
                      MemoryFormat format, int threads = 2) {
  const Operands o(l, dtype, format);
  const ConvPlan forward = select_conv2d(table, threads, o.x, o.w, &o.bias, o.y, l.geometry());
  const ConvBackwardPlan backward =
      select_conv2d_backward(table, threads, o.y, o.x, o.w, &o.y, &o.x, &o.w, &o.bias, l.geometry(), true);
  std::ostringstream out;
  const std::string who =
      isa + " " + std::string(name(dtype)) + (format == MemoryFormat::contiguous ? " nchw" : " nhwc");
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
  }
  test::check_decisions("backends/conv2d_decisions.txt", out.str());
}

TEST_CASE("every algorithm of convolutions that can run has the listed tiles and the listed work") {
  std::ostringstream out;
  out << "instruction set, type, layout | pass | algorithm | tiles | workspace in bytes, two threads | work\n";
  const auto tables = test::all_instruction_sets();
  const auto list = [&](size_t set, const Shape& in, const Shape& filter, const Conv2dGeometry& g, DType dtype,
                        MemoryFormat format) {
    Shape out_shape = {in[0], filter[0], 0, 0};
    for (int i = 0; i < 2; ++i)
      out_shape[2 + i] = (in[2 + i] + 2 * g.padding[i] - g.dilation[i] * (filter[2 + i] - 1) - 1) / g.stride[i] + 1;
    const StridedLayout x = layout(in, dtype, format), w = layout(filter, dtype, format),
                        y = layout(out_shape, dtype, format);
    for (const auto& [pass, name] :
         {std::pair(ConvPass::fprop, "forward"), std::pair(ConvPass::dgrad, "data"),
          std::pair(ConvPass::wgrad, "weight"), std::pair(ConvPass::gradients, "gradients")}) {
      const bool backward = pass != ConvPass::fprop;
      const ConvProblem problem =
          problem_of(*tables[set].second, 2, pass, backward ? y : x, w, backward ? x : y, g, backward);
      conv2d_family().for_candidates(problem, [&, pass_name = name](const ConvCandidate& each) {
        ConvPlan plan = each.algorithm->plan(problem);
        plan.algorithm = each.algorithm;
        std::ostringstream line;
        print(line, pass_name, plan);
        std::string text = line.str();
        text.pop_back();
        out << tables[set].first << ' ' << gradus::name(dtype)
            << (format == MemoryFormat::contiguous ? " nchw" : " nhwc") << text << " | ";
        test::print_work(out, each.algorithm->parts, each.work);
        out << '\n';
      });
    }
  };
  const auto list_sets = [&](const Shape& in, const Shape& filter, const Conv2dGeometry& g) {
    if (tables.empty()) return;
    list(0, in, filter, g, DType::f64, MemoryFormat::channels_last);
    list(1, in, filter, g, DType::f32, MemoryFormat::contiguous);
    list(2, in, filter, g, DType::f32, MemoryFormat::channels_last);
  };
  for (const Layer& l : kLayers) {
    out << '\n' << l << '\n';
    list_sets({l.N, l.C, l.H, l.W}, {l.K, l.C / l.groups, l.R, l.R}, l.geometry());
  }
  struct Uneven {
    Shape in, filter;
    Conv2dGeometry g;
  };
  for (const Uneven& l : {Uneven{{3, 20, 17, 70}, {24, 20, 3, 5}, {{2, 1}, {1, 2}, {1, 1}, 1}},
                          Uneven{{5, 12, 90, 21}, {36, 6, 5, 2}, {{1, 3}, {0, 1}, {2, 1}, 2}},
                          Uneven{{2, 40, 33, 11}, {40, 1, 2, 3}, {{3, 2}, {1, 0}, {1, 3}, 40}},
                          Uneven{{7, 3, 50, 130}, {10, 3, 1, 7}, {{1, 2}, {0, 3}, {1, 1}, 1}},
                          Uneven{{1, 200, 9, 300}, {70, 200, 3, 1}, {{1, 1}, {2, 0}, {2, 1}, 1}}}) {
    out << '\n' << to_string(l.in) << ", filters " << to_string(l.filter) << '\n';
    list_sets(l.in, l.filter, l.g);
  }
  test::check_decisions("backends/conv2d_work.txt", out.str());
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
        return decisions(layer, set.first, *set.second, DType::f32, MemoryFormat::contiguous, threads);
      };
      const std::string one = with(1), many = with(16);
      CHECK(without_workspace(one) == without_workspace(many));
      larger = larger || one != many;
    }
  CHECK(larger);
}

#if defined(__x86_64__)

TEST_CASE("problems of convolutions are equal if all their parts are, and a plan is that of its problem") {
  const Operands o({.N = 2, .C = 16, .H = 9, .W = 8, .K = 16, .R = 1}, DType::f32, MemoryFormat::contiguous);
  const ConvProblem p =
      problem_of(avx2::kernels(), 2, ConvPass::fprop, o.x, o.w, o.y, {{1, 1}, {0, 0}, {1, 1}, 1}, false);
  CHECK(p == ConvProblem(p));
  const std::vector<void (*)(ConvProblem&)> changes = {[](ConvProblem& q) { q.table = &avx512::kernels(); },
                                                       [](ConvProblem& q) { q.threads = 3; },
                                                       [](ConvProblem& q) { q.pass = ConvPass::dgrad; },
                                                       [](ConvProblem& q) { q.dtype = DType::f64; },
                                                       [](ConvProblem& q) { q.in.h_stride *= 2; },
                                                       [](ConvProblem& q) { ++q.w.N; },
                                                       [](ConvProblem& q) { q.out.W = 7; },
                                                       [](ConvProblem& q) { q.g.padding[1] = 1; },
                                                       [](ConvProblem& q) { q.g.groups = 2; },
                                                       [](ConvProblem& q) { q.mask = !q.mask; },
                                                       [](ConvProblem& q) { q.filters_last = !q.filters_last; }};
  for (const auto& change : changes) {
    ConvProblem q = p;
    change(q);
    CHECK_FALSE(p == q);
    CHECK_FALSE(q == p);
  }
  // A slice of the weights has to be copied, and then has the strides that dense weights have.
  StridedLayout gaps = o.w;
  gaps.strides = {32, 2, 2, 2};
  const auto plan_of = [&](const StridedLayout& w) {
    return select_conv2d(avx2::kernels(), 2, o.x, w, nullptr, o.y, {{1, 1}, {0, 0}, {1, 1}, 1});
  };
  const ConvPlan first = plan_of(o.w), second = plan_of(gaps), third = plan_of(o.w);
  CHECK(second.workspace_bytes >= first.workspace_bytes + 4 * 16 * 16);
  CHECK(second.dense_weights);
  CHECK(third.workspace_bytes == first.workspace_bytes);
  CHECK(third.dense_weights == first.dense_weights);
}

TEST_CASE("the implicit GEMM reads channels-last weights without a copy, however few channels and filters there are") {
  const ForcedAlgorithm forced(kImplicitGemm.name);
  const auto plan_of = [](int64_t channels, int64_t filters, MemoryFormat format) {
    const Layer layer = {.N = 2, .C = channels, .H = 8, .W = 8, .K = filters, .R = 3};
    const Operands o(layer, DType::f32, format);
    return select_conv2d(avx2::kernels(), 1, o.x, o.w, nullptr, o.y, layer.geometry());
  };
  for (const int64_t channels : {2, 3, 16})
    for (const int64_t filters : {1, 2, 16}) {
      CAPTURE(channels, filters);
      CHECK_FALSE(plan_of(channels, filters, MemoryFormat::channels_last).dense_weights);
      CHECK(plan_of(channels, filters, MemoryFormat::contiguous).dense_weights);
    }
}

TEST_CASE("the estimate of direct counts what filters read again by both strides") {
  const auto bytes_read_again = [](int64_t row_stride, int64_t column_stride) {
    const auto array = [](const Shape& shape) { return layout(shape, DType::f32, MemoryFormat::contiguous); };
    const ConvProblem problem = problem_of(avx512::kernels(), 1, ConvPass::fprop, array({1, 16, 64, 64}),
                                           array({16, 16, 3, 3}), array({1, 16, 64 / row_stride, 64 / column_stride}),
                                           {{row_stride, column_stride}, {1, 1}, {1, 1}, 1}, false);
    const auto part = std::ranges::find_if(
        kDirect.parts, [](const WorkPart& each) { return each.name == std::string_view("reread_bytes"); });
    return kDirect.work(problem)[static_cast<size_t>(part - kDirect.parts.begin())];
  };
  CHECK(bytes_read_again(1, 1) == 0);  // the planes of a tile fit in the first-level cache
  CHECK(bytes_read_again(1, 4) > 0);
  CHECK(bytes_read_again(4, 1) > 0);
}

#endif

namespace {

// The most bytes that f() holds from the allocator.
template <class F>
int64_t peak(F&& f) {
  DeviceRuntime& memory = runtime(DeviceType::cpu);
  memory.reset_peak_memory_stats(0);
  const int64_t before = memory.memory_stats(0).allocated;
  f();
  return memory.memory_stats(0).peak_allocated - before;
}

// Forward, and the gradients selected by the bits of `wants` (dx, dw): the allocated memory must equal the plan's
// workspace.
void check_workspace(const Layer& l, DType dtype, MemoryFormat format, int wants) {
  INFO(l << ", " << name(dtype) << (format == MemoryFormat::contiguous ? ", nchw" : ", nhwc") << ", " << name(cpu_isa())
         << ", gradients " << wants);
  const Conv2dGeometry g = l.geometry();
  const auto image = [&](const Shape& shape) { return test::random(shape, dtype, format); };
  const Array x = image({l.N, l.C, l.H, l.W}), w = image({l.K, l.C / l.groups, l.R, l.R});
  const Array y = image({l.N, l.K, l.out(l.H), l.out(l.W)}), dy = image(y.shape()), bias = test::random({l.K}, dtype);
  const Array dx = Array::empty_like(x), dw = Array::empty_like(w), db = Array::empty_like(bias);
  const View bias_view(bias), y_view(y);
  const MutableView dx_view(dx), dw_view(dw), db_view(db);
  const MutableView *wanted_dx = wants & 1 ? &dx_view : nullptr, *wanted_dw = wants & 2 ? &dw_view : nullptr,
                    *wanted_db = wants & 2 ? &db_view : nullptr;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const int64_t forward = peak(
        [&] { test::openmp().conv2d_bias_relu({.x = x, .w = w, .bias = bias, .relu = true, .geometry = g, .y = y}); });
    const int64_t backward = peak([&] {
      test::openmp().conv2d_bias_relu_backward({.dy = dy,
                                                .x = x,
                                                .w = w,
                                                .y = y,
                                                .geometry = g,
                                                .dx = wants & 1 ? dx : Array(),
                                                .dw = wants & 2 ? dw : Array(),
                                                .dbias = wants & 2 ? db : Array()});
    });
    const int64_t forward_plan =
        select_conv2d(kernel_table(), threads, View(x), View(w), &bias_view, View(y), g).workspace_bytes;
    const int64_t backward_plan = select_conv2d_backward(kernel_table(), threads, View(dy), View(x), View(w), &y_view,
                                                         wanted_dx, wanted_dw, wanted_db, g, false)
                                      .workspace_bytes;
    CHECK(forward == forward_plan);
    CHECK(backward == backward_plan);
  }
}

}  // namespace

TEST_CASE("openmp convolutions allocate the scratch memory of their plan") {
  const Layer layers[] = {
      {.N = 3, .C = 1, .H = 28, .W = 28, .K = 2, .R = 3, .padding = 1},
      {.N = 2, .C = 3, .H = 60, .W = 57, .K = 3, .R = 5, .stride = 2, .padding = 2},
      {.N = 2, .C = 20, .H = 15, .W = 14, .K = 5, .R = 3, .padding = 1},
      {.N = 2, .C = 6, .H = 40, .W = 41, .K = 5, .R = 3, .stride = 3, .dilation = 2},
      {.N = 4, .C = 5, .H = 12, .W = 12, .K = 32, .R = 3, .padding = 1},
      {.N = 4, .C = 36, .H = 12, .W = 12, .K = 40, .R = 3, .stride = 2, .padding = 1},
      {.N = 2, .C = 64, .H = 20, .W = 20, .K = 64, .R = 3, .padding = 1},
      {.N = 2, .C = 64, .H = 9, .W = 9, .K = 96, .R = 1, .groups = 2},
      {.N = 1, .C = 300, .H = 8, .W = 8, .K = 64, .R = 3, .padding = 1},
      {.N = 2, .C = 32, .H = 10, .W = 10, .K = 32, .R = 3, .stride = 2, .padding = 1, .groups = 32},
      {.N = 0, .C = 32, .H = 10, .W = 10, .K = 32, .R = 3},
  };
  int wants = 0;
  for (CpuIsa isa : test::instruction_sets()) {
    set_cpu_isa(isa);
    for (const Layer& layer : layers)
      for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
        for (DType dtype : {DType::f32, DType::f64, DType::bf16})
          check_workspace(layer, dtype, format, 1 + wants++ % 3);
  }
  set_cpu_isa(best_cpu_isa());
  set_num_threads(2);
}
