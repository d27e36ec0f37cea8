// Merges consecutive element-wise calls into one call, a chain, which runs all of them on one block of elements after
// the other. The threads are started once for the chain. An intermediate result that no other call reads is written
// into a small block of memory of the thread, which stays in the cache. A block of elements has the size of the chunks
// into which the kernels divide their work anyway, so the results are the same.
#include <algorithm>

#include <gradus/core/parallel/parallel.h>
#include <gradus/graph/passes/passes.h>
#include <gradus/graph/recorded_call.h>

namespace gradus::graph {
namespace {

constexpr int64_t kBlock = 16384;            // elements; a multiple of kGrain of backends/openmp/simd/loops.h
constexpr int64_t kWorthwhile = 4 * kBlock;  // elements; smaller operands stay in the cache without a chain
struct alignas(64) Block {
  char bytes[kBlock * 8];  // for elements of the largest type, which has 8 bytes
};
/// Runs a call on elements [begin, end) of its operands. blocks[i] is the number of the block in `scratch` that
/// contains operand i, or -1 if the operand is an array in memory.
using Part =
    std::function<void(Backend& backend, const std::vector<int>& blocks, Block* scratch, int64_t begin, int64_t end)>;

/// This thread's memory for `count` blocks. A vector holds it, because the runtime's allocator would count it as the
/// memory of an array.
Block* scratch_for(size_t count) {
  static thread_local std::vector<Block> memory;
  memory.resize(std::max(memory.size(), count));
  return memory.data();
}

bool is_one_element(const StridedLayout& layout) {
  for (int i = 0; i < layout.ndim(); ++i)
    if (layout.shape[i] > 1 && layout.strides[i] != 0) return false;
  return true;
}

/// A function that runs a part of `call` if this is a call of `method`, else null. Each operand of the call must be
/// dense or a single element that is repeated.
template <class... Params>
Part part_by(void (Backend::*method)(Params...), const Call& call) {
  const auto* const recorded = dynamic_cast<const detail::RecordedCall<Params...>*>(&call);
  if (!recorded || recorded->method() != method) return nullptr;
  return [recorded](Backend& backend, const std::vector<int>& blocks, Block* scratch, int64_t begin, int64_t end) {
    auto arguments = recorded->arguments();
    auto block = blocks.begin();
    const auto narrow_to_part = [&](auto& view) {
      const bool one = is_one_element(view);
      const auto offset = one ? 0 : static_cast<size_t>(begin) * size_of(view.dtype);
      char* const data = static_cast<char*>(const_cast<void*>(static_cast<const void*>(view.data)));
      view.data = *block < 0 ? data + offset : scratch[*block].bytes;
      view.shape = {end - begin}, view.strides = Dims::filled(1, one ? 0 : 1);
      ++block;
    };
    std::apply(
        [&](auto&... all) {
          (for_each_operand(all, narrow_to_part), ...);
          (backend.*recorded->method())(all...);
        },
        arguments);
  };
}
Part part_of(const Call& call) {
  for (Part part : {part_by(&Backend::unary, call), part_by(&Backend::unary_backward, call),
                    part_by(&Backend::binary, call), part_by(&Backend::where, call)})
    if (part) return part;
  return part_by(&Backend::binary_scalar, call);
}

class Chain final : public Call {
 public:
  /// own[i] is true if buffer i is used only by these calls, so that it can be a block in `scratch`.
  Chain(Calls calls, const std::vector<bool>& own)
      : calls_(std::move(calls)), numel_(calls_.front()->operands.back().layout.numel()) {
    name = "chain", origin = calls_.front()->origin;
    std::vector<int> block_of(own.size(), -1);
    for (const auto& call : calls_) {
      std::vector<int>& blocks = blocks_.emplace_back();
      for (const Operand& operand : call->operands) {
        blocks.push_back(-1);
        operands.push_back(operand);
        if (!own[static_cast<size_t>(operand.buffer)]) continue;
        int& block = block_of[static_cast<size_t>(operand.buffer)];
        if (block < 0) block = static_cast<int>(count_++);
        blocks.back() = block;
        operands.back().buffer = -1;
      }
      parts_.push_back(part_of(*call));
    }
  }
  void run(Backend& backend) const override {
    parallel_for(numel_, kBlock, [&](int64_t begin, int64_t end) {
      Block* const scratch = scratch_for(count_);
      for (size_t i = 0; i < parts_.size(); ++i) parts_[i](backend, blocks_[i], scratch, begin, end);
    });
  }
  void visit(const std::function<void(Place)>& use) override {
    for (const auto& call : calls_) call->visit(use);
  }

 private:
  const Calls calls_;
  std::vector<Part> parts_;
  std::vector<std::vector<int>> blocks_;  // for each call and operand, the number of the operand's block, or -1
  size_t count_ = 0;                      // number of blocks
  const int64_t numel_;
};

/// Returns true if the call can be part of a chain: it is element-wise, its result is large and dense, and each operand
/// has the result's strides or repeats a single element.
bool is_flat(const Call& call) {
  if (!part_of(call)) return false;
  const StridedLayout& result = call.operands.back().layout;
  return result.numel() >= kWorthwhile && is_dense(result) &&
         std::ranges::all_of(call.operands, [&](const Operand& operand) {
           return operand.layout.strides == result.strides || is_one_element(operand.layout);
         });
}

/// Returns true if the call can be added to the chain `others`: it has as many elements, it shares a buffer with them,
/// and if one of the calls writes a buffer, all of them use it with the same offset and layout.
bool joins(const Call& call, const Calls& others) {
  if (call.operands.back().layout.numel() != others.back()->operands.back().layout.numel()) return false;
  bool shares = false;
  for (const auto& other : others)
    for (const Operand& before : other->operands)
      for (const Operand& operand : call.operands) {
        if (before.buffer != operand.buffer) continue;
        const bool is_equal = before.offset == operand.offset && is_same(before.layout, operand.layout);
        if ((before.is_written || operand.is_written) && !is_equal) return false;
        shares = true;
      }
  return shares;
}

}  // namespace

void join_chains(Graph& graph) {
  const auto count_uses = [&](const Calls& calls) {
    std::vector<size_t> uses(graph.buffers().size());
    for (const auto& call : calls) {
      for_each_buffer(*call, [&](const Operand&, size_t at) { ++uses[at]; });
    }
    return uses;
  };
  const std::vector<size_t> uses = count_uses(graph.calls());
  const std::vector<bool> inner = graph.inner();
  Calls calls, chain;
  const auto end_chain = [&] {
    if (chain.size() > 1) {
      const std::vector<size_t> inside = count_uses(chain);
      std::vector<bool> own;
      for (size_t i = 0; i < uses.size(); ++i) own.push_back(inside[i] == uses[i] && inner[i]);
      calls.push_back(std::make_unique<Chain>(std::move(chain), own));
    } else {
      std::move(chain.begin(), chain.end(), std::back_inserter(calls));
    }
    chain.clear();
  };
  for (auto& call : graph.take_calls()) {
    const bool flat = is_flat(*call);
    if (!chain.empty() && !(flat && joins(*call, chain))) end_chain();
    (flat ? chain : calls).push_back(std::move(call));
  }
  end_chain();
  graph.set_calls(std::move(calls));
}

}  // namespace gradus::graph
