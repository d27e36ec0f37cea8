#include <gradus/training/recomputation.h>

#include <algorithm>
#include <limits>

#include <gradus/layers/module/containers.h>

namespace gradus {
namespace {

using Parts = std::vector<RecomputedPart>;

/// A model, and the reports of its step's memory when various parts are recomputed.
class Model {
 public:
  /// Path and number of modules of the model, if it is a Sequential, or else of each child that is a Sequential. Any
  /// range of their modules can be recomputed.
  std::vector<std::pair<std::string, size_t>> sequentials;
  /// Paths of the model's other children, which can be recomputed only as a whole.
  std::vector<std::string> others;
  /// The report without recomputation.
  MemoryReport before;

  Model(const nn::AnyModule& model, const Shape& input_shape, optim::Optimizer& optimizer, const PlanOptions& options)
      : model_(model), input_shape_(input_shape), optimizer_(optimizer), options_(options) {
    GRADUS_CHECK(!model.is_empty(), ValueError, "recomputation: the model is an empty AnyModule");
    collect("", model.ptr());
    keep_all(model);
    before = report();
  }

  MemoryReport report() const { return gradus::plan(model_, input_shape_, optimizer_, options_); }
  void apply(const Parts& parts) const {
    keep_all(model_);
    for (const RecomputedPart& part : parts) {
      nn::Module& module = part.module.empty() ? *model_.ptr() : *model_.ptr()->named_modules()[part.module];
      if (part.end == 0) module.recompute();
      else module.as<nn::SequentialImpl>()->recompute_part(part.begin, part.end);
    }
  }
  MemoryReport report_with(const Parts& parts) const {
    apply(parts);
    return report();
  }
  /// Adds the part to `parts` if recomputing it alone reduces the memory that the forward pass leaves for the backward
  /// pass.
  void add_if_it_saves(RecomputedPart part, Parts& parts) const {
    const MemoryReport alone = report_with({part});
    part.saved = before.activations - alone.activations;
    part.flops = alone.recomputed_flops;
    if (part.saved > 0) parts.push_back(std::move(part));
  }

 private:
  void collect(const std::string& path, const std::shared_ptr<nn::Module>& module) {
    if (auto* sequential = module->as<nn::SequentialImpl>()) sequentials.emplace_back(path, sequential->size());
    else if (!path.empty()) others.push_back(path);
    else
      for (const auto& child : module->named_children()) collect(child.key(), child.value());
  }

  const nn::AnyModule& model_;
  const Shape& input_shape_;
  optim::Optimizer& optimizer_;
  const PlanOptions& options_;
};

/// Adds a part to the chosen parts and removes the chosen parts within it. Returns nothing if the part overlaps a
/// chosen part that is not within it.
std::optional<Parts> with(const Parts& chosen, const RecomputedPart& part) {
  Parts result;
  for (const RecomputedPart& other : chosen) {
    const bool overlaps = other.module == part.module && other.begin < part.end && part.begin < other.end;
    if (!overlaps) result.push_back(other);
    else if (other.begin < part.begin || part.end < other.end) return std::nullopt;
  }
  result.push_back(part);
  return result;
}

}  // namespace

std::string RecomputedPart::str() const {
  if (end == 0) return module;
  return module + "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

void keep_all(const PlannedModel& model) {
  for (const std::shared_ptr<nn::Module>& module : model.ptr()->modules()) {
    module->recompute(false);
    if (auto* sequential = module->as<nn::SequentialImpl>()) sequential->keep_all();
  }
}

Parts recompute_within(const PlannedModel& model, const Shape& input_shape, optim::Optimizer& optimizer, int64_t budget,
                       const PlanOptions& options) {
  const Model reported(model, input_shape, optimizer, options);
  int64_t peak = reported.before.peak;
  if (peak <= budget) return {};
  Parts candidates, chosen;
  for (const auto& [module, size] : reported.sequentials)
    for (size_t begin = 0; begin < size; ++begin)
      for (size_t end = begin + 1; end <= size; ++end) reported.add_if_it_saves({module, begin, end}, candidates);
  for (const std::string& module : reported.others) reported.add_if_it_saves({module}, candidates);
  const auto flops_per_byte = [](const RecomputedPart& part) { return part.flops / static_cast<double>(part.saved); };
  std::ranges::stable_sort(candidates, {}, flops_per_byte);
  for (const RecomputedPart& candidate : candidates) {
    const std::optional<Parts> more = with(chosen, candidate);
    if (!more) continue;
    const int64_t now = reported.report_with(*more).peak;
    if (now > peak) continue;  // an equal peak is accepted: the next part may then lower it
    peak = now;
    chosen = *more;
    if (peak <= budget) break;
  }
  if (peak > budget) {
    Parts all = recompute_all(model, input_shape, optimizer, options);
    if (reported.report().peak < peak) return all;
  }
  const int64_t allowed = std::max(peak, budget);
  for (size_t i = chosen.size(); i-- > 0;) {  // removes unneeded parts, first those with the most FLOPs per byte saved
    Parts fewer = chosen;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (reported.report_with(fewer).peak <= allowed) chosen = std::move(fewer);
  }
  reported.apply(chosen);
  return chosen;
}

Parts recompute_all(const PlannedModel& model, const Shape& input_shape, optim::Optimizer& optimizer,
                    const PlanOptions& options) {
  const Model reported(model, input_shape, optimizer, options);
  Parts others, best;
  for (const std::string& module : reported.others) reported.add_if_it_saves({module}, others);
  size_t most = 1;
  for (const auto& [module, size] : reported.sequentials) most = std::max(most, size);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t runs = 1; runs <= most; ++runs) {
    Parts parts = others;
    for (const auto& [module, size] : reported.sequentials)
      for (size_t i = 0, count = std::min(runs, size); i < count; ++i)
        parts.push_back({module, i * size / count, (i + 1) * size / count});
    const int64_t peak = reported.report_with(parts).peak;
    if (peak >= least) continue;
    least = peak;
    best = std::move(parts);
  }
  reported.apply(best);
  return best;
}

}  // namespace gradus
