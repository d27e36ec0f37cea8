// Which convolution kernels the backends "cuda" and "cudnn" run, decided without a GPU for the properties of an H200.
// The expected decisions for the layers of known nets are in conv2d_plans.txt, one per line. After an intended change,
//   GRADUS_WRITE_DECISIONS=1 build/cpu-release/tests/test_cuda "plans of convolutions on CUDA are those written down"
// overwrites that file, and its diff shows what changed.
#include <cmath>
#include <set>
#include <sstream>

#include <gradus/backends/cudnn/select.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/decisions.h>

using namespace gradus;
using namespace gradus::cuda_detail;

namespace {

/// What the user allows, and what cuDNN may run: nothing (the backend "cuda"), plain convolutions, or in addition
/// engines with bias and ReLU.
struct Switches {
  bool tf32 = false;
  enum class Library { none, plain, full } library = Library::none;
  bool library_tf32 = true, small_convolutions = false;
  size_t workspace_limit = size_t{256} << 20;
};

/// The plan of the chosen algorithm.
struct Decision : ConvPlan {
  const ConvAlgorithm& algorithm;
  const bool takes_mask;

  std::string name() const { return algorithm.name; }
  /// The name without the math mode; "library" for cuDNN.
  std::string family() const {
    if (std::holds_alternative<LibraryTiling>(tiling)) return "library";
    return std::holds_alternative<ImplicitGemmTiling>(tiling) ? "implicit_gemm" : name();
  }
  uint32_t cluster() const {
    const auto* im2col = std::get_if<Im2colTiling>(&tiling);
    return im2col ? im2col->cluster : 1;
  }
  template <class Tiling>
  const Tiling& of() const {
    return std::get<Tiling>(tiling);
  }
};

Decision decision_for(const ConvAlgorithm& algorithm, const ConvProblem& problem) {
  return {algorithm.plan(problem), algorithm, algorithm.takes_mask && algorithm.takes_mask(problem)};
}

ConvProblem problem_on(const DeviceProperties& device, ConvProblem problem, const Switches& switches) {
  problem.switches = {switches.tf32, switches.library_tf32, switches.small_convolutions, switches.workspace_limit};
  problem.device = device;
  return problem;
}

/// Calls f(decision) for each of our algorithms that can run.
template <class F>
void for_each_decision(const ConvProblem& problem, const DeviceProperties& device, const Switches& switches, F&& f) {
  const ConvProblem on_device = problem_on(device, problem, switches);
  for (const ConvAlgorithm* each : conv_family().algorithms)
    if (each->can_run(on_device)) f(decision_for(*each, on_device));
}

Decision decide(const ConvProblem& problem, const DeviceProperties& device, const Switches& switches) {
  const ConvFamily& family = switches.library == Switches::Library::none ? conv_family() : cudnn_detail::conv_family();
  uint32_t without = 0;
  if (switches.library == Switches::Library::plain)
    for (size_t i = 0; i < family.algorithms.size(); ++i) {
      const ConvAlgorithm* each = family.algorithms[i];
      if (each == &cudnn_detail::kFused || each == &cudnn_detail::kFusedTf32) without |= 1u << i;
    }
  const ConvProblem on_device = problem_on(device, problem, switches);
  return decision_for(*select(on_device, family, without).algorithm, on_device);
}

struct ConvLayer {
  int64_t N, C, H, W, K, R, S, stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = true;
};

ConvProblem conv_problem(const ConvLayer& layer, ConvPass pass, DType dtype, bool channels_last) {
  const auto operand = [&](const Shape& shape) {
    return ConvOperand(shape, channels_last ? channels_last_strides(shape) : contiguous_strides(shape));
  };
  const auto reach = [&](int64_t size, int64_t kernel) {
    return (size + 2 * layer.padding - layer.dilation * (kernel - 1) - 1) / layer.stride + 1;
  };
  ConvProblem problem;
  problem.pass = pass, problem.dtype = dtype;
  problem.x = operand({layer.N, layer.C, layer.H, layer.W});
  problem.w = operand({layer.K, layer.C / layer.groups, layer.R, layer.S});
  problem.y = operand({layer.N, layer.K, reach(layer.H, layer.R), reach(layer.W, layer.S)});
  problem.geometry = {
      {layer.stride, layer.stride}, {layer.padding, layer.padding}, {layer.dilation, layer.dilation}, layer.groups};
  problem.bias = layer.bias && pass != ConvPass::backward_data, problem.relu = pass == ConvPass::forward;
  return problem;
}

constexpr ConvLayer conv_layers[] = {
    {64, 1, 28, 28, 6, 5, 5, 1, 2},                      // LeNet
    {64, 6, 14, 14, 16, 5, 5},                           //
    {128, 1, 28, 28, 32, 3, 3, 1, 1},                    // conv2_c32
    {128, 32, 28, 28, 32, 3, 3, 1, 1},                   //
    {512, 3, 96, 96, 32, 3, 3, 1, 1},                    // stl10_net
    {512, 32, 48, 48, 64, 3, 3, 1, 1},                   //
    {128, 3, 32, 32, 64, 3, 3, 1, 1},                    // ResNet for CIFAR-10
    {128, 64, 32, 32, 64, 3, 3, 1, 1},                   //
    {128, 64, 32, 32, 128, 3, 3, 2, 1, 1, 1, false},     //
    {128, 64, 32, 32, 128, 1, 1, 2, 0, 1, 1, false},     //
    {128, 256, 8, 8, 256, 3, 3, 1, 1, 1, 1, false},      //
    {32, 256, 8, 8, 256, 3, 3, 1, 1, 1, 1, false},       //
    {128, 512, 4, 4, 512, 3, 3, 1, 1, 1, 1, false},      //
    {32, 512, 4, 4, 512, 3, 3, 1, 1, 1, 1, false},       //
    {32, 3, 224, 224, 64, 7, 7, 2, 3},                   // ResNet for ImageNet
    {32, 256, 14, 14, 64, 1, 1},                         //
    {1, 256, 14, 14, 256, 3, 3, 1, 1},                   // one image
    {32, 32, 56, 56, 32, 3, 3, 1, 1, 1, 32},             // depthwise
    {32, 32, 56, 56, 32, 3, 3, 2, 1, 1, 32},             //
    {128, 144, 32, 32, 144, 3, 3, 1, 1, 1, 144, false},  // MobileNetV2 for CIFAR-10
    {128, 144, 32, 32, 144, 3, 3, 2, 1, 1, 144, false},  //
    {128, 960, 4, 4, 960, 3, 3, 1, 1, 1, 960, false},    //
    {64, 96, 56, 56, 96, 7, 7, 1, 3, 1, 96},             // ConvNeXt
    {8, 13, 11, 9, 26, 5, 3, 2, 1, 1, 13},               // depthwise of any sizes
    {32, 64, 28, 28, 64, 3, 3, 1, 1, 1, 4},              // groups
    {32, 64, 28, 28, 64, 3, 3, 1, 2, 2},                 // dilation
    {2, 19, 9, 9, 40, 3, 3},                             // sizes that no tile divides
    {2, 3, 12, 11, 40, 3, 3, 1, 1},                      //
    {700, 4, 20, 16, 24, 4, 4},                          // few channels
    {32, 8, 40, 30, 8, 3, 5},                            //
};

/// Describes a plan: "implicit_gemm_fma 64x128 /4 1048576" is implementation, tile, split-K (parts x blocks of a
/// cluster) and bytes of workspace; "fused nhwc 268435456" is a plan of cuDNN.
std::string describe_plan(const Decision& plan) {
  std::ostringstream text;
  text << plan.name() << " ";
  if (const auto* library = std::get_if<LibraryTiling>(&plan.tiling)) {
    text << (library->channels_last ? "nhwc" : "nchw") << " " << library->workspace_limit;
    return text.str();
  }
  text << plan.tile.rows << "x" << plan.tile.columns << " /" << plan.split_k;
  if (plan.cluster() > 1) text << "x" << plan.cluster();
  text << " " << plan.workspace_bytes;
  return text.str();
}

struct ConvType {
  const char* name;
  DType dtype;
  bool tf32;
};
constexpr ConvType conv_types[] = {
    {"f32 ", DType::f32, false}, {"tf32", DType::f32, true}, {"bf16", DType::bf16, false}, {"f64 ", DType::f64, false}};

/// Calls f(problem, switches of "cuda", label) for all results, types and layouts of a layer.
template <class F>
void for_each_problem(const ConvLayer& layer, F&& f) {
  constexpr const char* results[] = {"y ", "dx", "dw"};
  for (const ConvPass pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_weight})
    for (const ConvType& type : conv_types)
      for (const bool channels_last : {false, true})
        f(conv_problem(layer, pass, type.dtype, channels_last), Switches{.tf32 = type.tf32, .library_tf32 = type.tf32},
          std::string(results[static_cast<int>(pass)]) + " " + type.name + (channels_last ? " nhwc" : " nchw"));
}

Switches with_library(Switches switches) {
  switches.library = Switches::Library::full;
  return switches;
}

std::string plans_of(const ConvLayer& layer) {
  std::ostringstream text;
  text << "\nx " << layer.N << "x" << layer.C << "x" << layer.H << "x" << layer.W << ", w " << layer.K << "x"
       << layer.C / layer.groups << "x" << layer.R << "x" << layer.S << ", stride " << layer.stride << ", padding "
       << layer.padding << ", dilation " << layer.dilation << ", groups " << layer.groups
       << (layer.bias ? "" : ", no bias") << "\n";
  std::string nchw;
  for_each_problem(layer, [&](const ConvProblem& problem, const Switches& switches, const std::string& label) {
    std::string plan = describe_plan(decide(problem, kH200, switches));
    const std::string chosen = describe_plan(decide(problem, kH200, with_library(switches)));
    if (chosen != plan) plan += std::string(plan.size() < 32 ? 32 - plan.size() : 0, ' ') + " | " + chosen;
    const std::string operands = label.substr(0, 7), layout = label.substr(8);
    if (layout == "nchw") nchw = plan;  // written together with the plan for NHWC
    else if (nchw == plan) text << operands << " any   " << plan << "\n";
    else text << operands << " nchw  " << nchw << "\n" << operands << " nhwc  " << plan << "\n";
  });
  return text.str();
}

}  // namespace

TEST_CASE("plans of convolutions on CUDA are those written down") {
  std::string plans =
      "# What select() in backends/cuda/conv2d decides on an H200: the result, operands, what \"cuda\" runs | what\n"
      "# \"cudnn\" runs, where that is something else. Implementation, tile, /split-K (parts x blocks of a cluster),\n"
      "# bytes of workspace. y has bias and ReLU, dw comes with the gradient of the bias. Written by "
      "tests/cuda/conv2d_select_test.cpp.\n";
  for (const ConvLayer& layer : conv_layers) plans += plans_of(layer);
  test::check_decisions("cuda/conv2d_plans.txt", plans);
}

TEST_CASE("the README lists the algorithms of convolutions on CUDA") {
  std::string table = "| algorithm | reason |\n|---|---|\n";
  std::set<std::string> names;
  for (const ConvFamily* family : {&conv_family(), &cudnn_detail::conv_family()})
    for (const ConvAlgorithm* algorithm : family->algorithms)
      if (names.insert(algorithm->name).second)
        table += "| `" + std::string(algorithm->name) + "` | " + algorithm->reason + " |\n";
  test::check_table("backends/cuda/README.md", "algorithms of conv2d", table);
}

TEST_CASE("plans of convolutions on CUDA: each algorithm can run a layer, and half types are alike") {
  std::set<std::string> names;
  for (const ConvLayer& layer : conv_layers)
    for_each_problem(layer, [&](ConvProblem problem, const Switches& switches, const std::string& label) {
      INFO(label);
      const Decision plan = decide(problem, kH200, with_library(switches));
      problem.switches = {.tf32 = switches.tf32, .library_tf32 = switches.library_tf32};
      for (const ConvAlgorithm* algorithm : cudnn_detail::conv_family().algorithms)
        if (algorithm->can_run(problem)) names.insert(algorithm->name);
      if (problem.dtype != DType::bf16) return;
      problem.dtype = DType::f16;
      CHECK(describe_plan(decide(problem, kH200, with_library(switches))) == describe_plan(plan));
    });
  CHECK(names == std::set<std::string>{"wgmma", "wgmma_im2col", "direct", "few_channel_mma", "depthwise",
                                       "implicit_gemm_async", "implicit_gemm_fma", "implicit_gemm_tf32",
                                       "implicit_gemm_half", "implicit_gemm_generic", "fused", "fused_tf32", "engine",
                                       "engine_tf32"});
}

namespace {

/// Checks that the parts of a plan cover each sum once, and that their memory is the workspace.
void check_parts(const Decision& plan, const ConvProblem& problem, const ConvLayer& layer) {
  const int64_t images = problem.y.shape[0], positions = images * problem.y.shape[2] * problem.y.shape[3];
  const int64_t bytes = problem.dtype == DType::f64 ? 8 : 4;
  const auto packed = [&](int64_t steps) {  // bytes of the packed weights, for all rows of the tiles
    const int64_t rows = problem.out().shape[1] / layer.groups;
    return static_cast<size_t>(layer.groups * steps * ceil_div(rows, plan.tile.rows) * plan.tile.rows * 64);
  };
  const auto covers = [](int64_t parts, int64_t length, int64_t whole) {
    return parts * length >= whole && (parts - 1) * length < whole;
  };
  if (plan.family() == "wgmma") {
    const WgmmaTiling& tiling = plan.of<WgmmaTiling>();
    const int64_t pixels = problem.x.shape[2] * tiling.pitch - 1;
    CHECK(covers(tiling.image.divisor, tiling.step, pixels));
    CHECK(tiling.tiles == images * tiling.image.divisor);
    CHECK((tiling.slots >= 2 && plan.shared_bytes < kH200.shared_memory));
    const bool of_weight = problem.pass == ConvPass::backward_weight;
    CHECK((plan.workspace_bytes > 0) == of_weight);
    if (!of_weight) CHECK(tiling.slots > (tiling.warpgroups - 1) * tiling.chunks);
    if (of_weight) CHECK(covers(plan.split_k, ceil_div(tiling.tiles, plan.split_k), tiling.tiles));
    return;
  }
  if (plan.family() == "wgmma_im2col") {
    const Im2colTiling& tiling = plan.of<Im2colTiling>();
    const bool of_weight = problem.pass == ConvPass::backward_weight;
    const int64_t boxes = of_weight ? layer.R * layer.S * tiling.chunks : ceil_div(problem.out().shape[1], 64);
    CHECK(covers(tiling.row_tiles, plan.tile.rows, of_weight ? problem.w.shape[0] : tiling.positions));
    CHECK(covers(tiling.column_tiles, plan.tile.columns / 64, boxes));
    CHECK((tiling.cluster >= 1 && tiling.cluster <= 8 && tiling.slots >= 2));
    CHECK(plan.shared_bytes < kH200.shared_memory);
    CHECK(plan.workspace_bytes == (plan.split_k > 1 ? size_t{4} * plan.split_k * problem.w.numel() : 0));
    int64_t pixels = 0, taps = 0;  // of all phases
    for (int z = 0; z < (of_weight ? 1 : static_cast<int>(tiling.z)); ++z) {
      const ConvPhase::Axis &h = tiling.h[z / tiling.phases_w], &w = tiling.w[z % tiling.phases_w];
      pixels += int64_t{h.size} * w.size, taps += h.count * w.count;
      for (const ConvPhase::Axis* axis : {&h, &w})
        for (int t = 0; t < axis->count; ++t) CHECK((axis->origin + t * axis->step >= 0));
    }
    CHECK(pixels == problem.out().shape[2] * problem.out().shape[3]);
    CHECK(taps == layer.R * layer.S);
    return;
  }
  if (problem.pass == ConvPass::backward_weight) {
    const int64_t results = problem.w.numel() + (problem.bias ? problem.w.shape[0] : 0);
    CHECK(plan.workspace_bytes == static_cast<size_t>(bytes * results * plan.split_k));
    if (plan.family() != "few_channel_mma" && plan.family() != "direct")
      CHECK(int64_t{plan.split_k} * plan.phases[0].per_split >= positions);
    return;
  }
  const bool packs = plan.family() == "implicit_gemm" || plan.family() == "implicit_gemm_async";
  const int64_t depth = static_cast<int64_t>(kRowBytes) / static_cast<int64_t>(size_of(problem.dtype));
  const int64_t chunks = ceil_div(problem.in().shape[1] / layer.groups, depth);
  int64_t results = 0, taps = 0;  // of all phases
  size_t partial = 0;             // bytes, the most of any phase
  for (const ConvPhase& phase : plan.phases) {
    const int64_t steps = chunks * phase.h.count * phase.w.count;
    const int64_t made = problem.out().shape[0] * problem.out().shape[1] * phase.h.size * phase.w.size;
    results += made, taps += phase.h.count * phase.w.count;
    if (!packs) continue;
    if (steps > 0) CHECK(covers(phase.split_k, phase.per_split, steps));
    CHECK(plan.partial_offset >= packed(steps));
    if (phase.split_k > 1) partial = std::max(partial, static_cast<size_t>(4 * phase.split_k * made));
  }
  CHECK(results == problem.out().numel());
  CHECK(taps == layer.R * layer.S);
  CHECK(plan.partial_offset % 256 == 0);
  CHECK(plan.workspace_bytes - plan.partial_offset == partial);
}

}  // namespace

TEST_CASE("plans of convolutions on CUDA: parts cover each sum once, and their memory is the workspace") {
  for (const ConvLayer& layer : conv_layers)
    for_each_problem(layer, [&](const ConvProblem& problem, const Switches& switches, const std::string& label) {
      for_each_decision(problem, kH200, switches, [&](const Decision& plan) {
        INFO(plans_of(layer) << label << " " << plan.name());
        check_parts(plan, problem, layer);
      });
    });
}

TEST_CASE("plans of convolutions on CUDA: an older device has neither tensor cores nor asynchronous copies") {
  constexpr DeviceProperties turing = limited(kH200, 90, 75);
  for (const ConvLayer& layer : conv_layers)
    for_each_problem(layer, [&](const ConvProblem& problem, const Switches& switches, const std::string& label) {
      INFO(label);
      for_each_decision(problem, turing, switches, [&](const Decision& plan) {
        CHECK(plan.math_mode == MathMode::fma);
        CHECK(plan.family() != "few_channel_mma");
        CHECK(plan.family() != "implicit_gemm_async");
        if (problem.pass == ConvPass::backward_weight) CHECK(plan.family() != "direct");
      });
      // cuDNN supports neither bfloat16 nor TF32 on such a device.
      Switches library = with_library(switches);
      library.library_tf32 = true;
      const Decision chosen = decide(problem, turing, library);
      CHECK(chosen.math_mode != MathMode::tf32);
      if (problem.dtype == DType::bf16) CHECK(chosen.family() != "library");
    });
}

TEST_CASE("plans of convolutions on CUDA: devices before Hopper have neither wgmma nor clusters, and less memory") {
  for (const int capability : {75, 80, 86, 89}) {
    const DeviceProperties device = limited(kH200, 90, capability);
    for (const ConvLayer& layer : conv_layers)
      for_each_problem(layer, [&](const ConvProblem& problem, const Switches& switches, const std::string& label) {
        INFO("sm_" << capability << " " << label);
        const auto check = [&](const Decision& plan) {
          CHECK((plan.family() != "wgmma" && plan.family() != "wgmma_im2col"));
          CHECK(plan.cluster() <= 1);
          CHECK(plan.shared_bytes <= device.shared_memory);
          if (plan.math_mode == MathMode::tf32) CHECK((capability >= 80 && problem.dtype == DType::f32));
        };
        for_each_decision(problem, device, switches, check);
        check(decide(problem, device, with_library(switches)));
      });
  }
}

TEST_CASE("plans of convolutions on CUDA: strides, alignment and masks") {
  ConvProblem first = conv_problem({128, 3, 32, 32, 64, 3, 3, 1, 1}, ConvPass::backward_weight, DType::bf16, true);
  const auto copy_bytes = [&] { return std::get<FewChannelTiling>(kFewChannelMma.plan(first).tiling).copy_bytes; };
  CHECK(kFewChannelMma.can_run(first));
  CHECK(copy_bytes() == 16);
  first.x.alignment = 2;
  CHECK(copy_bytes() == 2);
  first.mask_alignment = 16;
  CHECK(kFewChannelMma.takes_mask(first));
  first.mask_alignment = 8;
  CHECK_FALSE(kFewChannelMma.takes_mask(first));
  first.mask_alignment = 0, first.y.alignment = 8;
  CHECK_FALSE(kFewChannelMma.can_run(first));
  CHECK(kDirect.can_run(first));
  // With TF32, few_channel_mma computes only fprop, with at most 32 taps.
  const auto can_tf32 = [](int64_t channels, ConvPass pass) {
    ConvProblem problem = conv_problem({128, channels, 32, 32, 64, 3, 3, 1, 1}, pass, DType::f32, true);
    problem.switches.tf32 = true;
    return kFewChannelMma.can_run(problem);
  };
  CHECK(can_tf32(3, ConvPass::forward));
  CHECK_FALSE(can_tf32(4, ConvPass::forward));
  CHECK_FALSE(can_tf32(3, ConvPass::backward_weight));

  ConvProblem wide = conv_problem({32, 64, 28, 28, 64, 3, 3, 2, 1}, ConvPass::forward, DType::f32, true);
  const auto is_vectorized = [&] {
    return std::get<ImplicitGemmTiling>(kImplicitGemmFma.plan(wide).tiling).vectorized;
  };
  CHECK(is_vectorized());
  wide.x.alignment = 8;
  CHECK_FALSE(is_vectorized());

  ConvProblem masked = conv_problem({128, 64, 16, 16, 64, 3, 3, 1, 1}, ConvPass::backward_weight, DType::f32, false);
  masked.mask_alignment = 16;
  CHECK(kImplicitGemmAsync.can_run(masked));
  CHECK_FALSE(kImplicitGemmAsync.takes_mask);
}

TEST_CASE("plans of convolutions on CUDA: wgmma takes 3x3 of dense half types, channels innermost, on Hopper alone") {
  const ConvLayer layer = {32, 64, 24, 24, 128, 3, 3, 1, 1};
  const auto takes = [](ConvProblem problem, const DeviceProperties& device = kH200) {
    problem.device = device;
    return kWgmma.can_run(problem);
  };
  for (const ConvPass pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_weight}) {
    const auto problem = [&](const ConvLayer& of) { return conv_problem(of, pass, DType::bf16, true); };
    CHECK(takes(problem(layer)));
    CHECK_FALSE(takes(conv_problem(layer, pass, DType::bf16, false)));
    CHECK_FALSE(takes(conv_problem(layer, pass, DType::f32, true)));
    for (const int capability : {75, 80, 86, 89}) CHECK_FALSE(takes(problem(layer), limited(kH200, 90, capability)));
    for (const int capability : {100, 120}) {
      DeviceProperties other = kH200;
      other.compute_capability = capability;
      for (const int code : {90, capability}) CHECK_FALSE(takes(problem(layer), limited(other, code, 1000)));
    }
    CHECK_FALSE(takes(problem({32, 64, 24, 24, 128, 3, 3, 2, 1})));        // stride
    CHECK_FALSE(takes(problem({32, 64, 24, 24, 128, 3, 3, 1, 0})));        // padding
    CHECK_FALSE(takes(problem({32, 64, 24, 24, 128, 3, 3, 1, 2, 2})));     // dilation
    CHECK_FALSE(takes(problem({32, 64, 24, 24, 128, 3, 3, 1, 1, 1, 2})));  // groups
    CHECK_FALSE(takes(problem({32, 64, 24, 24, 128, 5, 5, 1, 1})));
    CHECK_FALSE(takes(problem({32, 64, 24, 128, 128, 3, 3, 1, 1})));  // a row is wider than a tile
    CHECK_FALSE(takes(problem({32, 36, 24, 24, 128, 3, 3, 1, 1})));   // channels are not whole vectors
    CHECK_FALSE(takes(problem({32, 8, 24, 24, 128, 3, 3, 1, 1})));
    CHECK_FALSE(takes(problem({32, 64, 24, 24, 136, 3, 3, 1, 1})));
    ConvProblem odd = problem(layer);
    odd.y.alignment = 8;
    CHECK_FALSE(takes(odd));
    odd = problem(layer);
    odd.x.strides[0] += 64;
    CHECK_FALSE(takes(odd));
    Switches switches = with_library({});
    switches.small_convolutions = true;
    CHECK(decide(problem(layer), kH200, switches).family() == "library");
  }
  // wgmma cannot transpose TF32 filters, so it computes only fprop of TF32, where the filters fit in shared memory.
  const auto takes_tf32 = [](const ConvLayer& of, ConvPass pass) {
    ConvProblem problem = conv_problem(of, pass, DType::f32, true);
    problem.switches.tf32 = true;
    return kWgmma.can_run(problem);
  };
  CHECK(takes_tf32(layer, ConvPass::forward));
  CHECK_FALSE(takes_tf32(layer, ConvPass::backward_data));
  CHECK_FALSE(takes_tf32(layer, ConvPass::backward_weight));
  CHECK_FALSE(takes_tf32({32, 128, 24, 24, 64, 3, 3, 1, 1}, ConvPass::forward));
  ConvProblem masked = conv_problem(layer, ConvPass::backward_weight, DType::bf16, true);
  masked.mask_alignment = 16;
  CHECK((takes(masked) && kWgmma.takes_mask(masked)));
  masked.mask_alignment = 8;
  CHECK_FALSE(takes(masked));
  // A block computes one row of taps if it has few tiles and no mask.
  ConvProblem problem = conv_problem({32, 64, 32, 32, 64, 3, 3, 1, 1}, ConvPass::backward_weight, DType::bf16, true);
  CHECK(kWgmma.plan(problem).tile.columns == 3 * 64);
  problem.mask_alignment = 16;
  CHECK(kWgmma.plan(problem).tile.columns == 9 * 64);
  problem = conv_problem({128, 64, 32, 32, 64, 3, 3, 1, 1}, ConvPass::backward_weight, DType::bf16, true);
  CHECK(kWgmma.plan(problem).tile.columns == 9 * 64);
}

TEST_CASE("plans of convolutions on CUDA: wgmma_im2col takes any filter size, stride and padding on Hopper alone") {
  for (const ConvPass pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_weight}) {
    const auto takes = [&](const ConvLayer& layer, bool channels_last = true, const DeviceProperties& device = kH200) {
      ConvProblem problem = conv_problem(layer, pass, DType::bf16, channels_last);
      problem.bias = problem.bias && pass == ConvPass::forward, problem.device = device;
      return kWgmmaIm2col.can_run(problem);
    };
    for (const ConvLayer& layer : {ConvLayer{32, 256, 8, 8, 256, 3, 3, 1, 1}, ConvLayer{3, 64, 15, 7, 128, 3, 3, 2, 1},
                                   ConvLayer{1, 64, 7, 7, 24, 1, 1, 2}, ConvLayer{2, 64, 14, 15, 64, 5, 5, 1, 2}})
      CHECK(takes(layer));
    CHECK_FALSE(takes({32, 256, 8, 8, 256, 3, 3, 1, 1}, false));
    DeviceProperties other = kH200;
    other.compute_capability = 100;
    CHECK_FALSE(takes({32, 256, 8, 8, 256, 3, 3, 1, 1}, true, limited(other, 90, 1000)));
    CHECK_FALSE(takes({32, 256, 8, 8, 256, 3, 3, 1, 1}, true, limited(kH200, 90, 89)));
    CHECK_FALSE(takes({32, 256, 8, 8, 256, 3, 3, 3, 1}));        // stride
    CHECK_FALSE(takes({32, 256, 8, 8, 256, 1, 1, 1, 1}));        // padding as large as the filter
    CHECK_FALSE(takes({32, 256, 8, 8, 256, 3, 3, 1, 2, 2}));     // dilation
    CHECK_FALSE(takes({32, 256, 8, 8, 256, 3, 3, 1, 1, 1, 2}));  // groups
    CHECK_FALSE(takes({32, 260, 8, 8, 256, 3, 3, 1, 1}));        // channels are not whole vectors
  }
  // If there are few tiles, a cluster splits the depth; wgrad is also split into parts, which conv2d.cu adds.
  const ConvProblem deep = conv_problem({32, 512, 4, 4, 512, 3, 3, 1, 1}, ConvPass::forward, DType::bf16, true);
  CHECK(std::get<Im2colTiling>(kWgmmaIm2col.plan(deep).tiling).cluster == 6);
  ConvProblem few = conv_problem({128, 64, 32, 32, 128, 3, 3, 2, 1}, ConvPass::backward_weight, DType::bf16, true);
  CHECK_FALSE(kWgmmaIm2col.can_run(few));  // with dbias
  few.bias = false;
  CHECK((kWgmmaIm2col.can_run(few) && kWgmmaIm2col.plan(few).split_k > 1));
}

TEST_CASE("plans of convolutions on CUDA: depthwise takes any filters of float32 and half types in dense images") {
  const ConvLayer layer = {32, 48, 28, 28, 48, 3, 3, 1, 1, 1, 48};
  const auto vectors = [](const ConvProblem& problem) {
    return std::get<DepthwiseTiling>(kDepthwise.plan(problem).tiling).vec;
  };
  for (const ConvPass pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_weight})
    for (const bool channels_last : {false, true}) {
      const auto problem = [&](const ConvLayer& of, DType dtype = DType::bf16) {
        return conv_problem(of, pass, dtype, channels_last);
      };
      for (const ConvLayer& of :
           {layer, ConvLayer{1, 3, 5, 7, 6, 4, 2, 3, 2, 2, 3}, ConvLayer{2, 8, 40, 40, 8, 31, 31, 1, 15, 1, 8},
            ConvLayer{2, 2, 1, 1, 2, 1, 1, 1, 0, 1, 2}})
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) CHECK(kDepthwise.can_run(problem(of, dtype)));
      CHECK_FALSE(kDepthwise.can_run(problem(layer, DType::f64)));
      CHECK_FALSE(kDepthwise.can_run(problem({32, 48, 28, 28, 48, 3, 3, 1, 1, 1, 24})));  // two channels in a group
      CHECK_FALSE(kDepthwise.can_run(problem({32, 1, 28, 28, 48, 3, 3, 1, 1})));          // a layer of one channel
      // Vectors must be whole and aligned: 8 channels, or 2 or 4 pixels if padding keeps the size of images.
      CHECK(vectors(problem(layer)) == (channels_last ? 8 : 4));
      CHECK(vectors(problem({32, 44, 28, 30, 44, 3, 3, 1, 1, 1, 44})) == (channels_last ? 1 : 2));
      if (!channels_last) CHECK(vectors(problem({32, 44, 28, 28, 44, 3, 3, 1, 0, 1, 44})) == 1);
      ConvProblem odd = problem(layer);
      odd.x.alignment = odd.y.alignment = 2;
      CHECK(vectors(odd) == 1);
      odd = problem(layer);
      odd.x.strides[0] += 64;
      CHECK_FALSE(kDepthwise.can_run(odd));
    }
  CHECK_FALSE(
      kDepthwise.can_run(conv_problem({2, 2, 3, 5000, 2, 3, 3, 1, 1, 1, 2}, ConvPass::forward, DType::f32, false)));
}

TEST_CASE("plans of convolutions on CUDA: what cuDNN may do") {
  ConvProblem forward = conv_problem({128, 64, 32, 32, 64, 3, 3, 1, 1}, ConvPass::forward, DType::f32, true);
  Switches switches = with_library({.library_tf32 = true, .small_convolutions = true, .workspace_limit = 1000});
  const Decision fused = decide(forward, kH200, switches);
  CHECK(fused.family() == "library");
  CHECK(fused.math_mode == MathMode::tf32);
  CHECK((fused.of<LibraryTiling>().channels_last && fused.of<LibraryTiling>().workspace_limit == 1000));
  switches.library = Switches::Library::plain;
  CHECK(decide(forward, kH200, switches).name() == "engine_tf32");
  switches.library = Switches::Library::none;
  CHECK(decide(forward, kH200, switches).family() != "library");

  // With small_convolutions, our kernels compute only problems without elements, which cuDNN does not support.
  ConvProblem few = conv_problem({4, 6, 9, 9, 16, 3, 3}, ConvPass::forward, DType::f32, false);
  switches = with_library({});
  CHECK(decide(few, kH200, switches).family() == "direct");
  switches.small_convolutions = true;
  CHECK(decide(few, kH200, switches).family() == "library");
  few.x.shape[0] = few.y.shape[0] = 0;
  CHECK(decide(few, kH200, switches).family() != "library");
}

TEST_CASE("convolutions on CUDA: images without elements, and of 2^31 elements and more, have an algorithm") {
  for (const ConvPass pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_weight})
    for (const ConvLayer& layer : {ConvLayer{0, 6, 9, 9, 16, 3, 3, 1, 1},
                                   {2, 0, 9, 9, 16, 3, 3, 1, 1},
                                   {2, 6, 9, 9, 0, 3, 3, 1, 1},
                                   {1 << 20, 3, 64, 64, 16, 3, 3, 1, 1},
                                   {1 << 20, 64, 64, 64, 64, 3, 3, 1, 1}})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const bool channels_last : {false, true}) {
          INFO(layer.N << " images of " << layer.C << " channels to " << layer.K);
          const ConvProblem problem = conv_problem(layer, pass, dtype, channels_last);
          for (const Switches& switches : {Switches{}, with_library({.tf32 = true})}) {
            const Decision plan = decide(problem, kH200, switches);
            CHECK(plan.family() != "library");
            if (problem.is_empty()) continue;
            for_each_decision(problem, kH200, switches, [&](const Decision& each) {
              for (const double amount : each.algorithm.work(problem)) CHECK((std::isfinite(amount) && amount >= 0));
            });
          }
        }
}

TEST_CASE("convolutions on CUDA: while an algorithm is forced, it is chosen wherever it can run") {
  ConvProblem problem = conv_problem({32, 64, 24, 24, 128, 3, 3, 1, 1}, ConvPass::forward, DType::bf16, true);
  for (const ConvAlgorithm* algorithm : cudnn_detail::conv_family().algorithms) {
    const ForcedAlgorithm forced(algorithm->name);
    INFO(algorithm->name);
    const bool chosen = select(problem, cudnn_detail::conv_family()).algorithm == algorithm;
    CHECK(chosen == algorithm->can_run(problem));
  }
}

TEST_CASE("kernels divide numbers below 2^31 by multiplication") {
  for (uint32_t divisor = 1; divisor < 3000; divisor += divisor < 300 ? 1 : 97)
    for (const uint32_t n : {0u, 1u, divisor - 1, divisor, divisor + 1, 999'999'937u, (1u << 31) - 1}) {
      uint32_t rest = n;
      CHECK(Divisor(divisor).split(rest) == n / divisor);
      CHECK(rest == n % divisor);
    }
  for (const uint32_t divisor : {1u << 30, (1u << 30) + 1, (1u << 31) - 1})
    for (const uint32_t n : {divisor - 1, divisor, (1u << 31) - 1}) CHECK(Divisor(divisor).quotient(n) == n / divisor);
}
