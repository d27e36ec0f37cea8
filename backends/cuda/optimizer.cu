// Optimizer steps over all parameters in few launches. A block takes kPerBlock elements of one tensor; the tensors'
// addresses travel as a kernel argument. With g the gradient times gradient_scale (negated to maximize):
//   SGD   g += weight_decay p;  buffer = momentum buffer + (1 - dampening) g (first step: g);
//         p -= lr (nesterov ? g + momentum buffer : buffer)                                    (torch.optim.SGD)
//   Adam  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g²;
//         p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)                      (torch.optim.Adam,
//         AdamW)
#include <vector>

#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/core/observer.h>
#include <gradus/backends/cuda/launch.cuh>

namespace gradus {
namespace {

using cuda_detail::kThreads;
using cuda_detail::Launch;

constexpr int kMaxTensors = 64;  // of one launch: their table has to fit in 4 KiB of arguments
constexpr int64_t kPerBlock = 1024;

template <class T>
struct Table {
  struct Entry {
    T* parameter;
    const T* gradient;
    T *state1, *state2;
    int64_t numel;
    uint32_t first_block;
  };
  Entry entries[kMaxTensors];
  int count = 0;
  uint32_t blocks = 0;
};

// The entry that this block works on, and its first element there.
template <class T>
__device__ const typename Table<T>::Entry& find_entry(const Table<T>& table, int64_t& begin) {
  int low = 0, high = table.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.entries[middle].first_block <= blockIdx.x) low = middle;
    else high = middle - 1;
  }
  begin = static_cast<int64_t>(blockIdx.x - table.entries[low].first_block) * kPerBlock;
  return table.entries[low];
}

// The StepBlock: four doubles, `step` elements apart.
struct Block {
  const double* data;
  int64_t step;
  __device__ double operator[](int i) const { return data[i * step]; }
};

template <class T>
struct Sgd {
  SgdOptions options;
  compute_t<T> scale, lr;
  bool first;
  __device__ void begin(const Block& block) {
    using C = compute_t<T>;
    scale = static_cast<C>(options.maximize ? -block[StepBlock::gradient_scale] : block[StepBlock::gradient_scale]);
    lr = static_cast<C>(block[StepBlock::learning_rate]);
    first = block[StepBlock::step] <= 1;  // the step being made is counted already
  }
  __device__ void operator()(const typename Table<T>::Entry& entry, int64_t i) const {
    using C = compute_t<T>;
    const C p = static_cast<C>(entry.parameter[i]);
    C g = static_cast<C>(entry.gradient[i]) * scale + static_cast<C>(options.weight_decay) * p;
    if (options.momentum != 0) {
      C buffer = g;
      if (!first)
        buffer = static_cast<C>(options.momentum) * static_cast<C>(entry.state1[i]) +
                 static_cast<C>(1 - options.dampening) * g;
      entry.state1[i] = static_cast<T>(buffer);
      g = options.nesterov ? g + static_cast<C>(options.momentum) * buffer : buffer;
    }
    entry.parameter[i] = static_cast<T>(p - lr * g);
  }
};

template <class T>
struct Adam {
  AdamOptions options;
  double log_beta1 = ::log(options.beta1), log_beta2 = ::log(options.beta2);
  compute_t<T> scale, decay, rate, bias2_root;
  __device__ void begin(const Block& block) {  // in double, as 1 - beta^t = -expm1(t ln beta): float would lose digits
    using C = compute_t<T>;
    const double t = block[StepBlock::step], lr = block[StepBlock::learning_rate];
    scale = static_cast<C>(options.maximize ? -block[StepBlock::gradient_scale] : block[StepBlock::gradient_scale]);
    decay = static_cast<C>(options.decoupled ? 1 - lr * options.weight_decay : 1);
    rate = static_cast<C>(lr / -::expm1(t * log_beta1));
    bias2_root = static_cast<C>(::sqrt(-::expm1(t * log_beta2)));
  }
  __device__ void operator()(const typename Table<T>::Entry& entry, int64_t i) const {
    using C = compute_t<T>;
    C p = static_cast<C>(entry.parameter[i]) * decay, g = static_cast<C>(entry.gradient[i]) * scale;
    if (!options.decoupled) g += static_cast<C>(options.weight_decay) * p;
    C m = static_cast<C>(entry.state1[i]), v = static_cast<C>(entry.state2[i]);
    m += static_cast<C>(1 - options.beta1) * (g - m);
    v = static_cast<C>(options.beta2) * v + static_cast<C>(1 - options.beta2) * g * g;
    p -= rate * m / (::sqrt(v) / bias2_root + static_cast<C>(options.eps));
    entry.state1[i] = static_cast<T>(m);
    entry.state2[i] = static_cast<T>(v);
    entry.parameter[i] = static_cast<T>(p);
  }
};

template <class T, class Rule>
__global__ void __launch_bounds__(kThreads) step_kernel(Table<T> table, Block block, Rule rule) {
  if (block[StepBlock::found_inf] != 0) return;
  __shared__ Rule shared;  // its scalars are costly arithmetic in double: one thread computes them
  if (threadIdx.x == 0) {
    rule.begin(block);
    shared = rule;
  }
  __syncthreads();
  const Rule ready = shared;
  int64_t begin;
  const auto& entry = find_entry(table, begin);
  const int64_t end = min(begin + kPerBlock, entry.numel);
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) ready(entry, i);
}

__global__ void advance_kernel(double* block, int64_t step) {
  if (block[StepBlock::found_inf * step] == 0) block[StepBlock::step * step] += 1;
}

// True when the four views fill memory alike, so that one running index serves all.
bool flat(const ParameterViews& views) {
  const Strides& p = views.parameter.strides;
  return StridedLoop<4>(views.parameter.shape,
                        {&p, &views.gradient.strides, views.state1.data ? &views.state1.strides : &p,
                         views.state2.data ? &views.state2.strides : &p})
      .all_contiguous();
}

// Runs the rule over the flat parameters of type T, in as few launches as the table allows.
template <template <class> class Rule, class T, class Options>
void step_all(std::span<const ParameterViews> parameters, const View& block, const Options& options) {
  Table<T> table;
  const Launch launch(block.device);
  auto flush = [&] {
    if (table.blocks > 0)
      launch(step_kernel<T, Rule<T>>, table.blocks, kThreads, table, Block{block.as<double>(), block.strides[0]},
             Rule<T>{options});
    table = {};
  };
  for (const ParameterViews& views : parameters) {
    if (views.parameter.dtype != dtype_of<T> || !flat(views) || views.parameter.numel() == 0) continue;
    const int64_t numel = views.parameter.numel();
    if (table.count == kMaxTensors) flush();
    table.entries[table.count++] = {views.parameter.as<T>(),
                                    views.gradient.as<T>(),
                                    views.state1.as<T>(),
                                    views.state2.as<T>(),
                                    numel,
                                    table.blocks};
    table.blocks += static_cast<uint32_t>((numel + kPerBlock - 1) / kPerBlock);
  }
  flush();
}

template <template <class> class Rule, class Options>
void step_all(std::span<const ParameterViews> parameters, const View& block, const Options& options) {
  step_all<Rule, float>(parameters, block, options);
  step_all<Rule, double>(parameters, block, options);
  step_all<Rule, Half>(parameters, block, options);
  step_all<Rule, BFloat16>(parameters, block, options);
}

// Parameters with gaps in memory, which the composite's default body handles.
std::vector<ParameterViews> not_flat(std::span<const ParameterViews> parameters) {
  std::vector<ParameterViews> rest;
  for (const ParameterViews& views : parameters)
    if (!flat(views)) rest.push_back(views);
  return rest;
}

}  // namespace

void CudaBackend::advance_step(const MutableView& block) {
  EventScope event("advance_step", "cuda", "fused", {});
  const Launch launch(block.device);
  launch(advance_kernel, 1, 1, block.as<double>(), block.strides[0]);
}

void CudaBackend::sgd_step(std::span<const ParameterViews> parameters, const View& block, const SgdOptions& options) {
  EventScope event("sgd_step", "cuda", "multi_tensor", {&block});
  step_all<Sgd>(parameters, block, options);
  if (const auto rest = not_flat(parameters); !rest.empty()) Backend::sgd_step(rest, block, options);
}

void CudaBackend::adam_step(std::span<const ParameterViews> parameters, const View& block, const AdamOptions& options) {
  EventScope event("adam_step", "cuda", "multi_tensor", {&block});
  step_all<Adam>(parameters, block, options);
  if (const auto rest = not_flat(parameters); !rest.empty()) Backend::adam_step(rest, block, options);
}

}  // namespace gradus
