#include <gradus/graph/passes/passes.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include <gradus/graph/memory_plan.h>
#include <gradus/graph/recorded_call.h>

namespace gradus::graph {
namespace {

constexpr size_t kLargeGradient = size_t{1} << 19;  // bytes; smaller gradients are not worth an additional call

using Update = detail::RecordedCall<std::span<const ParameterViews>, const View&, const OptimizerRule&>;

size_t place(const Operand& operand) { return static_cast<size_t>(operand.buffer); }

/// A subset of the parameters that an optimizer's call updates, with the operands of this subset.
struct UpdatePart {
  std::vector<ParameterViews> parameters;
  std::vector<Operand> operands;

  std::unique_ptr<Call> call_like(const Update& whole) const {
    const auto& [all, block, rule] = whole.arguments();
    auto call = std::make_unique<Update>(whole.method(), parameters, block, rule);
    call->name = whole.name, call->parameters = whole.parameters;
    call->origin = whole.origin, call->operands = operands;
    call->operands.push_back(whole.operands.back());  // the array with the learning rate and the step count
    return call;
  }
};

/// For each buffer, whether it is a large gradient that is in use at the memory peak. All false if these gradients
/// together are less than a twentieth of the peak.
std::vector<bool> gradients_at_peak(const Graph& graph) {
  const Peak peak = peak_of(graph);
  std::vector<bool> at_peak(graph.buffers().size());
  size_t bytes = 0;
  for (const auto& call : graph.calls()) {
    if (!dynamic_cast<const Update*>(call.get())) continue;
    for_each_buffer(*call, [&](const Operand&, size_t at) {
      const Buffer& buffer = graph.buffers()[at];
      if (at_peak[at] || buffer.external || buffer.bytes < kLargeGradient) return;
      at_peak[at] = buffer.first_use <= peak.call && buffer.last_use >= peak.call;
      bytes += at_peak[at] ? buffer.bytes : 0;
    });
  }
  if (bytes * 20 < peak.bytes) at_peak.assign(at_peak.size(), false);
  return at_peak;
}

/// Splits an update into one call for each parameter that has a gradient in `at_peak`, and one call for the other
/// parameters.
Calls split(const Update& whole, const std::vector<bool>& at_peak) {
  const std::vector<ParameterViews>& all = std::get<0>(whole.arguments());
  std::vector<UpdatePart> parts(1);  // parts[0] is for the other parameters
  auto operand = whole.operands.begin();
  for (const ParameterViews& views : all) {
    std::vector<Operand> operands;
    for_each_operand(views, [&](const auto&) { operands.push_back(*operand++); });
    const bool early =
        std::ranges::any_of(operands, [&](const Operand& one) { return one.buffer >= 0 && at_peak[place(one)]; });
    UpdatePart& part = early ? parts.emplace_back() : parts.front();
    part.parameters.push_back(views);
    part.operands.insert(part.operands.end(), operands.begin(), operands.end());
  }
  Calls calls;
  for (const UpdatePart& part : parts)
    if (!part.parameters.empty()) calls.push_back(part.call_like(whole));
  return calls;
}

/// For each call i, successors[i] are the calls that must come later: calls that read what call i writes, and calls
/// that write what call i reads or writes. waits_for[i] is the number of calls that must come before call i.
struct Dependencies {
  explicit Dependencies(const Graph& graph) : successors(graph.calls().size()), waits_for(graph.calls().size()) {
    struct Uses {
      std::vector<size_t> readers;  // calls that have read the buffer since its last write
      size_t writer = SIZE_MAX;     // the last call that wrote the buffer; SIZE_MAX if none did
    };
    std::vector<Uses> buffers(graph.buffers().size());
    for (size_t i = 0; i < graph.calls().size(); ++i)
      for_each_buffer(*graph.calls()[i], [&](const Operand& operand, size_t at) {
        Uses& uses = buffers[at];
        if (uses.writer != SIZE_MAX) add(uses.writer, i);
        if (!operand.is_written) return uses.readers.push_back(i);
        for (size_t reader : uses.readers) add(reader, i);
        uses.readers.clear();
        uses.writer = i;
      });
  }
  void add(size_t before, size_t after) {
    if (before == after) return;
    successors[before].push_back(after);
    ++waits_for[after];
  }
  std::vector<std::vector<size_t>> successors;
  std::vector<size_t> waits_for;
};

/// How the memory in use changes if a certain call is the next one.
struct Effect {
  int64_t used, peak;      // bytes in use before the call, and their peak so far
  int64_t fresh, scratch;  // bytes of buffers that no earlier call uses, and of the call's workspace
  int64_t freed;           // bytes of buffers that no later call uses
  int64_t peak_with(int64_t more) const { return std::max(peak, used + fresh + scratch + more); }
};
/// The next call is the ready call with the smallest rank; if several have this rank, the first of them in the graph.
/// The ranks are: the memory peak up to this call; the same if the call had a quarter more workspace; and by how much
/// the memory in use grows.
using Rank = int64_t (*)(const Effect& effect);
constexpr Rank kRanks[] = {[](const Effect& effect) { return effect.peak_with(0); },
                           [](const Effect& effect) { return effect.peak_with(effect.scratch / 4); },
                           [](const Effect& effect) { return effect.fresh - effect.freed; }};

std::vector<size_t> order_by(Rank rank, const Graph& graph, Dependencies dependencies) {
  const size_t count = graph.calls().size();
  std::vector<std::vector<size_t>> buffers_of(count);
  std::vector<size_t> uses(graph.buffers().size());  // number of calls not yet ordered that use the buffer
  std::vector<bool> lives(graph.buffers().size());
  std::vector<size_t> last_call(graph.buffers().size(), count);  // the last call that was seen to use the buffer
  for (size_t i = 0; i < count; ++i)
    for_each_buffer(*graph.calls()[i], [&](const Operand&, size_t at) {
      if (!graph.buffers()[at].external && std::exchange(last_call[at], i) != i)
        buffers_of[i].push_back(at), ++uses[at];
    });
  int64_t used = 0, peak = 0;
  const auto effect_of = [&](size_t call) {
    Effect effect{used, peak, 0, static_cast<int64_t>(graph.calls()[call]->scratch_bytes), 0};
    for (size_t at : buffers_of[call]) {
      const Buffer& buffer = graph.buffers()[at];
      if (!lives[at]) effect.fresh += static_cast<int64_t>(buffer.bytes);
      if (uses[at] == 1 && !buffer.result) effect.freed += static_cast<int64_t>(buffer.bytes);
    }
    return effect;
  };

  std::vector<size_t> order, ready;
  for (size_t i = 0; i < count; ++i)
    if (dependencies.waits_for[i] == 0) ready.push_back(i);
  while (!ready.empty()) {
    const auto next = std::ranges::min_element(
        ready, [&](size_t a, size_t b) { return std::pair(rank(effect_of(a)), a) < std::pair(rank(effect_of(b)), b); });
    const size_t call = *next;
    const Effect effect = effect_of(call);
    peak = effect.peak_with(0), used += effect.fresh - effect.freed;
    ready.erase(next);
    order.push_back(call);
    for (size_t buffer : buffers_of[call]) lives[buffer] = true, --uses[buffer];
    for (size_t successor : dependencies.successors[call])
      if (--dependencies.waits_for[successor] == 0) ready.push_back(successor);
  }
  return order;
}

bool is_elementwise(const Call& call) {
  constexpr std::string_view kNames[] = {"unary", "unary_backward", "binary", "binary_scalar", "where"};
  return std::find(std::begin(kNames), std::end(kNames), call.name) != std::end(kNames);
}

}  // namespace

void remove_dead_code(Graph& graph) {
  std::vector<bool> wanted = graph.inner();
  wanted.flip();
  Calls calls = graph.take_calls();
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    const std::vector<Operand>& operands = (*call)->operands;
    const bool is_wanted = std::ranges::any_of(operands, [&](const Operand& operand) {
      return operand.buffer >= 0 && operand.is_written && wanted[place(operand)];
    });
    if (is_wanted) {
      for_each_buffer(**call, [&](const Operand&, size_t at) { wanted[at] = true; });
    } else {
      call->reset();
    }
  }
  std::erase(calls, nullptr);
  graph.set_calls(std::move(calls));
}

void order_for_memory(Graph& graph) {
  const Dependencies dependencies(graph);
  size_t least = plan_memory(graph).bytes / 20 * 19 + 1;
  std::vector<size_t> best;
  for (const Rank rank : kRanks) {
    const std::vector<size_t> order = order_by(rank, graph, dependencies);
    graph.reorder(order);
    const size_t bytes = plan_memory(graph).bytes;
    std::vector<size_t> back(order.size());
    for (size_t i = 0; i < order.size(); ++i) back[order[i]] = i;
    graph.reorder(back);
    if (bytes < least) least = bytes, best = order;
  }
  if (!best.empty()) graph.reorder(best);
}

void update_early(Graph& graph) {
  struct Placed {
    size_t follows;  // the call must come after the first `follows` calls that are not moved
    std::unique_ptr<Call> call;
  };
  const std::vector<bool> at_peak = gradients_at_peak(graph);
  std::vector<Placed> placed;
  // For each buffer, the largest `follows` of the calls so far that read it, and of those that write it.
  std::vector<size_t> last_read(graph.buffers().size()), last_write(graph.buffers().size());
  size_t staying = 0;
  const auto place_call = [&](std::unique_ptr<Call> call, bool early) {
    size_t follows = early ? 0 : ++staying;
    for_each_buffer(*call, [&](const Operand& operand, size_t at) {
      follows = std::max({follows, last_write[at], operand.is_written ? last_read[at] : 0});
    });
    for_each_buffer(*call, [&](const Operand& operand, size_t at) {
      size_t& last = (operand.is_written ? last_write : last_read)[at];
      last = std::max(last, follows);
    });
    placed.push_back({follows, std::move(call)});
  };
  for (auto& call : graph.take_calls()) {
    const auto* const whole = dynamic_cast<const Update*>(call.get());
    Calls parts;
    if (whole && !whole->operands.empty()) parts = split(*whole, at_peak);
    else parts.push_back(std::move(call));
    // advance_step, which counts the steps, must stay before the update, so it moves to the front like the update.
    const bool early = whole || parts[0]->name == std::string_view("advance_step");
    for (auto& part : parts) place_call(std::move(part), early);
  }
  std::ranges::stable_sort(placed, {}, &Placed::follows);
  Calls calls;
  for (Placed& one : placed) calls.push_back(std::move(one.call));
  graph.set_calls(std::move(calls));
}

void work_in_place(Graph& graph) {
  const std::vector<bool> inner = graph.inner();
  std::vector<int> instead(graph.buffers().size());  // instead[i] is the buffer that replaces buffer i
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
    if (!inner[place(result)] || buffer.first_use != number) continue;
    const auto fits = [&](const Operand& operand) {
      // No other operand of the call may use the buffer, because the result overwrites it.
      const auto users = std::ranges::count(call.operands, operand.buffer, &Operand::buffer);
      return operand.offset == result.offset && is_same(operand.layout, result.layout) && users == 1 &&
             inner[place(operand)] && graph.buffers()[place(operand)].bytes == buffer.bytes &&
             last_use[place(operand)] == number;
    };
    const auto operand = std::ranges::find_if(call.operands, fits);
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
  if (graph.device().is_cpu()) join_chains(graph);  // a chain keeps its blocks in the cache of a CPU core
}

}  // namespace gradus::graph
