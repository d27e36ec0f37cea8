// Chooses the algorithm of a convolution: the order of preference among those that can run. The limits were measured on
// an H200 with the layers of benchmarks/conv2d.
#include <gradus/backends/cuda/conv2d/select.h>

#include <cmath>
#include <numeric>

namespace gradus::cuda_detail {
namespace {

/// Returns true if at least `percent` % of the pixels of wgmma's tiles are inside the image.
bool fills_wgmma(const ConvProblem& p, int64_t percent = 50) {
  const int64_t height = p.x.shape[2], width = p.x.shape[3];
  return 100 * height * width >= percent * ceil_div(height * (width + 1), kWgmmaPixels) * kWgmmaPixels;
}

/// Returns true if wgmma_im2col is faster than wgmma, which from more than 64 channels on has space in shared memory
/// only for tiles of 32 filters. The limits are those of the size of y.
bool is_deep(const ConvProblem& p) {
  if (std::min(p.filters(), p.channels()) <= 64 || p.y.numel() > int64_t{1} << 22) return false;
  if (p.is_wgrad()) return p.mask_alignment == 0;
  return p.y.numel() > int64_t{1} << 20 && fills_im2col(p);
}

bool prefers_wgmma(const ConvProblem& p) { return (fills_wgmma(p) && !is_deep(p)) || !kWgmmaIm2col.can_run(p); }

/// With channels innermost implicit_gemm loads four at once.
bool prefers_async(const ConvProblem& p) {
  return p.is_wgrad() || (p.rows() > kMaxDirectRows && p.in().strides[1] != 1);
}

/// Returns true if the channels fill half of a row of implicit_gemm's tiles, or C R S half of their columns.
bool prefers_implicit_gemm(const ConvProblem& p) {
  if (!p.is_wgrad())
    return 2 * p.depth_channels() * static_cast<int64_t>(size_of(p.dtype)) >= static_cast<int64_t>(kRowBytes);
  const int columns = implicit_wgrad_tile(p.filters()).columns;
  return 2 * p.taps() >= ceil_div(p.taps(), columns) * columns;
}

constexpr ConvCandidate kCandidates[] = {
    {&kWgmma, prefers_wgmma},
    {&kWgmmaIm2col},
    {&kFewChannelMma},
    {&kDirect},
    {&kImplicitGemmAsync, prefers_async},
    {&kImplicitGemmFma, prefers_implicit_gemm},
    {&kImplicitGemmTf32, prefers_implicit_gemm},
    {&kImplicitGemmHalf, prefers_implicit_gemm},
    {&kImplicitGemmGeneric},
};

// ---- cuDNN or our kernels ----

constexpr int64_t kFewChannels = 32;  // for exact float32

/// Returns true if cuDNN is faster than wgmma because filters of more than 64 channels leave space in shared memory
/// only for tiles of 32 filters, each of which loads the images again. The limits on the size of y were measured with
/// 96 and 128 channels.
bool is_crowded(const ConvProblem& p) {
  if (p.is_wgrad() || p.depth_channels() <= 64 || p.rows() <= 32) return false;
  if (!fills_wgmma(p, 85)) return p.y.numel() > int64_t{5} << 18;
  return p.y.numel() > (p.pass == ConvPass::forward ? int64_t{5} << 20 : int64_t{1} << 23);
}

/// Returns true if a kernel for Hopper is faster than cuDNN:
/// - wgmma, where images fill its tiles, unless is_crowded();
/// - wgmma_im2col, from 64 channels on: wgrad under a stride, unless C R S is large, and wgrad without a stride where
///   is_deep(); dgrad under a stride, unless there are many pixels; fprop and other dgrad, where its blocks fill the
///   device, but no dgrad of very few pixels.
bool prefers_hopper(const ConvProblem& p) {
  const bool wgmma = kWgmma.can_run(p);
  if (wgmma && prefers_wgmma(p)) return fills_wgmma(p) && !is_crowded(p);
  if (!kWgmmaIm2col.can_run(p) || std::min(p.filters(), p.channels()) < 64) return false;
  if (p.is_wgrad()) return p.is_strided() ? p.taps() <= 576 : wgmma && fills_wgmma(p);
  if (p.pass == ConvPass::backward_data && p.is_strided()) return p.x.numel() <= int64_t{1} << 23;
  // Other numbers of channels leave a part of the columns and the depth empty: with 96 channels, a quarter of each.
  if (p.filters() % kIm2colBox != 0 || p.channels() % kIm2colBox != 0) return false;
  return fills_im2col(p) && (p.pass == ConvPass::forward || p.x.numel() > int64_t{1} << 19);
}

/// Returns true if our kernel for exact float32 is faster than cuDNN's. It is faster for
/// - wgrad, except with up to 32 filters, where half of a tile is idle, and, with channels innermost, with many
///   weights or many pixels;
/// - dgrad under a stride, unless channels are innermost;
/// - results so small that cuDNN's tiles leave much of the device idle, above all if bias and ReLU follow;
/// - dgrad of many pixels of few channels: cuDNN's best engines for it use Fourier space, and need more scratch
///   memory than they may have.
bool is_better_exact(const ConvProblem& p) {
  const bool few = p.rows() <= kFewChannels, dgrad = p.pass == ConvPass::backward_data;
  if (p.is_wgrad()) {
    if (p.filters() <= kFewChannels && p.channels() >= kFewChannels) return false;
    if (is_channels_last(p) && (p.w.numel() >= int64_t{1} << 20 || p.y.numel() >= int64_t{1} << 22)) return false;
    const ConvAlgorithm& own = select(p);
    return &own == &kImplicitGemmAsync || &own == &kDirect || (&own == &kImplicitGemmFma && p.x.strides[1] == 1);
  }
  if (!kImplicitGemmAsync.can_run(p) || p.rows() <= kMaxDirectRows ||
      (dgrad && p.is_strided() && p.in().strides[1] == 1))
    return false;
  if (dgrad && (p.is_strided() || (few && p.x.numel() >= int64_t{1} << 24))) return true;
  return p.out().numel() < int64_t{1} << ((p.bias || p.relu) && !few ? 22 : 21);
}

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

}  // namespace

const ConvAlgorithm& select(const ConvProblem& problem, ConvCandidates candidates) {
  if (!problem.is_empty())
    for (const auto& [algorithm, is_preferred] : candidates)
      if (algorithm->can_run(problem) && (!is_preferred || is_preferred(problem))) return *algorithm;
  return *candidates.back().algorithm;
}

ConvCandidates conv_candidates() { return kCandidates; }

// Ours are faster where there is little arithmetic for each element read, that is, for few channels, above all for
// wgrad, whose kernels also mask dy and sum dbias. For half types cuDNN pads channels to eight, so that from eight
// channels on its wgrad of many pixels, and from more pixels on its fprop, are faster. From 64 taps (C R S) on there is
// enough arithmetic for cuDNN's wgrad.
bool is_better_than_library(const ConvProblem& p) {
  if (p.switches.small_convolutions) return false;
  if (prefers_hopper(p)) return true;
  if (kFewChannelMma.can_run(p)) return true;
  if (p.is_library_exact() && is_better_exact(p)) return true;
  const int64_t most = std::max(p.filters(), p.channels()), least = std::min(p.filters(), p.channels());
  if (most <= 16 && p.is_half() && least >= 8 && p.pass != ConvPass::backward_data && is_channels_last(p))
    return p.y.numel() < int64_t{1} << (p.is_wgrad() ? 18 : 20);
  if (!p.is_wgrad() || most <= 16) return most <= 16;
  return p.is_half() ? p.channels() == 1 || kDirect.can_run(p) : p.taps() < 64 && p.filters() * p.taps() <= 8192;
}

const TuningTable& tuning_table() {
  static const TuningTable table(
#include <gradus/backends/cuda/tuning_table.txt>
  );
  return table;
}

std::vector<std::string> conv_kinds() {
  std::vector<std::string> kinds;
  for (const char* pass : {"fprop", "dgrad", "wgrad"})
    for (const char* type : {"float32", "half", "float64"})
      for (const char* layout : {"nchw", "nhwc"}) kinds.push_back(std::string(pass) + '_' + type + '_' + layout);
  return kinds;
}

size_t ConvProblem::kind() const {
  const size_t type = is_half() ? 1 : dtype == DType::f64 ? 2 : 0;
  return (static_cast<size_t>(pass) * 3 + type) * 2 + (is_channels_last(*this) ? 1 : 0);
}

const KernelFamily<ConvAlgorithm>& conv_family() {
  static const KernelFamily<ConvAlgorithm> family(
      "cuda_conv2d", conv_kinds(),
      {&kWgmma, &kWgmmaIm2col, &kFewChannelMma, &kDirect, &kImplicitGemmAsync, &kImplicitGemmFma, &kImplicitGemmTf32,
       &kImplicitGemmHalf, &kImplicitGemmGeneric},
      {"h200"}, tuning_table());
  return family;
}

bool is_channels_last(const ConvProblem& p) {
  const bool forward = p.pass == ConvPass::forward;
  for (const ConvOperand* operand : {forward ? &p.y : &p.x, forward ? &p.x : &p.y, &p.w})
    if (const bool last = operand->is_dense(true); last != operand->is_dense(false)) return last;
  return false;
}

// ---- problems and plans ----

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

std::vector<ConvPhase> phases_of(const ConvProblem& p) {
  const auto phases = [&](int axis) {
    return p.pass == ConvPass::backward_data ? std::min(p.geometry.stride[axis], p.out().shape[2 + axis]) : 1;
  };
  std::vector<ConvPhase> result;
  for (int i = 0; i < phases(0); ++i)
    for (int j = 0; j < phases(1); ++j) result.push_back({phase_axis(p, 0, i), phase_axis(p, 1, j)});
  return result;
}

ConvPlan wgrad_plan(const ConvProblem& p, const ConvTile& tile, int64_t split_k, int64_t unit) {
  const int64_t positions = p.y.shape[0] * p.y.shape[2] * p.y.shape[3];
  const int64_t results = p.w.shape[0] * (p.taps() + (p.bias ? 1 : 0));
  // One thread adds few parts. Several threads share many parts, or those of too few results to fill the device.
  constexpr int64_t few = 4096;
  ConvPlan plan = {.tile = tile,
                   .phases = phases_of(p),
                   .split_k = u32(split_k),
                   .reduce_lanes = split_k <= 64 && results > few    ? 1u
                                   : split_k <= 128 && results > few ? 8u
                                                                     : 32u,
                   .workspace_bytes = static_cast<size_t>((p.dtype == DType::f64 ? 8 : 4) * split_k * results)};
  plan.phases[0].split_k = plan.split_k;
  plan.phases[0].per_split = u32(ceil_div(ceil_div(positions, split_k), unit) * unit);
  return plan;
}

// ---- work ----

double operand_bytes(const ConvProblem& p) {
  return static_cast<double>((p.x.numel() + p.w.numel() + p.y.numel()) * static_cast<int64_t>(size_of(p.dtype)));
}

WorkCounter::WorkCounter(const ConvProblem& p, MathMode mode)
    : p_(p), at_once_(p.dtype == DType::f64 ? 0.5 : multiply_adds_at_once(mode)) {
  work_[kBytes] = operand_bytes(p);
}

void WorkCounter::add_tiles(const TileWork& tiles) {
  const int64_t multiprocessors = p_.device.multiprocessors;
  const int64_t busiest = ceil_div(tiles.blocks, multiprocessors);
  const int64_t waves = ceil_div(tiles.blocks, tiles.resident * multiprocessors);
  const auto steps = static_cast<double>(tiles.blocks * tiles.steps);
  work_[kMultiplyAdds] += static_cast<double>(busiest * multiprocessors * tiles.steps * tiles.multiply_adds) / at_once_;
  work_[kSteps] += static_cast<double>(waves * tiles.steps);
  work_[kTileBytes] += steps * static_cast<double>(tiles.bytes);
  work_[kTileElements] += steps * static_cast<double>(tiles.elements);
  work_[kWaves] += static_cast<double>(waves);
  work_[kBlocks] += static_cast<double>(busiest);
}

void WorkCounter::add_parts(int64_t splits, int64_t results) {
  work_[kPartBytes] += static_cast<double>(2 * splits * results * (p_.dtype == DType::f64 ? 8 : 4));
}

KernelWork WorkCounter::work() const {
  KernelWork work = work_;
  for (size_t i = 0; i < kMaxWorkParts; ++i) {
    if (kTileParts[i].limit == WorkLimit::multiply_adds)
      work[i] *= kH200.multiply_adds_per_us / p_.device.multiply_adds_per_us;
    if (kTileParts[i].limit == WorkLimit::bytes) work[i] *= kH200.bytes_per_us / p_.device.bytes_per_us;
  }
  return work;
}

}  // namespace gradus::cuda_detail
