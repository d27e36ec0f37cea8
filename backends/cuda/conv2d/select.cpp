// Chooses the algorithm of a convolution: the one with the lowest estimate among those that can run.
#include <gradus/backends/cuda/conv2d/select.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <unordered_map>

namespace gradus::cuda_detail {
namespace {

/// The phase of the results at, at + stride, … along an axis.
ConvPhase::Axis phase_axis(const ConvProblem& p, int axis, int at) {
  const bool backward = p.pass == ConvPass::backward_data;
  const int sign = backward ? 1 : -1;
  const int stride = backward ? static_cast<int>(p.geometry.stride[axis]) : 1;
  const int dilation = sign * static_cast<int>(p.geometry.dilation[axis]);
  const int origin = sign * static_cast<int>(p.geometry.padding[axis]);
  const int taps = static_cast<int>(p.w.shape[2 + axis]);
  const int period = stride / std::gcd(stride, dilation);
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

struct FamilyProblem {
  const ConvFamily* family = nullptr;
  ConvProblem problem = {};
  bool operator==(const FamilyProblem&) const = default;
};
struct Hash {
  uint64_t operator()(const FamilyProblem& key) const {
    const ConvProblem& p = key.problem;
    return hash_of({p.x.numel(), p.w.numel(), p.y.numel(), static_cast<int64_t>(p.pass)});
  }
};

/// The choices by time, of all threads.
struct TimedChoices {
  std::mutex mutex;
  std::unordered_map<FamilyProblem, ConvChoice, Hash> map;

  std::optional<ConvChoice> find(const ConvProblem& problem, const ConvFamily& family) {
    if (!problem.switches.timed || ForcedAlgorithm::current()) return std::nullopt;
    std::lock_guard lock(mutex);
    const auto found = map.find({&family, problem});
    return found == map.end() ? std::nullopt : std::optional(found->second);
  }
};
TimedChoices& timed_choices() {
  static auto* const choices = new TimedChoices;
  return *choices;
}

/// The algorithms that can run, by estimate. If the user prefers cuDNN's, the others are left out where cuDNN has one.
std::vector<ConvFamily::Candidate> candidates_of(const ConvProblem& p, const ConvFamily& family, uint32_t without = 0) {
  std::vector<ConvFamily::Candidate> all;
  family.for_candidates(
      p, [&](const ConvFamily::Candidate& each) { all.push_back(each); }, without);
  const auto is_library = [](const ConvFamily::Candidate& each) { return each.algorithm->is_library; };
  if (p.switches.small_convolutions && std::any_of(all.begin(), all.end(), is_library))
    std::erase_if(all, std::not_fn(is_library));
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.estimated_us < b.estimated_us; });
  return all;
}

ConvChoice choice_of(const ConvFamily::Candidate& candidate, const ConvProblem& p) {
  return {candidate.algorithm, candidate.index, candidate.algorithm->plan(p)};
}

ConvChoice choose(const ConvProblem& p, const ConvFamily& family, uint32_t without) {
  if (p.is_empty()) return {&kImplicitGemmGeneric, 0, kImplicitGemmGeneric.plan(p)};
  return choice_of(candidates_of(p, family, without).at(0), p);
}

}  // namespace

ConvChoice select(const ConvProblem& problem, const ConvFamily& family, uint32_t without) {
  if (without != 0) return choose(problem, family, without);
  if (const std::optional<ConvChoice> timed = timed_choices().find(problem, family)) return *timed;
  thread_local RecentPlans<FamilyProblem, ConvChoice> recent;
  const FamilyProblem key{&family, problem};
  return recent.get(key, Hash()(key), [&] { return choose(problem, family, 0); });
}

bool is_untimed(const ConvProblem& problem, const ConvFamily& family) {
  return problem.switches.timed && !problem.is_empty() && !ForcedAlgorithm::current() &&
         !timed_choices().find(problem, family);
}

ConvChoice select_by_time(const ConvProblem& problem, const ConvFamily& family,
                          const std::function<double(const ConvChoice&)>& time_of) {
  constexpr size_t kMostTimed = 4, kMostKept = 4096;
  constexpr double kHopeless = 16;  // times the lowest estimate
  const std::vector<ConvFamily::Candidate> candidates = candidates_of(problem, family);
  ConvChoice best = choice_of(candidates.at(0), problem);
  double best_time = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(candidates.size(), kMostTimed); ++i) {
    if (candidates[i].estimated_us > kHopeless * candidates[0].estimated_us) break;
    const ConvChoice choice = choice_of(candidates[i], problem);
    if (const double time = time_of(choice); time < best_time) best_time = time, best = choice;
  }
  TimedChoices& choices = timed_choices();
  std::lock_guard lock(choices.mutex);
  if (choices.map.size() >= kMostKept) choices.map.clear();
  choices.map.insert_or_assign({&family, problem}, best);
  return best;
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
      {&kWgmma, &kWgmmaIm2col, &kFewChannelMma, &kDepthwise, &kDirect, &kImplicitGemmAsync, &kImplicitGemmFma,
       &kImplicitGemmTf32, &kImplicitGemmHalf, &kImplicitGemmGeneric},
      tuned_devices(), tuning_table());
  return family;
}

bool is_channels_last(const ConvProblem& p) {
  const bool forward = p.pass == ConvPass::forward;
  for (const ConvOperand* operand : {forward ? &p.y : &p.x, forward ? &p.x : &p.y, &p.w})
    if (const bool last = operand->is_dense(true); last != operand->is_dense(false)) return last;
  return false;
}

// ---- problems and plans ----

bool ConvProblem::operator==(const ConvProblem& other) const {
  return pass == other.pass && dtype == other.dtype && x == other.x && w == other.w && y == other.y &&
         std::memcmp(&geometry, &other.geometry, sizeof geometry) == 0 && bias == other.bias && relu == other.relu &&
         mask_alignment == other.mask_alignment && switches == other.switches && device == other.device;
}

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

double operand_bytes(const ConvProblem& p) { return number((p.x.numel() + p.w.numel() + p.y.numel()) * p.element()); }

}  // namespace gradus::cuda_detail
