// Optimizer steps over all parameters in few launches. The formulas are in core/formulas/optimizer_rules.h.
// Layout: a parameter, its gradient and its states have the same dense layout; the default body of the operator in
// Backend updates the other parameters.
// Grid: x = blocks for all parameters, 1,024 elements of one parameter each.  Block: 256 threads; a thread updates four
// elements.  Deterministic: there are no sums.
//
// Loss scaling over all gradients in few launches: g *= factor, and found_inf = 1 if any g is inf or NaN. The formula
// of the scale is move_scale in core/kernel_args.h.
// Layout: gradients whose elements a single running index can address; the default body of Backend processes others.
// Grid: x = blocks for all gradients, 2,048 elements of one gradient each.  Block: 256 threads; a thread scales eight
// elements.  Deterministic: there are no sums.
#include <iterator>
#include <span>
#include <vector>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/array/strided_loop.h>
#include <gradus/core/formulas/optimizer_rules.h>
#include <gradus/core/kernel_args.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/vec.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

// ---- many tensors in a launch: a block processes kPerBlock elements of one tensor ----

// Up to kMaxTensors tensors as a kernel argument; an Entry holds the addresses of one tensor. All arguments of a
// kernel together must fit in 4 KiB.
template <class Entry, int kMaxTensors, int64_t kPerBlock>
struct TensorTable {
  struct Tensor {
    Entry entry;
    int64_t numel;
    uint32_t first_block;
  };
  Tensor tensors[kMaxTensors];
  int count = 0;
  uint32_t blocks = 0;  // number of blocks of the grid

  void add(const Entry& entry, int64_t numel) {
    tensors[count++] = {entry, numel, blocks};
    blocks += u32(ceil_div(numel, kPerBlock));
  }
  // Returns the tensor that this block processes, and the range [begin, end) of its elements.
  __device__ const Entry& part_of_block(int64_t& begin, int64_t& end) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (tensors[middle].first_block <= blockIdx.x) low = middle;
      else high = middle - 1;
    }
    begin = static_cast<int64_t>(blockIdx.x - tensors[low].first_block) * kPerBlock;
    end = min(begin + kPerBlock, tensors[low].numel);
    return tensors[low].entry;
  }
};

// Distributes tensors over tables and calls launch(table) for each table. add(table, tensor) adds or skips a tensor.
template <class Table, class Tensors, class Add, class Launch>
void for_each_table(const Tensors& tensors, Add&& add, Launch&& launch) {
  Table table;
  for (const auto& tensor : tensors) {
    if (table.count == std::ssize(table.tensors)) launch(table), table = {};
    add(table, tensor);
  }
  if (table.blocks > 0) launch(table);
}

// Calls f.operator()<T>() for each type that a parameter can have.
template <class F>
void for_each_floating(F&& f) {
  f.template operator()<float>(), f.template operator()<double>();
  f.template operator()<Half>(), f.template operator()<BFloat16>();
}

// The tensors for which flat() returns false: a single running index cannot address their elements. The default body of
// the operator in Backend processes these tensors.
template <class Tensor, class Flat>
std::vector<Tensor> not_flat(std::span<const Tensor> tensors, Flat&& flat) {
  std::vector<Tensor> rest;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(rest), [&](const Tensor& t) { return !flat(t); });
  return rest;
}

// ---- optimizer steps ----

// The addresses of a parameter of type T. G is the type of its gradient (T or a half type), H the type of its half
// copy.
template <class T, class G, class H>
struct Entry {
  T* parameter;
  const G* gradient;
  T* states[kMaxOptimizerStates];  // null where the rule has no such state
  H* half;                         // null if there is no half copy
};
constexpr int kPerThread = 4;
template <class T, class G, class H>
using Table = TensorTable<Entry<T, G, H>, 62, kPerThread * kThreads>;

// Returns true if all addresses are aligned for vectors of four elements.
template <class T, class G, class H>
__device__ bool are_aligned(const Entry<T, G, H>& entry) {
  const auto all = [](auto* data) { return reinterpret_cast<uintptr_t>(data) % (kPerThread * sizeof(*data)) == 0; };
  bool result = all(entry.parameter) && all(entry.gradient) && all(entry.half);
#pragma unroll
  for (int k = 0; k < kMaxOptimizerStates; ++k) result = result && all(entry.states[k]);
  return result;
}

// The values of the StepBlock (core/kernel_args.h): doubles that are `step` elements apart.
struct Block {
  const double* data;
  int64_t step;
  __device__ double operator[](int i) const { return data[i * step]; }
};

// With five resident blocks per multiprocessor, a thread may use 48 registers; without this limit the compiler uses 51.
template <class T, class G, class H, class Rule>
__global__ void __launch_bounds__(kThreads, 5) step_kernel(Table<T, G, H> table, Block block, Rule rule) {
  using C = compute_t<T>;
  wait_for_grid();
  launch_dependents();
  int64_t begin, end;
  const Entry<T, G, H>& entry = table.part_of_block(begin, end);
  // If a block has its full number of elements and all addresses are aligned, the elements of a thread are a vector of
  // neighbours. Otherwise they are kThreads apart, so that all threads have nearly the same number of elements.
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
  // One thread computes the constants for the block, because they need slow arithmetic in float64.
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

// The type H of a parameter's half copy, or any half type if the parameter has no half copy.
DType half_type(const ParameterViews& views) { return views.half ? views.half.dtype : DType::bf16; }

// Returns true if there is a kernel for these types, and a single running index can address the elements of all views.
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

// ---- loss scaling ----

namespace {

template <class T>
using GradientTable = TensorTable<T*, 128, 2048>;

// Several threads may find an inf or NaN. All of them store 1, so their order does not matter.
template <class T>
__global__ void __launch_bounds__(kThreads)
    unscale_kernel(GradientTable<T> table, const double* factor, double* found_inf) {
  using C = compute_t<T>;
  int64_t begin, end;
  T* data = table.part_of_block(begin, end);
  const C scale = factor ? static_cast<C>(*factor) : C(1);
  bool finite = true;
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const C number = static_cast<C>(data[i]);
    finite = finite && isfinite(number);
    if (factor) data[i] = static_cast<T>(number * scale);
  }
  if (!finite) *found_inf = 1;
}

__global__ void update_kernel(double* block, int64_t step, ScaleRule rule) { move_scale(block, step, rule); }

bool is_contiguous(const MutableView& view) { return StridedLoop<1>(view.shape, {&view.strides}).all_contiguous(); }

}  // namespace

void CudaBackend::unscale(std::span<const MutableView> gradients, const View& factor, const MutableView& found_inf) {
  {
    EventScope event("unscale", "cuda", "multi_tensor", {&found_inf});
    const Launch launch(found_inf.device);
    for_each_floating([&]<class T>() {
      static_assert(sizeof(GradientTable<T>) + 2 * sizeof(void*) <= 4096);
      for_each_table<GradientTable<T>>(
          gradients,
          [](GradientTable<T>& table, const MutableView& gradient) {
            if (gradient.dtype == dtype_of<T> && is_contiguous(gradient) && gradient.numel() > 0)
              table.add(gradient.as<T>(), gradient.numel());
          },
          [&](const GradientTable<T>& table) {
            launch(unscale_kernel<T>, table.blocks, kThreads, table, factor.as<double>(), found_inf.as<double>());
          });
    });
  }
  if (const auto rest = not_flat(gradients, is_contiguous); !rest.empty()) Backend::unscale(rest, factor, found_inf);
}

void CudaBackend::update_scale(const MutableView& block, const ScaleRule& rule) {
  EventScope event("update_scale", "cuda", "fused", {&block});
  const Launch launch(block.device);
  launch(update_kernel, 1, 1, block.as<double>(), block.strides[0], rule);
}

}  // namespace gradus
