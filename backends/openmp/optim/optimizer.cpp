// Optimizer steps for all parameters at once. The parameters are divided into chunks, which the threads share. Each
// chunk is computed in vectors by the formulas of core/formulas/optimizer_rules.h; half types are converted to float.
// NaiveBackend updates parameters whose views have different layouts.
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/core/array/strided_loop.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/runtime/observer.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// Elements [begin, begin + count) of a parameter, in memory order.
struct Chunk {
  const ParameterViews* views;
  int64_t begin, count;
};

// Updates a chunk block by block in the type of the computation: in place or, for half types, in buffers.
template <class T, class Rule>
void step_chunk(const Chunk& chunk, const rules::FullStep<Rule, T>& step) {
  const ParameterViews& views = *chunk.views;
  T buffers[2 + kMaxOptimizerStates][kBlock];
  for (int64_t i = chunk.begin; i < chunk.begin + chunk.count; i += kBlock) {
    const int64_t count = std::min(kBlock, chunk.begin + chunk.count - i);
    const auto block = [&](const View& view, int buffer) {
      return const_cast<T*>(load_block<T>(view, i, 1, count, buffers[buffer]));
    };
    T *const parameter = block(views.parameter, 0), *states[kMaxOptimizerStates] = {};
    for (int k = 0; k < kMaxOptimizerStates; ++k)
      if (views.states[k].data) states[k] = block(views.states[k], 2 + k);
    const StepKernel<T, Rule>& kernel = kernels_of<T>(kernel_table()).steps;
    kernel.step(step, count, parameter, block(views.gradient, 1), states);
    if (views.half) store_block(parameter, views.half, i, 1, count);
    if (views.parameter.dtype == dtype_of<T>) continue;
    store_block(parameter, views.parameter, i, 1, count);
    for (int k = 0; k < kMaxOptimizerStates; ++k)
      if (states[k]) store_block(states[k], views.states[k], i, 1, count);
  }
}

}  // namespace

void OpenmpBackend::optimizer_step(std::span<const ParameterViews> parameters, const View& block,
                                   const OptimizerRule& rule) {
  static_assert(kMaxOptimizerStates == 3, "optimizer_kernel.h");
  std::vector<Chunk> chunks;
  for (const ParameterViews& views : parameters) {
    if (!fill_memory_alike(views)) {
      NaiveBackend::optimizer_step({&views, 1}, block, rule);
      continue;
    }
    const int64_t total = views.parameter.numel();
    for (int64_t begin = 0; begin < total; begin += kGrain)
      chunks.push_back({&views, begin, std::min(kGrain, total - begin)});
  }
  rule.visit([&]<class Rule>(const Rule& known) {
    EventScope event(Rule::kName, "openmp", kernel_table().vectors, {&block});
    const auto entry = [&](int i) { return block.as<double>()[i * block.strides[0]]; };
    if (entry(StepBlock::found_inf) != 0) return;
    const rules::BlockValues<double> values{entry(StepBlock::step), entry(StepBlock::learning_rate),
                                            entry(StepBlock::gradient_scale), entry(StepBlock::momentum_product)};
    const auto single = rules::full_step<float>(known, values);
    const auto wide = rules::full_step<double>(known, values);
    parallel_each(static_cast<int64_t>(chunks.size()), 1, [&](int64_t i) {
      if (chunks[i].views->parameter.dtype == DType::f64) step_chunk(chunks[i], wide);
      else step_chunk(chunks[i], single);
    });
  });
}

}  // namespace gradus
