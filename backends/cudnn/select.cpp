// Decides which convolutions cuDNN can compute, and counts the work for their estimates.
#include <gradus/backends/cudnn/select.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace gradus::cudnn_detail {

using namespace cuda_detail;

namespace {

MathMode math_mode(const ConvProblem& p) {
  if (p.dtype == DType::f32 && !p.is_library_exact()) return MathMode::tf32;
  return p.is_half() ? MathMode::half : MathMode::fma;
}

template <bool kTf32>
bool can_run(const ConvProblem& p) {
  if (p.dtype == DType::bf16 && !p.device.has_tensor_cores()) return false;  // cuDNN has no engines for this case
  return p.has_ordinary_sizes() && (math_mode(p) == MathMode::tf32) == kTf32;
}

// Grouped convolutions are left out: cuDNN's fused engines take up to 480 times as long as others for some of them.
template <bool kTf32>
bool can_fuse(const ConvProblem& p) {
  return p.pass == ConvPass::forward && p.geometry.groups == 1 && (p.bias || p.relu) && can_run<kTf32>(p);
}

ConvPlan plan_engine(const ConvProblem& p) {
  return {.math_mode = math_mode(p), .tiling = LibraryTiling{is_channels_last(p), p.switches.workspace_limit}};
}

// ---- work ----

/// The parts of an estimate for cuDNN. Its engines are unknown, so their work is counted as that of an implicit GEMM,
/// which most of them compute. Multiply-adds include those for channels that pad a vector.
enum LibraryPart {
  kMultiplyAdds,
  kLargeTiles,  // multiply-adds of the busiest multiprocessor with tiles of 128 x 128, times the multiprocessors
  kSmallTiles,  // the same with tiles of 64 x 64
  kWinogradMultiplyAdds,  // for 3x3 of exact float32; such engines compute fewer multiply-adds than are counted
  kFftMultiplyAdds,       // multiply-adds of engines that compute by FFT
  kFftBytes,              // bytes of the transforms of these engines
  kSparseMultiplyAdds,    // with a stride or dilation
  kSparseCalls,
  kLargeFilterMultiplyAdds,  // for dense filters of more than 9 taps
  kNarrowTaps,               // bytes of all taps of all positions, if there are fewer than 8 channels
  kDepth,                    // length of the sums of the product, see steps_of()
  kBytes,                    // bytes of the operands and the result
  kConvertedBytes,           // bytes of operands in a layout that the engines do not read
  kUnconvertedMultiplyAdds,  // of engines that read this layout, for want of scratch memory for converted operands
  kPaddedBytes,              // bytes of operands whose channels are padded for tensor cores
  kPaddings,                 // calls that pad operands
  kDepthwiseTaps,            // multiply-adds of depthwise convolutions
  kGroupMultiplyAdds,        // multiply-adds of other grouped convolutions, with channels padded to 32
  kGroupTaps,                // the same without padding
  kGroupCalls,
  kKernels,
};
constexpr WorkParts kLibraryParts = {{{"multiply_adds", WorkLimit::multiply_adds},
                                      {"large_tiles", WorkLimit::multiply_adds},
                                      {"small_tiles", WorkLimit::multiply_adds},
                                      {"winograd_multiply_adds", WorkLimit::multiply_adds},
                                      {"fft_multiply_adds", WorkLimit::multiply_adds},
                                      {"fft_bytes", WorkLimit::bytes},
                                      {"sparse_multiply_adds", WorkLimit::multiply_adds},
                                      {"sparse_calls", WorkLimit::calls},
                                      {"large_filter_multiply_adds", WorkLimit::multiply_adds},
                                      {"narrow_taps", WorkLimit::bytes},
                                      {"depth", WorkLimit::calls},
                                      {"bytes", WorkLimit::bytes},
                                      {"converted_bytes", WorkLimit::bytes},
                                      {"unconverted_multiply_adds", WorkLimit::multiply_adds},
                                      {"padded_bytes", WorkLimit::bytes},
                                      {"paddings", WorkLimit::calls},
                                      {"depthwise_taps", WorkLimit::multiply_adds},
                                      {"group_multiply_adds", WorkLimit::multiply_adds},
                                      {"group_taps", WorkLimit::multiply_adds},
                                      {"group_calls", WorkLimit::calls},
                                      {"kernels", WorkLimit::calls}}};

double product(std::initializer_list<int64_t> sizes) {
  double result = 1;
  for (const int64_t size : sizes) result *= number(size);
  return result;
}

/// The work of cuDNN's engines that compute by the FFT of tiles of 32 x 32 pixels, which overlap by a filter's margin.
struct FftWork {
  double multiply_adds = 0;  // 0: cuDNN does not choose such an engine
  double bytes = 0;          // bytes of the transforms
};

bool is_sparse(const ConvProblem& p) {
  return p.is_strided() || p.geometry.dilation[0] > 1 || p.geometry.dilation[1] > 1;
}

/// For convolutions without groups. Measured for exact float32: cuDNN chooses such an engine for y and dx if there are
/// many images, if it has much fewer multiply-adds than other engines, and if its scratch memory is within the limit.
FftWork fft_work(const ConvProblem& p) {
  constexpr int64_t kTile = 32, kNumbers = kTile * (kTile / 2 + 1), kLeastTaps = 9, kLeastImages = 32;
  constexpr double kLeastGain = 1.5;
  const int64_t N = p.y.shape[0], C = p.channels(), K = p.filters(), R = p.w.shape[2], S = p.w.shape[3];
  if (p.is_wgrad() || p.dtype != DType::f32 || math_mode(p) != MathMode::fma || is_sparse(p) || N < kLeastImages ||
      R * S < kLeastTaps || std::max(R, S) > kTile / 2)
    return {};
  const int64_t tiles = N * ceil_div(p.y.shape[2], kTile - R + 1) * ceil_div(p.y.shape[3], kTile - S + 1);
  const int64_t channels = p.pass == ConvPass::forward ? C : K;             // of the images that are transformed
  const FftWork work{.multiply_adds = product({tiles, C, K, kNumbers, 4}),  // 4 for a product of complex numbers
                     .bytes = product({tiles * channels + C * K, kNumbers, 2 * static_cast<int64_t>(sizeof(float))})};
  const bool is_chosen = kLeastGain * work.multiply_adds <= product({p.y.numel(), C, R * S}) &&
                         work.bytes <= static_cast<double>(p.switches.workspace_limit);
  return is_chosen ? work : FftWork{};
}

/// The length of the sums that a block computes. The sums of wgrad have a term for each output and are divided among
/// blocks: the longer they are, into the more parts, so that a block's sums have a limit.
double steps_of(const ConvProblem& p, double depth) {
  constexpr double kLimit = 100;
  if (!p.is_wgrad()) return depth;
  const double steps = depth / number(p.device.multiprocessors);
  return steps * kLimit / (steps + kLimit);
}

/// The work of an engine. kApart: bias and ReLU are computed by separate kernels.
template <bool kApart>
KernelWork work_of(const ConvProblem& p) {
  const MathMode mode = math_mode(p);
  const int64_t unit = mode == MathMode::half ? 8 : mode == MathMode::tf32 ? 4 : 1;
  const int64_t groups = p.geometry.groups, SMs = p.device.multiprocessors, N = p.y.shape[0];
  const int64_t K = round_up(p.filters(), unit), C = round_up(p.channels(), unit), taps = p.kernel();
  const int64_t outputs = N * p.y.shape[2] * p.y.shape[3], inputs = N * p.x.shape[2] * p.x.shape[3];
  const double at_once = multiply_adds_at_once(p.dtype, mode);
  // The product has rows x columns results of a group, which are sums over the depth.
  const int64_t rows = p.pass == ConvPass::backward_data ? C : K;
  const int64_t columns = p.pass == ConvPass::forward ? outputs : p.is_wgrad() ? C * taps : inputs;
  const int64_t depth = p.pass == ConvPass::forward ? C * taps
                        : p.is_wgrad()              ? outputs
                                                    : ceil_div(K * taps * outputs, std::max<int64_t>(inputs, 1));
  const auto tiles_of = [&](int64_t size, int64_t resident) {
    const int64_t tiles = ceil_div(rows, size) * ceil_div(columns, size) * groups;
    // wgrad splits the depth until the device is full.
    const double busiest =
        p.is_wgrad() ? number(tiles) / number(SMs) : number(ceil_div(tiles, SMs * resident) * resident);
    return busiest * product({SMs, size, size, depth}) / at_once;
  };
  const double multiply_adds = product({groups, outputs, K, C, taps}) / at_once;
  const double bytes = operand_bytes(p);
  const double element = number(p.element());
  const bool sparse = is_sparse(p);
  KernelWork work = {};
  // Such a convolution is a product of planes, which tensor cores read as they are and divide among all blocks.
  const bool multiplies_planes =
      mode != MathMode::fma && taps == 1 && !sparse && inputs == outputs && p.y.shape[2] * p.y.shape[3] % unit == 0;
  work[kBytes] = bytes;
  if ((mode != MathMode::fma) != is_channels_last(p) && !multiplies_planes) {
    if (bytes <= static_cast<double>(p.switches.workspace_limit)) work[kConvertedBytes] = bytes;
    else work[kUnconvertedMultiplyAdds] = multiply_adds;
  }
  if (groups > 1 && p.filters() == 1 && p.channels() == 1) {
    work[kDepthwiseTaps] = product({groups, outputs, taps});
  } else if (groups > 1) {
    work[kGroupMultiplyAdds] =
        product({groups, outputs, round_up(p.filters(), int64_t{32}), round_up(p.channels(), int64_t{32}), taps}) /
        at_once;
    work[kGroupTaps] = product({groups, outputs, p.filters(), p.channels(), taps});
    work[kGroupCalls] = 1;
  } else {
    if (const FftWork fft = fft_work(p); fft.multiply_adds > 0) {
      work[kFftMultiplyAdds] = fft.multiply_adds / at_once, work[kFftBytes] = fft.bytes;
    } else if (mode == MathMode::fma && p.w.shape[2] == 3 && p.w.shape[3] == 3 && !sparse) {
      work[kWinogradMultiplyAdds] = multiply_adds, work[kSmallTiles] = tiles_of(64, 2);
    } else if (taps > 9 && !sparse) {
      work[kLargeFilterMultiplyAdds] = multiply_adds;
    } else {
      work[kMultiplyAdds] = multiply_adds, work[kLargeTiles] = tiles_of(128, 1), work[kSmallTiles] = tiles_of(64, 2);
    }
    if (sparse) work[kSparseMultiplyAdds] = multiply_adds, work[kSparseCalls] = 1;
    const bool is_padded = p.filters() % unit != 0 || p.channels() % unit != 0;
    if (const int64_t least = std::min(p.filters(), p.channels()); least < 8)
      work[kNarrowTaps] = product({outputs, least, taps}) * element;
    if (is_padded) work[kPaddedBytes] = bytes, work[kPaddings] = 1;
    if (!multiplies_planes) work[kDepth] = steps_of(p, number(depth));
  }
  const int64_t apart = kApart ? (p.bias ? 1 : 0) + (p.relu ? 1 : 0) : 0;
  work[kKernels] = number(1 + apart);
  work[kBytes] += 2 * number(apart * p.y.numel()) * element;
  return scaled_to(p.device, kLibraryParts, work);
}

constexpr ConvAlgorithm engine(const char* name, decltype(ConvAlgorithm::can_run) can_run,
                               decltype(ConvAlgorithm::work) work, ConvLaunch* launch) {
  return {.name = name,
          .reason = "cuDNN's estimate is the lowest",
          .parts = kLibraryParts,
          .can_run = can_run,
          .work = work,
          .plan = plan_engine,
          .launch = launch,
          .is_library = true};
}

constexpr auto kLaunchFused = kHasKernels ? launch_fused : nullptr;
constexpr auto kLaunchEngine = kHasKernels ? launch_engine : nullptr;

}  // namespace

constinit const ConvAlgorithm kFused = engine("fused", can_fuse<false>, work_of<false>, kLaunchFused);
constinit const ConvAlgorithm kFusedTf32 = engine("fused_tf32", can_fuse<true>, work_of<false>, kLaunchFused);
constinit const ConvAlgorithm kEngine = engine("engine", can_run<false>, work_of<true>, kLaunchEngine);
constinit const ConvAlgorithm kEngineTf32 = engine("engine_tf32", can_run<true>, work_of<true>, kLaunchEngine);

const ConvFamily& conv_family() {
  static const ConvFamily family = [] {
    std::vector<const ConvAlgorithm*> all = {&kFused, &kFusedTf32, &kEngine, &kEngineTf32};
    const auto& own = cuda_detail::conv_family().algorithms;
    all.insert(all.end(), own.begin(), own.end());
    return ConvFamily("cuda_conv2d", conv_kinds(), all, tuned_devices(), tuning_table());
  }();
  return family;
}

}  // namespace gradus::cudnn_detail
