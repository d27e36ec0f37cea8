// Optimizer steps over all parameters at once: they are cut into chunks that the threads share, and each chunk is
// computed a vector at a time by the formulas of core/optimizer_rules.h, half types through float. Parameters whose
// views differ in layout are NaiveBackend's.
#include <vector>

#include <gradus/backends/openmp/kernels.h>
#include <gradus/backends/openmp/openmp_backend.h>
#include <gradus/backends/openmp/simd/loops.h>
#include <gradus/core/observer.h>
#include <gradus/core/optimizer_rules.h>

namespace gradus {
namespace {

using namespace openmp_detail;

// Elements [begin, begin + count) of a parameter's memory.
struct Chunk {
  const ParameterViews* views;
  int64_t begin, count;
};

// True if all views of a parameter walk through memory in the same order, without gaps.
bool is_flat(const ParameterViews& views) {
  const Strides& p = views.parameter.strides;
  const auto strides_of = [&](const MutableView& state) { return state.data ? &state.strides : &p; };
  return StridedLoop<5>(views.parameter.shape, {&p, &views.gradient.strides, strides_of(views.states[0]),
                                                strides_of(views.states[1]), strides_of(views.states[2])})
      .all_contiguous();
}

// Elements in the type that they compute in: in place.
template <class T, class Rule>
void step_chunk(const Chunk& chunk, const rules::FullStep<Rule, T>& step) {
  StepArgs<T> args{
      chunk.count, chunk.views->parameter.as<T>() + chunk.begin, chunk.views->gradient.as<T>() + chunk.begin, {}};
  for (int k = 0; k < kMaxOptimizerStates; ++k)
    if (chunk.views->states[k].data) args.states[k] = chunk.views->states[k].as<T>() + chunk.begin;
  static_cast<const StepKernel<T, Rule>&>(kernels_of<T>(kernel_table()).steps).step(args, step);
}

// Half types: a block at a time through buffers of float.
template <class Rule>
void step_half_chunk(const Chunk& chunk, const rules::FullStep<Rule, float>& step) {
  const ParameterViews& views = *chunk.views;
  const DType dtype = views.parameter.dtype;
  float parameter[kBlock], gradient[kBlock], states[kMaxOptimizerStates][kBlock];
  for (int64_t i = chunk.begin; i < chunk.begin + chunk.count; i += kBlock) {
    const int64_t count = std::min(kBlock, chunk.begin + chunk.count - i);
    StepArgs<float> args{count, parameter, load_block(views.gradient.data, dtype, i, 1, count, gradient), {}};
    load_block(views.parameter.data, dtype, i, 1, count, parameter);
    for (int k = 0; k < kMaxOptimizerStates; ++k) {
      if (!views.states[k].data) continue;
      args.states[k] = states[k];
      load_block(views.states[k].data, dtype, i, 1, count, states[k]);
    }
    static_cast<const StepKernel<float, Rule>&>(kernel_table().f32.steps).step(args, step);
    store_block(parameter, views.parameter.data, dtype, i, 1, count);
    for (int k = 0; k < kMaxOptimizerStates; ++k)
      if (views.states[k].data) store_block(states[k], views.states[k].data, dtype, i, 1, count);
  }
}

}  // namespace

void OpenmpBackend::optimizer_step(std::span<const ParameterViews> parameters, const View& block,
                                   const OptimizerRule& rule) {
  static_assert(kMaxOptimizerStates == std::extent_v<decltype(StepArgs<float>::states)>);
  std::vector<Chunk> chunks;
  for (const ParameterViews& views : parameters) {
    if (!is_flat(views)) {
      NaiveBackend::optimizer_step({&views, 1}, block, rule);
      continue;
    }
    const int64_t total = views.parameter.numel();
    for (int64_t begin = 0; begin < total; begin += kGrain)
      chunks.push_back({&views, begin, std::min(kGrain, total - begin)});
  }
  // Chunks up to ends[i] from ends[i - 1] on are a thread's at a time: many small parameters make one piece of work.
  std::vector<size_t> ends;
  int64_t gathered = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    gathered += chunks[i].count;
    if (gathered < kGrain && i + 1 < chunks.size()) continue;
    ends.push_back(i + 1);
    gathered = 0;
  }
  std::visit(
      [&]<class Rule>(const Rule& known) {
        EventScope event(Rule::kName, "openmp", kernel_table().vectors, {&block});
        const auto entry = [&](int i) { return block.as<double>()[i * block.strides[0]]; };
        if (entry(StepBlock::found_inf) != 0) return;
        const rules::BlockValues<double> values{entry(StepBlock::step), entry(StepBlock::learning_rate),
                                                entry(StepBlock::gradient_scale), entry(StepBlock::momentum_product)};
        const auto single = rules::full_step<float>(known, values);
        const auto wide = rules::full_step<double>(known, values);
        parallel_for(static_cast<int64_t>(ends.size()), 1, [&](int64_t begin, int64_t end) {
          for (size_t i = begin > 0 ? ends[begin - 1] : 0; i < ends[end - 1]; ++i) {
            const Chunk& chunk = chunks[i];
            switch (chunk.views->parameter.dtype) {
              case DType::f32: step_chunk(chunk, single); break;
              case DType::f64: step_chunk(chunk, wide); break;
              default: step_half_chunk(chunk, single);
            }
          }
        });
      },
      static_cast<const rules::All<std::variant>&>(rule));
}

}  // namespace gradus
