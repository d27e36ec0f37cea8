#include <gradus/graph/passes/passes.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include <gradus/graph/memory_plan.h>
#include <gradus/graph/recorded_call.h>

namespace gradus::graph {
namespace {

constexpr size_t kLargeGradient = size_t{1} << 19;  // bytes; for smaller gradients a call of their own costs too much

using Calls = std::vector<std::unique_ptr<Call>>;
using Update = detail::RecordedCall<std::span<const ParameterViews>, const View&, const OptimizerRule&>;

size_t place(const Operand& operand) { return static_cast<size_t>(operand.buffer); }

/// Some of the parameters that a call updates, with their operands.
struct UpdatePart {
  std::vector<ParameterViews> parameters;
  std::vector<Operand> operands;

  std::unique_ptr<Call> call_like(const Update& whole) const {
    const auto& [all, block, rule] = whole.arguments();
    auto call = std::make_unique<Update>(whole.method(), parameters, block, rule);
    call->name = whole.name, call->parameters = whole.parameters;
    call->origin = whole.origin, call->operands = operands;
    call->operands.push_back(whole.operands.back());  // the block
    return call;
  }
};

/// For each buffer, whether it is a large gradient in use at the peak of memory. None if they are less than a twentieth
/// of the peak together.
std::vector<bool> gradients_at_peak(const Graph& graph) {
  const Peak peak = peak_of(graph);
  std::vector<bool> at_peak(graph.buffers().size());
  size_t bytes = 0;
  for (const auto& call : graph.calls()) {
    if (!dynamic_cast<const Update*>(call.get())) continue;
    for (const Operand& operand : call->operands) {
      if (operand.buffer < 0 || at_peak[place(operand)]) continue;
      const Buffer& buffer = graph.buffers()[place(operand)];
      if (buffer.external || buffer.bytes < kLargeGradient || buffer.first_use > peak.call) continue;
      at_peak[place(operand)] = buffer.last_use >= peak.call;
      bytes += at_peak[place(operand)] ? buffer.bytes : 0;
    }
  }
  if (bytes * 20 < peak.bytes) at_peak.assign(at_peak.size(), false);
  return at_peak;
}

/// Splits an update into one call for each parameter with such a gradient, and one for all others.
Calls split(const Update& whole, const std::vector<bool>& at_peak) {
  const std::vector<ParameterViews>& all = std::get<0>(whole.arguments());
  std::vector<UpdatePart> parts(1);  // the first one is for all others
  auto operand = whole.operands.begin();
  for (const ParameterViews& views : all) {
    std::vector<Operand> operands;
    for_each_operand(views, [&](const auto&) { operands.push_back(*operand++); });
    const bool early = std::any_of(operands.begin(), operands.end(),
                                   [&](const Operand& one) { return one.buffer >= 0 && at_peak[place(one)]; });
    UpdatePart& part = early ? parts.emplace_back() : parts.front();
    part.parameters.push_back(views);
    part.operands.insert(part.operands.end(), operands.begin(), operands.end());
  }
  Calls calls;
  for (const UpdatePart& part : parts)
    if (!part.parameters.empty()) calls.push_back(part.call_like(whole));
  return calls;
}

bool is_elementwise(const Call& call) {
  constexpr std::string_view kNames[] = {"unary", "unary_backward", "binary", "binary_scalar", "where"};
  return std::find(std::begin(kNames), std::end(kNames), call.name) != std::end(kNames);
}

}  // namespace

void remove_dead_code(Graph& graph) {
  std::vector<bool> wanted = graph.held();
  for (size_t i = 0; i < wanted.size(); ++i)
    if (graph.buffers()[i].external || graph.buffers()[i].result) wanted[i] = true;
  Calls calls = graph.take_calls();
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    const std::vector<Operand>& operands = (*call)->operands;
    const bool is_wanted = std::any_of(operands.begin(), operands.end(), [&](const Operand& operand) {
      return operand.buffer >= 0 && operand.is_written && wanted[place(operand)];
    });
    for (const Operand& operand : operands)
      if (is_wanted && operand.buffer >= 0) wanted[place(operand)] = true;
    if (!is_wanted) call->reset();
  }
  std::erase(calls, nullptr);
  graph.set_calls(std::move(calls));
}

void update_early(Graph& graph) {
  struct Placed {
    size_t behind;  // the number of unmoved calls that it must follow
    std::unique_ptr<Call> call;
  };
  const std::vector<bool> at_peak = gradients_at_peak(graph);
  std::vector<Placed> placed;
  std::vector<size_t> last_read(graph.buffers().size()), last_write(graph.buffers().size());  // as `behind`
  size_t staying = 0;
  const auto place_call = [&](std::unique_ptr<Call> call, bool early) {
    size_t behind = early ? 0 : ++staying;
    for (const Operand& operand : call->operands) {
      if (operand.buffer < 0) continue;
      behind = std::max(behind, last_write[place(operand)]);
      if (operand.is_written) behind = std::max(behind, last_read[place(operand)]);
    }
    for (const Operand& operand : call->operands) {
      if (operand.buffer < 0) continue;
      size_t& last = (operand.is_written ? last_write : last_read)[place(operand)];
      last = std::max(last, behind);
    }
    placed.push_back({behind, std::move(call)});
  };
  for (auto& call : graph.take_calls()) {
    const auto* const whole = dynamic_cast<const Update*>(call.get());
    Calls parts;
    if (whole && !whole->operands.empty()) parts = split(*whole, at_peak);
    else parts.push_back(std::move(call));
    // advance_step, which counts the steps, must stay before the update.
    const bool early = whole || parts[0]->name == std::string_view("advance_step");
    for (auto& part : parts) place_call(std::move(part), early);
  }
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.behind < b.behind; });
  Calls calls;
  for (Placed& one : placed) calls.push_back(std::move(one.call));
  graph.set_calls(std::move(calls));
}

void work_in_place(Graph& graph) {
  const std::vector<bool> held = graph.held();
  std::vector<int> instead(graph.buffers().size());  // the buffer that replaces each one
  std::iota(instead.begin(), instead.end(), 0);
  std::vector<int> last_use;
  for (const Buffer& buffer : graph.buffers()) last_use.push_back(buffer.last_use);
  for (size_t i = 0; i < graph.calls().size(); ++i) {
    Call& call = *graph.calls()[i];
    for (Operand& operand : call.operands)
      if (operand.buffer >= 0) operand.buffer = instead[place(operand)];
    if (!is_elementwise(call) || call.operands.back().buffer < 0) continue;
    Operand& result = call.operands.back();
    const Buffer& buffer = graph.buffers()[place(result)];
    const int number = static_cast<int>(i);
    if (buffer.external || buffer.result || held[place(result)] || buffer.first_use != number || result.offset != 0)
      continue;
    const auto fits = [&](const Operand& operand) {
      if (operand.buffer < 0 || operand.is_written || operand.buffer == result.buffer || operand.offset != 0)
        return false;
      const Buffer& other = graph.buffers()[place(operand)];
      const bool is_same = operand.layout.dtype == result.layout.dtype && operand.layout.shape == result.layout.shape &&
                           operand.layout.strides == result.layout.strides && other.bytes == buffer.bytes;
      // The call must not read the buffer through a second operand.
      const auto readers = std::count_if(call.operands.begin(), call.operands.end(),
                                         [&](const Operand& any) { return any.buffer == operand.buffer; });
      return is_same && readers == 1 && !other.external && !other.result && !held[place(operand)] &&
             last_use[place(operand)] == number;
    };
    const auto operand = std::find_if(call.operands.begin(), call.operands.end(), fits);
    if (operand == call.operands.end()) continue;
    last_use[place(*operand)] = last_use[place(result)];
    instead[place(result)] = operand->buffer;
    result.buffer = operand->buffer;
  }
  graph.set_calls(graph.take_calls());
}

void run_passes(Graph& graph, bool fuse) {
  remove_dead_code(graph);
  if (fuse) fuse_relu(graph);
  order_for_memory(graph);
  update_early(graph);
  order_for_memory(graph);
  work_in_place(graph);
  if (graph.device().is_cpu()) join_chains(graph);  // it relies on the caches of CPU cores
}

}  // namespace gradus::graph
