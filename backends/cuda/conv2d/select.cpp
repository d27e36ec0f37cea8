// Chooses the algorithm of a convolution. plan_gather.cpp, plan_wgrad.cpp and plan_wgmma.cpp know which problems an
// algorithm can compute, and plan its tiles and split-K.
#include <gradus/backends/cuda/conv2d/select.h>

#include <cmath>
#include <numeric>

#include <gradus/backends/cuda/conv2d/tile_sizes.h>

namespace gradus::cuda_detail {
namespace {

/// The math mode of implicit_gemm, few_channel_mma and the wgmma kernels for this type; empty if it is unsupported.
std::optional<MathMode> math_mode_for(DType dtype, const DeviceProperties& device, bool tf32) {
  const bool tensor_cores = device.has_tensor_cores();
  if (dtype == DType::f32) return tensor_cores && tf32 ? MathMode::tf32 : MathMode::fma;
  if (dtype == DType::f64 || !tensor_cores) return std::nullopt;
  return MathMode::half;
}

/// A problem, and what select() derives from it.
struct Case {
  const ConvProblem& p;
  const DeviceProperties& device;
  const ConvSwitches& switches;
  const std::optional<MathMode> mode = math_mode_for(p.dtype, device, switches.tf32);
  const int64_t filters = p.w.shape[0] / p.geometry.groups, channels = p.w.shape[1];
  const int64_t kernel = p.w.shape[2] * p.w.shape[3], taps = channels * kernel;

  bool is_exact() const { return mode == MathMode::fma && device.has_async_copies(); }

  bool is_empty() const {
    if (p.pass == ConvPass::backward_weight) return filters == 0 || (taps == 0 && !p.bias);
    return p.out().numel() == 0;
  }

  // ---- wgmma ----
  /// Returns true if at least `percent` % of the pixels of wgmma's tiles are inside the image.
  bool fills_wgmma(int64_t percent = 50) const {
    const int64_t height = p.x.shape[2], width = p.x.shape[3];
    return 100 * height * width >= percent * ceil_div(height * (width + 1), kWgmmaPixels) * kWgmmaPixels;
  }
  /// Returns true if cuDNN is faster than wgmma because filters of more than 64 channels leave space in shared memory
  /// only for tiles of 32 filters, each of which loads the images again. The limits on the size of y were measured on
  /// an H200 with 96 and 128 channels.
  bool is_crowded() const {
    if (p.pass == ConvPass::backward_weight || depth_channels() <= 64 || rows() <= 32) return false;
    if (!fills_wgmma(85)) return p.y.numel() > int64_t{5} << 18;
    return p.y.numel() > (p.pass == ConvPass::forward ? int64_t{5} << 20 : int64_t{1} << 23);
  }
  /// Returns true if wgmma_im2col is faster than wgmma, which from more than 64 channels on has space in shared memory
  /// only for tiles of 32 filters. The limits on the size of y were measured on an H200.
  bool is_deep() const {
    if (std::min(filters, channels) <= 64 || p.y.numel() > int64_t{1} << 22) return false;
    if (p.pass == ConvPass::backward_weight) return p.mask_alignment == 0;
    return p.y.numel() > int64_t{1} << 20 && fills_im2col(p, device);
  }
  std::optional<ConvAlgorithm> of_hopper() const {
    const bool wgmma = can_wgmma(p, device, switches.tf32), im2col = can_im2col(p, device);
    if (wgmma && ((fills_wgmma() && !is_deep()) || !im2col)) return ConvAlgorithm::wgmma;
    return im2col ? std::optional(ConvAlgorithm::wgmma_im2col) : std::nullopt;
  }
  /// Returns true if a kernel for Hopper is faster than cuDNN, by measurements on an H200:
  /// - wgmma, where images fill its tiles, unless is_crowded();
  /// - wgmma_im2col, from 64 channels on: wgrad under a stride, unless C R S is large, and wgrad without a stride where
  ///   is_deep(); dgrad under a stride, unless there are many pixels; fprop and other dgrad, where its blocks fill the
  ///   device, but no dgrad of very few pixels.
  bool prefers_hopper() const {
    const auto made = of_hopper();
    if (made != ConvAlgorithm::wgmma_im2col) return made && fills_wgmma() && !is_crowded();
    if (std::min(filters, channels) < 64) return false;
    if (p.pass == ConvPass::backward_weight)
      return p.is_strided() ? taps <= 576 : can_wgmma(p, device) && fills_wgmma();
    if (p.pass == ConvPass::backward_data && p.is_strided()) return p.x.numel() <= int64_t{1} << 23;
    // Other numbers of channels leave a part of the columns and the depth empty: with 96 channels, a quarter of each.
    if (filters % kIm2colBox != 0 || channels % kIm2colBox != 0) return false;
    return fills_im2col(p, device) && (p.pass == ConvPass::forward || p.x.numel() > int64_t{1} << 19);
  }

  // ---- fprop and dgrad ----
  int64_t rows() const { return p.pass == ConvPass::forward ? filters : channels; }
  int64_t depth_channels() const { return p.pass == ConvPass::forward ? channels : filters; }
  /// Returns true for dgrad under a stride.
  bool skips() const { return p.pass == ConvPass::backward_data && p.is_strided(); }

  bool has_direct() const {
    const int64_t size = p.w.shape[3];
    bool neighbours = (size == 3 || size == 5) && p.w.shape[2] == size && !p.is_strided();
    for (const int64_t dilation : p.geometry.dilation) neighbours = neighbours && dilation == 1;
    return neighbours && rows() <= kMaxDirectRows && p.in().numel() > 0 && p.dtype != DType::f64 &&
           std::max(p.in().span(), p.w.span()) < kShortSpan;
  }
  bool has_short_images() const { return std::max(p.in().span(), p.out().span()) < kShortSpan; }
  /// Returns true for exact float32 whose implicit GEMM keeps the FMA units busy.
  bool has_exact_gather() const {
    return is_exact() && p.in().numel() > 0 && depth_channels() % 16 == 0 && rows() > kMaxDirectRows &&
           (!skips() || p.in().strides[1] != 1) && has_short_images();
  }
  ConvAlgorithm gather() const {
    if (const auto hopper = of_hopper()) return *hopper;
    if (p.pass == ConvPass::forward && few_channel_tiling(p, mode)) return ConvAlgorithm::few_channel_mma;
    if (has_direct()) return ConvAlgorithm::direct;
    if (p.in().strides[1] != 1 && has_exact_gather())  // with channels innermost implicit_gemm loads four at once
      return ConvAlgorithm::implicit_gemm_async;
    const int64_t bytes = depth_channels() * static_cast<int64_t>(size_of(p.dtype));
    const bool fits = mode && p.in().numel() > 0 && 2 * bytes >= static_cast<int64_t>(kRowBytes) && bytes % 16 == 0;
    return fits && has_short_images() ? ConvAlgorithm::implicit_gemm : ConvAlgorithm::implicit_gemm_generic;
  }

  // ---- wgrad ----
  /// Returns true if dy in float32 consists of aligned vectors of four neighbouring pixels of one image.
  bool has_vectors() const {
    const Strides& strides = p.y.strides;
    return strides[3] == 1 && strides[2] == p.y.shape[3] && p.y.shape[2] * p.y.shape[3] % 4 == 0 &&
           strides[0] % 4 == 0 && strides[1] % 4 == 0 && p.y.alignment == 16;
  }
  ConvAlgorithm weight() const {
    if (const auto hopper = of_hopper()) return *hopper;
    if (few_channel_tiling(p, mode)) return ConvAlgorithm::few_channel_mma;
    if (can_direct_wgrad(p, device)) return ConvAlgorithm::direct;
    const bool vectors = is_exact() && has_vectors();
    const int64_t padding = p.geometry.padding[0] * p.x.strides[2] + p.geometry.padding[1] * p.x.strides[3];
    const bool is_short = p.y.span() < kShortSpan && p.x.span() + padding < kShortSpan;
    if (mode && is_short && p.x.numel() > 0) {
      if (vectors && channels % 32 == 0) return ConvAlgorithm::implicit_gemm_async;
      const int columns = implicit_wgrad_tile(filters).columns;
      if (kernel <= 32 && 2 * taps >= ceil_div(taps, columns) * columns) return ConvAlgorithm::implicit_gemm;
    }
    return ConvAlgorithm::implicit_gemm_generic;
  }
  /// Returns true if the kernel applies the mask itself. Kernels that read each element of dy once or a few times do.
  bool takes_mask(ConvAlgorithm algorithm) const {
    if (p.pass == ConvPass::backward_weight)
      return p.mask_alignment == 16 &&
             (algorithm == ConvAlgorithm::direct || algorithm == ConvAlgorithm::few_channel_mma ||
              algorithm == ConvAlgorithm::wgmma);
    return algorithm == ConvAlgorithm::direct && filters <= kMaxDirectRows;
  }

  // ---- cuDNN or our kernels. The limits were measured on an H200 with the layers of benchmarks/conv2d. ----
  static constexpr int64_t kFewChannels = 32;  // for exact float32
  bool library_tf32() const { return switches.library_tf32 && device.has_tensor_cores(); }
  bool exact_library() const { return p.dtype == DType::f32 && !library_tf32(); }

  /// The layout in which cuDNN computes: the layout of the first operand that is dense in only one of the two layouts.
  /// The result of fprop and dgrad is asked first, then the other image, then the weights.
  bool channels_last() const {
    const bool forward = p.pass == ConvPass::forward;
    for (const ConvOperand* operand : {forward ? &p.y : &p.x, forward ? &p.x : &p.y, &p.w})
      if (const bool last = operand->is_dense(true); last != operand->is_dense(false)) return last;
    return false;
  }

  /// Returns true if our kernel for exact float32 is faster than cuDNN's. It is faster for
  /// - wgrad, except with up to 32 filters, where half of a tile is idle, and, with channels innermost, with many
  ///   weights or many pixels;
  /// - dgrad under a stride, unless channels are innermost;
  /// - results so small that cuDNN's tiles leave much of the device idle, above all if bias and ReLU follow;
  /// - dgrad of many pixels of few channels: cuDNN's best engines for it use Fourier space, and need more scratch
  ///   memory than they may have.
  bool is_better_exact() const {
    if (p.pass == ConvPass::backward_weight) {
      if (filters <= kFewChannels && channels >= kFewChannels) return false;
      if (channels_last() && (p.w.numel() >= int64_t{1} << 20 || p.y.numel() >= int64_t{1} << 22)) return false;
      const ConvAlgorithm made = weight();
      return made == ConvAlgorithm::implicit_gemm_async || made == ConvAlgorithm::direct ||
             (made == ConvAlgorithm::implicit_gemm && mode == MathMode::fma && p.x.strides[1] == 1);
    }
    if (!has_exact_gather()) return false;
    const bool few = rows() <= kFewChannels;
    if (p.pass == ConvPass::backward_data && (p.is_strided() || (few && p.x.numel() >= int64_t{1} << 24))) return true;
    return p.out().numel() < int64_t{1} << ((p.bias || p.relu) && !few ? 22 : 21);
  }
  /// Returns true if one of our kernels is faster than cuDNN. Ours are faster where there is little arithmetic for each
  /// element read, that is, for few channels, above all for wgrad, whose kernels also mask dy and sum dbias. For half
  /// types cuDNN pads channels to eight, so that from eight channels on its wgrad of many pixels, and from more pixels
  /// on its fprop, are faster. From 64 taps (C R S) on there is enough arithmetic for cuDNN's wgrad.
  bool prefers_own() const {
    if (switches.small_convolutions) return false;
    if (prefers_hopper()) return true;
    if (p.pass != ConvPass::backward_data && few_channel_tiling(p, mode)) return true;
    if (exact_library() && is_better_exact()) return true;
    const bool half = p.dtype == DType::f16 || p.dtype == DType::bf16, weights = p.pass == ConvPass::backward_weight;
    const bool few = std::max(filters, channels) <= 16;
    if (few && half && std::min(filters, channels) >= 8 && p.pass != ConvPass::backward_data && channels_last())
      return p.y.numel() < int64_t{1} << (weights ? 18 : 20);
    if (!weights || few) return few;
    return half ? channels == 1 || can_direct_wgrad(p, device) : taps < 64 && filters * taps <= 8192;
  }
  bool is_library() const {
    if (switches.library == ConvSwitches::Library::none) return false;
    if (p.dtype == DType::bf16 && !device.has_tensor_cores()) return false;  // cuDNN has no engines for it
    for (const ConvOperand* operand : {&p.x, &p.w, &p.y})
      if (operand->numel() == 0 || operand->numel() >= int64_t{1} << 31) return false;
    return !prefers_own();
  }
  /// Returns true if cuDNN computes dgrad faster as fprop with flipped filters. In exact float32 its fprop reaches
  /// almost twice the throughput of its dgrad, except for few channels.
  bool is_better_flipped() const {
    if (p.pass != ConvPass::backward_data || !exact_library() || p.geometry.groups != 1 || channels <= kFewChannels)
      return false;
    for (int i = 0; i < 2; ++i)
      if (p.geometry.stride[i] != 1 || p.geometry.padding[i] > p.geometry.dilation[i] * (p.w.shape[2 + i] - 1))
        return false;
    return true;
  }

  ConvChoice choice() const {
    if (is_empty()) return {};
    if (is_library()) return {ConvAlgorithm::library};
    const ConvAlgorithm own = p.pass == ConvPass::backward_weight ? weight() : gather();
    return {own, takes_mask(own)};
  }
  ConvPlan library_plan() const {
    const bool full = switches.library == ConvSwitches::Library::full;
    ConvPlan plan;
    plan.algorithm = ConvAlgorithm::library, plan.workspace_bytes = switches.workspace_limit;
    if (p.dtype == DType::f32 && library_tf32()) plan.math_mode = MathMode::tf32;
    if (p.dtype == DType::f16 || p.dtype == DType::bf16) plan.math_mode = MathMode::half;
    plan.channels_last = channels_last();
    plan.fused = full && p.pass == ConvPass::forward && (p.bias || p.relu);
    if (full && is_better_flipped()) {
      plan.flipped = true;
      const ConvProblem flipped = flip_transpose(p);
      plan.channels_last = Case{flipped, device, switches}.channels_last();
      // Memory is scarce during backward, and engines that use Fourier space ask for a multiple of the images' size.
      const int64_t images = (p.x.numel() + p.y.numel()) * static_cast<int64_t>(size_of(p.dtype));
      plan.workspace_bytes = std::min(plan.workspace_bytes, static_cast<size_t>(images));
    }
    return plan;
  }
};

/// The phase of the results at, at + stride, … along an axis.
ConvPhase::Axis phase_axis(const ConvProblem& p, int axis, int at) {
  const bool backward = p.pass == ConvPass::backward_data;
  const int sign = backward ? 1 : -1;
  const int stride = backward ? static_cast<int>(p.geometry.stride[axis]) : 1;
  const int dilation = sign * static_cast<int>(p.geometry.dilation[axis]);
  const int origin = sign * static_cast<int>(p.geometry.padding[axis]);
  const int taps = static_cast<int>(p.w.shape[2 + axis]), period = stride / std::gcd(stride, dilation);
  int first = 0;
  while (first < period && (at + origin - first * dilation) % stride != 0) ++first;
  const int count = first < period && first < taps ? (taps - first + period - 1) / period : 0;
  return {.at = at,
          .size = static_cast<int>(ceil_div(p.out().shape[2 + axis] - at, stride)),
          .first = first,
          .period = period,
          .count = count,
          .origin = count > 0 ? (at + origin - first * dilation) / stride : 0,
          .step = -period * dilation / stride};
}

std::vector<ConvPhase> phases_of(const ConvProblem& p) {
  const auto phases = [&](int axis) {
    return p.pass == ConvPass::backward_data ? std::min(p.geometry.stride[axis], p.out().shape[2 + axis]) : 1;
  };
  std::vector<ConvPhase> result;
  for (int i = 0; i < phases(0); ++i)
    for (int j = 0; j < phases(1); ++j) result.push_back({phase_axis(p, 0, i), phase_axis(p, 1, j)});
  return result;
}

}  // namespace

int64_t ConvOperand::span() const {
  int64_t span = 0;
  for (int i = 0; i < 4; ++i) span += (shape[i] - 1) * std::abs(strides[i]);
  return span;
}

bool ConvOperand::is_dense(bool channels_last) const {
  const Strides dense = channels_last ? channels_last_strides(shape) : contiguous_strides(shape);
  for (int i = 0; i < 4; ++i)
    if (shape[i] > 1 && strides[i] != dense[i]) return false;
  return true;
}

int64_t ConvOperand::alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 16;
  return static_cast<int64_t>(address & ~(address - 1));
}

const char* ConvPlan::name() const {
  constexpr const char* modes[] = {"implicit_gemm_fma", "implicit_gemm_tf32", "implicit_gemm_half"};
  constexpr const char* names[] = {
      "wgmma", "direct", "few_channel_mma", "implicit_gemm_async", "", "implicit_gemm_generic", "", "wgmma_im2col"};
  if (algorithm == ConvAlgorithm::implicit_gemm) return modes[static_cast<int>(math_mode)];
  if (algorithm != ConvAlgorithm::library) return names[static_cast<int>(algorithm)];
  if (math_mode == MathMode::tf32) return fused ? "fused_tf32" : "engine_tf32";
  return fused ? "fused" : "engine";
}

const char* ConvPlan::reason() const {
  constexpr const char* reasons[] = {"3x3 of half types or TF32, channels innermost",
                                     "few channels, 3x3 or 5x5 without a stride",
                                     "few channels of half types or TF32",
                                     "exact float32 in planes, many channels",
                                     "channels fill vectors",
                                     "sizes, strides or a type that no other kernel takes",
                                     "our kernels are not ahead of cuDNN's",
                                     "half types, channels innermost"};
  return reasons[static_cast<int>(algorithm)];
}

ConvProblem flip_transpose(const ConvProblem& problem) {
  ConvProblem flipped = problem;
  flipped.pass = ConvPass::forward;
  std::swap(flipped.x, flipped.y);
  Shape& shape = flipped.w.shape;
  std::swap(shape[0], shape[1]);
  const bool last = problem.w.is_dense(true) && !problem.w.is_dense(false);
  flipped.w = ConvOperand(shape, last ? channels_last_strides(shape) : contiguous_strides(shape));
  Conv2dGeometry& geometry = flipped.geometry;
  for (int i = 0; i < 2; ++i) geometry.padding[i] = geometry.dilation[i] * (shape[2 + i] - 1) - geometry.padding[i];
  return flipped;
}

ConvChoice choose(const ConvProblem& problem, const DeviceProperties& device, const ConvSwitches& switches) {
  return Case{problem, device, switches}.choice();
}

ConvPlan select(const ConvProblem& problem, const DeviceProperties& device, const ConvSwitches& switches) {
  const Case of{problem, device, switches};
  ConvPlan plan;
  plan.algorithm = of.choice().algorithm;
  if (plan.algorithm == ConvAlgorithm::library) return of.library_plan();
  if (of.is_empty()) return plan;
  // The other algorithms multiply on the FMA units, in the type of their sums.
  if (plan.algorithm == ConvAlgorithm::implicit_gemm || plan.algorithm == ConvAlgorithm::few_channel_mma ||
      plan.algorithm == ConvAlgorithm::wgmma || plan.algorithm == ConvAlgorithm::wgmma_im2col)
    plan.math_mode = *of.mode;
  plan.phases = phases_of(problem);
  if (plan.algorithm == ConvAlgorithm::wgmma) return plan_wgmma(problem, device, plan), plan;
  if (plan.algorithm == ConvAlgorithm::wgmma_im2col) return plan_im2col(problem, device, plan), plan;
  (problem.pass == ConvPass::backward_weight ? plan_wgrad : plan_gather)(problem, device, plan);
  for (const ConvPhase& phase : plan.phases) plan.split_k = std::max(plan.split_k, phase.split_k);
  return plan;
}

}  // namespace gradus::cuda_detail
