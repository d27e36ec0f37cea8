// Which kernels of normalisation and softmax the backend "cuda" runs, decided without a GPU for the properties of an
// H200. The expected decisions are in norm_plans.txt, one per line. After an intended change,
//   GRADUS_WRITE_DECISIONS=1 build/cpu-release/tests/test_cuda "plans of normalisation on CUDA are those written down"
// overwrites that file, and its diff shows what changed.
#include <set>
#include <sstream>

#include <gradus/backends/cuda/norm/select.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/decisions.h>

using namespace gradus;
using namespace gradus::cuda_detail;

namespace {

struct NormLayer {
  const char* name;
  Shape x;
  uint32_t axes;
  Shape parameters;
};

const NormLayer norm_layers[] = {
    {"ResNet for CIFAR-10", {128, 64, 32, 32}, 0b1101, {1, 64, 1, 1}},
    {"", {128, 128, 16, 16}, 0b1101, {1, 128, 1, 1}},
    {"", {128, 256, 8, 8}, 0b1101, {1, 256, 1, 1}},
    {"", {128, 512, 4, 4}, 0b1101, {1, 512, 1, 1}},
    {"", {32, 64, 32, 32}, 0b1101, {1, 64, 1, 1}},
    {"", {32, 256, 8, 8}, 0b1101, {1, 256, 1, 1}},
    {"", {32, 512, 4, 4}, 0b1101, {1, 512, 1, 1}},
    {"planes of an odd size", {32, 512, 7, 7}, 0b1101, {1, 512, 1, 1}},
    {"an odd number of channels", {16, 3, 8, 8}, 0b1101, {1, 3, 1, 1}},
    {"neither has vectors", {4, 3, 5, 5}, 0b1101, {1, 3, 1, 1}},
    {"one image", {1, 64, 56, 56}, 0b1101, {1, 64, 1, 1}},
    {"batch norm of rows", {128, 100}, 0b01, {1, 100}},
    {"batch norm of sequences", {16, 8, 100}, 0b101, {1, 8, 1}},
    {"transformer", {1024, 128}, 0b10, {1, 128}},
    {"", {8192, 1024}, 0b10, {1, 1024}},
    {"", {16, 4, 8}, 0b110, {1, 4, 8}},
    {"rows of an odd size", {1000, 33}, 0b10, {1, 33}},
    {"long rows", {64, 8192}, 0b10, {1, 8192}},
    {"longer rows", {64, 8196}, 0b10, {1, 8196}},
    {"rows that are too long", {64, 16388}, 0b10, {1, 16388}},
    {"group norm", {32, 8, 4, 14, 14}, 0b11100, {1, 8, 4, 1, 1}},
    {"", {32, 8, 2, 64, 64}, 0b11100, {1, 8, 2, 1, 1}},
    {"", {16, 3, 5, 7, 7}, 0b11100, {1, 3, 5, 1, 1}},
    {"instance norm", {32, 32, 14, 14}, 0b1100, {1, 32, 1, 1}},
    {"images with one pixel", {32, 32, 1, 1}, 0b1100, {1, 32, 1, 1}},
};

MutableView view_of(DType dtype, const Shape& shape, const Strides& strides, uintptr_t address = 4096) {
  MutableView view;
  view.dtype = dtype, view.shape = shape, view.strides = strides;
  view.data = reinterpret_cast<void*>(address);  // only its alignment matters
  return view;
}
MutableView dense(DType dtype, const Shape& shape) { return view_of(dtype, shape, contiguous_strides(shape)); }

/// A variant of a layer.
struct NormCase {
  DType dtype = DType::f32;
  bool channels_last = false, backward = false, fixed = false, relu = false;
  bool residual = false, wants_dresidual = false, in_parts = false;
  int64_t slice = 0;         ///< more channels in the images of which x is a slice
  uintptr_t address = 4096;  ///< of x and of the views with its shape
  DeviceProperties device = kH200;
};

NormPlan plan_of(const NormLayer& layer, const NormCase& c) {
  const DType wide = c.dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto strides_of = [&](const Shape& shape) {
    return c.channels_last ? channels_last_strides(shape) : contiguous_strides(shape);
  };
  Shape whole = layer.x;
  whole[1] += c.slice;
  const MutableView x = view_of(c.dtype, layer.x, strides_of(whole), c.address);
  const MutableView y = view_of(c.dtype, layer.x, strides_of(layer.x), c.address);
  const MutableView statistics = dense(wide, reduced_shape(layer.x, layer.axes, true));
  const MutableView parameter = dense(wide, layer.parameters);
  Strides broadcast = parameter.strides;
  for (int i = 0; i < layer.x.size(); ++i)
    if (layer.parameters[i] == 1) broadcast[i] = 0;
  const View weight(view_of(wide, layer.x, broadcast));
  if (c.backward)
    return select(NormalizeBackwardArgs{.dy = y,
                                        .x = x,
                                        .mean = statistics,
                                        .variance = statistics,
                                        .weight = weight,
                                        .y = c.relu ? View(y) : View(),
                                        .addend = c.in_parts ? View(y) : View(),
                                        .alone = c.relu && !c.residual,
                                        .axes = layer.axes,
                                        .eps = 1e-5,
                                        .fixed_statistics = c.fixed,
                                        .dx = y,
                                        .dweight = parameter,
                                        .dbias = parameter,
                                        .dresidual = c.wants_dresidual ? y : MutableView()},
                  c.device);
  return select(NormalizeArgs{.x = x,
                              .axes = layer.axes,
                              .weight = weight,
                              .bias = weight,
                              .relu = c.relu,
                              .eps = 1e-5,
                              .fixed_statistics = c.fixed,
                              .y = y,
                              .mean = statistics,
                              .variance = statistics},
                c.device);
}

/// Describes a plan: "channels_split 64/4 of 1x512, 2048 bytes" is algorithm, blocks, /splits, outputs x lanes of a
/// block, workspace; "rows 128 of 8x32, parameters 8x4" is algorithm, blocks, rows of a block x threads of a row,
/// groups x parameters of each.
std::string describe(const NormPlan& plan) {
  std::ostringstream text;
  text << plan.name();
  if (plan.algorithm == NormAlgorithm::rows)
    text << " " << plan.rows.blocks << " of " << plan.rows.teams << "x" << plan.rows.threads
         << (plan.rows.vectorized ? " vectors" : "") << (plan.rows.twice ? " twice" : "") << ", parameters "
         << plan.rows.groups.divisor << "x" << plan.rows.size / plan.rows.plane.divisor;
  else if (plan.algorithm == NormAlgorithm::channels)
    text << " " << plan.channels.groups() << "/" << plan.channels.splits << " of " << (1 << plan.channels.outputs_log2)
         << "x" << (1 << plan.channels.lanes_log2) << (plan.channels.vec == 1 ? " single" : "");
  if (plan.channels.pitch) text << " pitch " << plan.channels.pitch;
  if (plan.workspace_bytes) text << ", " << plan.workspace_bytes << " bytes";
  return text.str();
}

std::string plans_of(const NormLayer& layer) {
  std::ostringstream text;
  text << "\n" << (*layer.name ? layer.name : "x") << ": ";
  for (int i = 0; i < layer.x.size(); ++i) text << (i ? "x" : "") << layer.x[i];
  text << ", axes";
  for (int i = 0; i < layer.x.size(); ++i)
    if (layer.axes >> i & 1) text << " " << i;
  text << "\n";
  for (const bool backward : {false, true})
    for (const bool fixed : {false, true})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
        const auto line = [&](bool channels_last, int64_t slice) {
          return describe(plan_of(
              layer,
              {.dtype = dtype, .channels_last = channels_last, .backward = backward, .fixed = fixed, .slice = slice}));
        };
        const std::string label = std::string(backward ? "dx" : "y ") + (fixed ? " fixed " : "       ") +
                                  (dtype == DType::f32   ? "f32 "
                                   : dtype == DType::f64 ? "f64 "
                                                         : "bf16");
        text << label << " nchw  " << line(false, 0) << "\n";
        if (layer.x.size() != 4) continue;
        text << label << " nhwc  " << line(true, 0) << "\n";
        if (dtype == DType::f32) text << label << " slice " << line(false, 1) << " | " << line(true, 1) << "\n";
      }
  return text.str();
}

std::string softmax_plans() {
  std::ostringstream text;
  text << "\nsoftmax of rows: size, rows, \"vectors\": of 16 bytes, aligned\n";
  for (const int64_t size : {1, 10, 16, 17, 60, 64, 65, 100, 256, 257, 1000, 1024, 1025, 4096, 4097, 8192, 50257})
    for (const int64_t rows : {64, 100000})
      for (const bool vectors : {false, true}) {
        if (vectors && size % 2 != 0) continue;
        const SoftmaxPlan plan = select(SoftmaxProblem{.rows = rows, .size = size, .vectorized = vectors});
        text << size << " x " << rows << (vectors ? " vectors" : "") << ": " << plan.algorithm->name << " "
             << plan.blocks << "x" << plan.threads;
        if (plan.lanes > 0) text << " of " << plan.lanes << "x" << plan.values;
        text << "\n";
      }
  return text.str();
}

}  // namespace

TEST_CASE("plans of normalisation on CUDA are those written down") {
  std::string plans =
      "# What select() in backends/cuda/norm decides on an H200: the result (y, or dx, dw and dbias), \"fixed\"\n"
      "# statistics, type and layout of x (\"slice\": NCHW | NHWC of an image with one more channel), algorithm, "
      "blocks,\n"
      "# bytes of workspace. Written by tests/cuda/norm_select_test.cpp.\n";
  for (const NormLayer& layer : norm_layers) plans += plans_of(layer);
  test::check_decisions("cuda/norm_plans.txt", plans + softmax_plans());
}

TEST_CASE("plans of softmax on CUDA: lanes keep rows in registers, a block has at least one row, and sizes may be 0") {
  for (const bool vectorized : {false, true})
    for (const int64_t size : {0, 1, 1000, 1024, 1025, 8192, 8193, 1 << 20})
      for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{1} << 40}) {
        const SoftmaxProblem problem{.rows = rows, .size = size, .vectorized = vectorized};
        INFO(rows << " rows of " << size);
        CHECK(kSoftmaxLanes.can_run(problem) == (size <= (vectorized ? 8192 : 1024)));
        if (kSoftmaxLanes.can_run(problem)) {
          const SoftmaxPlan plan = kSoftmaxLanes.plan(problem);
          CHECK(int64_t{plan.lanes} * plan.values >= size);
          CHECK(plan.threads % plan.lanes == 0);
        }
        CHECK((kSoftmaxBlock.plan(problem).threads > 0 && kSoftmaxBlock.plan(problem).blocks > 0));
        CHECK(select(problem).algorithm->can_run(problem));
      }
}

TEST_CASE("plans of normalisation on CUDA: each kernel has a layer, and half types are alike") {
  std::set<std::string> names;
  for (const NormLayer& layer : norm_layers)
    for (const bool channels_last : {false, true})
      for (const bool backward : {false, true})
        for (const bool relu : {false, true}) {
          if (channels_last && layer.x.size() != 4) continue;
          const auto plan = [&](DType dtype) { return plan_of(layer, {dtype, channels_last, backward, false, relu}); };
          names.insert(plan(DType::f32).name());
          CHECK(describe(plan(DType::f16)) == describe(plan(DType::bf16)));
        }
  CHECK(names == std::set<std::string>{"rows", "channels_resident", "channels_split", "composite"});
}

TEST_CASE("plans of normalisation on CUDA: rows may have any distances, but their elements are neighbours") {
  const Shape shape{16, 8, 64}, statistics{16, 8, 1};
  const View weight(view_of(DType::f32, shape, {0, 0, 1}));
  const auto plan = [&](const Strides& of_x, const Strides& of_y) {
    const NormalizeArgs args{.x = view_of(DType::f32, shape, of_x),
                             .axes = 0b100,
                             .weight = weight,
                             .eps = 1e-5,
                             .y = view_of(DType::f32, shape, of_y),
                             .mean = dense(DType::f32, statistics),
                             .variance = dense(DType::f32, statistics)};
    return describe(select(args, kH200));
  };
  const Strides contiguous{512, 64, 1}, transposed{64, 1024, 1};
  const std::string expected = "rows 16 of 8x32 vectors, parameters 1x64";
  CHECK(plan(contiguous, contiguous) == expected);
  CHECK(plan(transposed, transposed) == expected);
  CHECK(plan(transposed, contiguous) == expected);
  CHECK(plan({0, 64, 1}, contiguous) == expected);                              // the same rows again
  CHECK(plan({520, 65, 1}, contiguous) == "rows 16 of 8x32, parameters 1x64");  // rows that are not aligned
  CHECK(plan({512, 1, 8}, contiguous) == "composite");
  CHECK(plan(contiguous, {512, 1, 8}) == "composite");
}

TEST_CASE("plans of normalisation on CUDA: splits cover each channel once, and their memory is the workspace") {
  for (const NormLayer& layer : norm_layers)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
      for (const bool channels_last : {false, true})
        for (const bool backward : {false, true}) {
          if (channels_last && layer.x.size() != 4) continue;
          const NormPlan plan = plan_of(layer, {dtype, channels_last, backward});
          INFO(plans_of(layer));
          const size_t pair = dtype == DType::f64 ? 16 : 8;
          const ChannelTiling& channels = plan.channels;
          if (plan.algorithm == NormAlgorithm::rows) {
            CHECK(int64_t{plan.rows.rows} * plan.rows.size == numel_of(layer.x));
            CHECK((backward || plan.rows.blocks * plan.rows.teams >= plan.rows.rows));
            CHECK(plan.workspace_bytes == (backward ? pair * plan.rows.blocks * plan.rows.teams * plan.rows.size : 0));
          } else if (plan.algorithm == NormAlgorithm::channels) {
            CHECK(int64_t{channels.count} * channels.channels * (channels.nhwc ? 1 : channels.vec) ==
                  numel_of(layer.x));
            CHECK(channels.splits * channels.per_split >= channels.count);
            CHECK((channels.splits - 1) * channels.per_split < channels.count);
            CHECK((!channels.resident || channels.of_thread(channels.per_split) <= ChannelTiling::kResident));
            CHECK(plan.workspace_bytes == (channels.resident ? 0 : pair * channels.sums()));
          }
        }
}

TEST_CASE("plans of normalisation on CUDA: alignment, ReLU and older devices") {
  const auto name = [](const NormLayer& layer, const NormCase& c) { return std::string(plan_of(layer, c).name()); };
  const NormLayer &images = norm_layers[0], &late = norm_layers[3], &rows = norm_layers[13];
  CHECK(plan_of(images, {.relu = true}).channels.vec == 4);
  CHECK(name(images, {.relu = true, .address = 4100}) == "channels_split");
  CHECK(plan_of(images, {.relu = true, .address = 4100}).channels.vec == 1);
  CHECK(name(images, {.channels_last = true, .address = 4100}) == "composite");
  CHECK(plan_of(rows, {}).rows.vectorized);
  CHECK_FALSE(plan_of(rows, {.address = 4100}).rows.vectorized);
  CHECK(name(rows, {.fixed = true}) == "composite");
  CHECK(name(rows, {.relu = true}) == "composite");
  // Without clusters, NHWC channels that need several blocks take two launches.
  constexpr DeviceProperties ampere = limited(kH200, 90, 80);
  CHECK(plan_of(late, {.channels_last = true}).channels.resident);
  CHECK_FALSE(plan_of(late, {.channels_last = true, .device = ampere}).channels.resident);
  CHECK(plan_of(late, {.device = ampere}).channels.resident);
}

TEST_CASE("plans of normalisation on CUDA: a gradient in two parts, and what a ReLU leaves of it") {
  const auto name = [](NormCase c) {
    c.backward = c.relu = true;
    return std::string(plan_of(norm_layers[0], c).name());
  };
  CHECK(name({.channels_last = true}) == "channels_split");
  CHECK(name({.channels_last = true, .in_parts = true}) == "channels_split");
  CHECK(name({.dtype = DType::f64, .channels_last = true, .in_parts = true}) == "composite");
  CHECK(name({.in_parts = true}) == "composite");
  for (const bool wants_dresidual : {false, true})
    CHECK(name({.channels_last = true, .residual = true, .wants_dresidual = wants_dresidual}) == "channels_split");
}
