// Optimizer steps over all parameters in few launches. The formulas are in core/formulas/optimizer_rules.h.
// Layout: a parameter, its gradient and its states have one dense layout; Backend's default body processes others.
// Grid: x = blocks for all parameters, 1,024 elements of one parameter each (device/multi_tensor.cuh).  Block: 256
// threads; a thread updates four elements.  Deterministic: there are no sums.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/array/strided_loop.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/multi_tensor.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// The addresses of a parameter of type T. G is the type of its gradient, T or a half type; H that of its half copy.
template <class T, class G, class H>
struct Entry {
  T* parameter;
  const G* gradient;
  T* states[kMaxOptimizerStates];  // null where the rule has none
  H* half;                         // or null
};
constexpr int kPerThread = 4;
template <class T, class G, class H>
using Table = TensorTable<Entry<T, G, H>, 62, kPerThread * kThreads>;

// Returns true if all addresses are aligned as vectors of four elements.
template <class T, class G, class H>
__device__ bool are_aligned(const Entry<T, G, H>& entry) {
  const auto all = [](auto* data) { return reinterpret_cast<uintptr_t>(data) % (kPerThread * sizeof(*data)) == 0; };
  bool result = all(entry.parameter) && all(entry.gradient) && all(entry.half);
#pragma unroll
  for (int k = 0; k < kMaxOptimizerStates; ++k) result = result && all(entry.states[k]);
  return result;
}

// The StepBlock: doubles, `step` elements apart.
struct Block {
  const double* data;
  int64_t step;
  __device__ double operator[](int i) const { return data[i * step]; }
};

// Five resident blocks a multiprocessor limit a thread to 48 registers; without the limit the compiler uses 51.
template <class T, class G, class H, class Rule>
__global__ void __launch_bounds__(kThreads, 5) step_kernel(Table<T, G, H> table, Block block, Rule rule) {
  using C = compute_t<T>;
  wait_for_grid();
  launch_dependents();
  int64_t begin, end;
  const Entry<T, G, H>& entry = table.part_of_block(begin, end);
  // In a whole block, the elements of a thread are a vector of neighbours; otherwise they are kThreads apart, so that
  // all threads have nearly the same number.
  const bool whole = begin + kPerThread * kThreads == end && are_aligned(entry);
  const int64_t first = begin + (whole ? kPerThread : 1) * static_cast<int>(threadIdx.x);
  // All loads of a thread are in flight before it waits for the constants, and before it stores anything.
  Vec<T, kPerThread> parameters, states[kMaxOptimizerStates] = {};
  Vec<G, kPerThread> gradients;
  if (whole) {
    parameters = load<kPerThread>(entry.parameter + first), gradients = load<kPerThread>(entry.gradient + first);
#pragma unroll
    for (int k = 0; k < kMaxOptimizerStates; ++k)
      if (entry.states[k]) states[k] = load<kPerThread>(entry.states[k] + first);
  } else {
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      const int64_t i = first + e * kThreads;
      if (i >= end) break;
      parameters.value[e] = entry.parameter[i], gradients.value[e] = entry.gradient[i];
#pragma unroll
      for (int k = 0; k < kMaxOptimizerStates; ++k)
        if (entry.states[k]) states[k].value[e] = entry.states[k][i];
    }
  }
  if (block[StepBlock::found_inf] != 0) return;
  // The constants need costly arithmetic in float64, so one thread computes them for the block.
  __shared__ rules::FullStep<Rule, C> shared;
  if (threadIdx.x == 0)
    shared = rules::full_step<C>(
        rule, rules::BlockValues<double>{block[StepBlock::step], block[StepBlock::learning_rate],
                                         block[StepBlock::gradient_scale], block[StepBlock::momentum_product]});
  __syncthreads();
  const rules::FullStep<Rule, C> step = shared;
  Vec<H, kPerThread> halves;
#pragma unroll
  for (int e = 0; e < kPerThread; ++e) {
    if (!whole && first + e * kThreads >= end) break;
    C parameter = static_cast<C>(parameters.value[e]), state[kMaxOptimizerStates];
#pragma unroll
    for (int k = 0; k < kMaxOptimizerStates; ++k) state[k] = static_cast<C>(states[k].value[e]);
    step(parameter, static_cast<C>(gradients.value[e]), state[0], state[1], state[2]);
    parameters.value[e] = static_cast<T>(parameter);
    if constexpr (std::is_same_v<T, float>) halves.value[e] = static_cast<H>(parameter);
#pragma unroll
    for (int k = 0; k < kMaxOptimizerStates; ++k) states[k].value[e] = static_cast<T>(state[k]);
  }
  const auto write = [&](auto* to, const auto& vector) {
    if (!to) return;
    if (whole) return store(to + first, vector);
#pragma unroll
    for (int e = 0; e < kPerThread; ++e)
      if (first + e * kThreads < end) to[first + e * kThreads] = vector.value[e];
  };
  write(entry.parameter, parameters);
  if constexpr (std::is_same_v<T, float>) write(entry.half, halves);
#pragma unroll
  for (int k = 0; k < kMaxOptimizerStates; ++k) write(entry.states[k], states[k]);
}

__global__ void advance_kernel(double* block, int64_t step) {
  launch_dependents();
  if (block[StepBlock::found_inf * step] == 0) block[StepBlock::step * step] += 1;
}

// The type H for a parameter: that of its half copy, or any half type if it has none.
DType half_type(const ParameterViews& views) { return views.half ? views.half.dtype : DType::bf16; }

// Returns true if there is a kernel for the types, and one running index can address all views.
bool flat(const ParameterViews& views) {
  const DType p_type = views.parameter.dtype, g_type = views.gradient.dtype, h_type = half_type(views);
  const bool has_kernel = g_type == p_type ? !views.half || p_type == DType::f32 : g_type == h_type;
  return has_kernel && fill_memory_alike(views);
}

template <class T, class G, class H>
void add_flat(Table<T, G, H>& table, const ParameterViews& views) {
  if (views.parameter.dtype != dtype_of<T> || views.gradient.dtype != dtype_of<G> || half_type(views) != dtype_of<H> ||
      !flat(views) || views.parameter.numel() == 0)
    return;
  Entry<T, G, H> entry{views.parameter.as<T>(), views.gradient.as<G>(), {}, views.half.as<H>()};
  for (int k = 0; k < kMaxOptimizerStates; ++k) entry.states[k] = views.states[k].as<T>();
  table.add(entry, views.parameter.numel());
}

}  // namespace

void CudaBackend::advance_step(const MutableView& block) {
  EventScope event("advance_step", "cuda", "fused", {});
  const Launch launch(block.device);
  launch(advance_kernel, 1, 1, block.as<double>(), block.strides[0]);
}

void CudaBackend::optimizer_step(std::span<const ParameterViews> parameters, const View& block,
                                 const OptimizerRule& rule) {
  rule.visit([&]<class Rule>(const Rule& known) {
    EventScope event(known.kName, "cuda", "multi_tensor", {&block});
    const Launch launch(block.device);
    const auto step = [&]<class T, class G, class H>() {
      static_assert(sizeof(Table<T, G, H>) + sizeof(Block) + sizeof(Rule) <= 4096);
      for_each_table<Table<T, G, H>>(parameters, add_flat<T, G, H>, [&](const Table<T, G, H>& table) {
        launch.with({.early = true}, step_kernel<T, G, H, Rule>, table.blocks, kThreads, table,
                    Block{block.as<double>(), block.strides[0]}, known);
      });
    };
    for_each_floating([&]<class T>() { step.template operator()<T, T, BFloat16>(); });
    step.template operator()<float, float, Half>();
    step.template operator()<float, BFloat16, BFloat16>();
    step.template operator()<float, Half, Half>();
  });
  if (const auto rest = not_flat(parameters, flat); !rest.empty()) Backend::optimizer_step(rest, block, rule);
}

}  // namespace gradus
