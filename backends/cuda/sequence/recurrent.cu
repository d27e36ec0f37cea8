// A recurrent layer over whole sequences in one launch: for every step t, with gates (L, N, G H) = W x + biases,
//   gates[t] += w_hh h[t-1] in their first rows, and then the cell (core/formulas/recurrent_cell.h);
// and the gradients of the gates' sums and of the first states. w_hh (rows, H), h and c (L, N, H), contiguous but for
// the gradient of h.
// Grid: x = clusters of four blocks (H <= 128) or eight (H <= 256). A cluster computes all steps of two sequences:
//   sequences do not depend on each other, so no step waits for the whole device.
// Block: 256 or 512 threads, for 32 hidden units; a warp computes four or two of them. A lane keeps its share of their
//   rows of w_hh (backward: of the columns) in registers, and computes one gate of one unit in one sequence. Gates that
//   a cell does not have are zeros.
// Pipeline: every warp sends its results of a step to all blocks of the cluster (st.async), whose barriers count the
//   bytes. There are two buffers. A warp sends numbers to one buffer only after the numbers of all warps in the other
//   buffer have been received, so no buffer is overwritten before it is read. Before a warp waits for numbers, it loads
//   the next step's operands from global memory.
// Deterministic: sums over lanes are fixed trees.
//
// The element-wise part of a step of a recurrent cell, after the matrix products, and its gradient.
// Layout: any strides.  Grid: x = blocks of a grid-stride loop over cells (for_each).  Block: 256 threads; a thread
// computes one cell a step.  Deterministic: cells are independent of each other.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/sequence/select.h>
#include <gradus/core/formulas/recurrent_cell.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/backends/cuda/device/cluster.cuh>
#include <gradus/backends/cuda/device/launch.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus::cuda_detail::recurrent {

inline constexpr int kWarp = 32, kGates = 4, kSequences = kClusterSequences;

// The sizes of a kernel for kSize hidden units. Each sum of a warp's units is in kShare lanes.
template <int kSize>
struct Tile {
  static constexpr int kBlocks = recurrent_cluster(kSize), kShare = kSize / 128;
  static constexpr int kUnits = 4 / kShare, kThreads = kClusterUnits / kUnits * kWarp;
  static_assert(kBlocks == kGates * kShare && kSequences == 2, "a lane sends to one block");
};

// The sizes of the hidden states, and the offsets of states, gates and weights.
template <RecurrentCell cell>
struct Sizes {
  static constexpr int kSums = sums_of(cell), kRows = gates_of(cell);
  int length, batch, size;
  bool reverse;

  __device__ int step(int i) const { return reverse ? length - 1 - i : i; }
  __device__ int64_t state(int t, int sequence, int unit) const {
    return (static_cast<int64_t>(t) * batch + sequence) * size + unit;
  }
  __device__ int64_t gate(int t, int sequence, int gate, int unit) const {
    return ((static_cast<int64_t>(t) * batch + sequence) * kSums + gate) * size + unit;
  }
  // The weight of unit `from` in the sum of a gate of unit `to`; 0 outside of w_hh.
  template <class T>
  __device__ float weight(const T* w_hh, int gate, int to, int from) const {
    const bool inside = gate < kRows && to < size && from < size;
    return inside ? static_cast<float>(w_hh[(gate * size + to) * size + from]) : 0.0f;
  }
};

#if __CUDA_ARCH__ >= 900

// The numbers that the blocks of a cluster sent each other in the previous step: kWidth numbers of each sequence.
template <int kWidth>
struct Exchange {
  alignas(16) float numbers[2][kSequences][kWidth];
  Mbarrier full[2];

  __device__ void init() {
    if (threadIdx.x >= kWarp) return;
    if (threadIdx.x == 0)
      for (Mbarrier& barrier : full) barrier.init();
    __syncwarp();  // lane 0 must call expect_tx() after init(), which the compiler issues for the whole warp
    if (threadIdx.x == 0)
      for (Mbarrier& barrier : full) barrier.expect_tx(sizeof(numbers[0]));
  }
  // Waits for the numbers that were sent in step i - 1, and returns them.
  __device__ const float (&received(int i))[kSequences][kWidth] {
    full[i & 1].wait((i - 1) / 2 & 1);
    if (threadIdx.x == 0) full[i & 1].expect_tx(sizeof(numbers[0]));  // for the numbers that step i + 1 sends
    return numbers[i & 1];
  }
  __device__ void send(int i, int sequence, int at, float value, int block) {
    st_async(value, &numbers[(i + 1) & 1][sequence][at], &full[(i + 1) & 1], block);
  }
};

// Multiplies kRows rows of weights with the inputs of all sequences. A group of kLanes lanes shares each sum: for every
// chunk, a lane has the weights of the inputs 4 (lane + kLanes chunk) + 0 … 3 of each row. A lane returns the sum of
// one pair of row and sequence; the highest bits of the lane's number in the group are the index of the pair, row *
// kSequences + sequence.
template <int kLanes, int kRows, int kWeights, int kWidth>
__device__ float multiply(const float (&weights)[kRows][kWeights], const float (*inputs)[kWidth], int lane) {
  constexpr int kSums = kRows * kSequences, kSharers = kSums < kLanes ? kLanes / kSums : 1;
  float sums[kSums] = {};
#pragma unroll
  for (int s = 0; s < kSequences; ++s)
#pragma unroll
    for (int chunk = 0; chunk < kWeights / 4; ++chunk) {
      const float4 x = reinterpret_cast<const float4*>(inputs[s])[lane % kLanes + kLanes * chunk];
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        float& sum = sums[row * kSequences + s];
        sum = fmaf(weights[row][4 * chunk], x.x, sum), sum = fmaf(weights[row][4 * chunk + 1], x.y, sum);
        sum = fmaf(weights[row][4 * chunk + 2], x.z, sum), sum = fmaf(weights[row][4 * chunk + 3], x.w, sum);
      }
    }
  warp_reduce_scatter<kLanes / 2, kSharers, kSums / 2>(sums, lane);
  return group_reduce<kSharers>(sums[0], Add());
}

#endif

// Computes h and c of every step. `gates` contains W x + biases before the call, and the values of the gates after it.
template <class T, RecurrentCell cell, int kSize>
__global__ void __launch_bounds__(Tile<kSize>::kThreads)
    sequence_kernel(Sizes<cell> sizes, T* gates, const T* w_hh, const T* h0, const T* c0, T* cells, T* hidden) {
#if __CUDA_ARCH__ >= 900
  // A group of lanes multiplies the rows of w_hh of two units.
  constexpr int kBlocks = Tile<kSize>::kBlocks, kUnits = Tile<kSize>::kUnits, kShare = Tile<kSize>::kShare;
  constexpr int kLanes = 16 * kShare, kRows = 2 * kGates;
  __shared__ Exchange<kSize> exchange;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int block = blockIdx.x % kBlocks, first = blockIdx.x / kBlocks * kSequences;
  const int warps_unit = block * kClusterUnits + warp * kUnits;

  float weights[kRows][kSize / kLanes];
#pragma unroll
  for (int row = 0; row < kRows; ++row)
#pragma unroll
    for (int i = 0; i < kSize / kLanes; ++i)
      weights[row][i] = sizes.weight(w_hh, row % kGates, warps_unit + lane / kLanes * 2 + row / kGates,
                                     4 * (lane % kLanes + kLanes * (i / 4)) + i % 4);
  for (int i = threadIdx.x; i < kSequences * kSize; i += blockDim.x) {
    const int sequence = first + i / kSize, unit = i % kSize;
    const bool inside = sequence < sizes.batch && unit < sizes.size;
    exchange.numbers[0][i / kSize][unit] = inside ? static_cast<float>(h0[sequence * sizes.size + unit]) : 0.0f;
  }
  exchange.init();

  // Each lane computes one gate of one unit in one sequence. The lowest bits of its number tell the block to which it
  // sends, beside the gate.
  const int own = lane / kShare % 2, gate = lane / (2 * kShare) % kGates, unit = warps_unit + lane / (8 * kShare);
  const int sequence = first + own, sent_to = gate * kShare + lane % kShare;
  const bool inside = sequence < sizes.batch && unit < sizes.size, has_gate = inside && gate < sizes.kSums;
  float c = inside ? static_cast<float>(c0[sequence * sizes.size + unit]) : 0.0f;
  float from_input = has_gate ? static_cast<float>(gates[sizes.gate(sizes.step(0), sequence, gate, unit)]) : 0.0f;
  cluster_sync();

  for (int i = 0; i < sizes.length; ++i) {
    const int t = sizes.step(i);
    const float sum_of_input = from_input;
    if (has_gate && i + 1 < sizes.length)
      from_input = static_cast<float>(gates[sizes.gate(sizes.step(i + 1), sequence, gate, unit)]);
    const auto* h_before = i == 0 ? exchange.numbers[0] : exchange.received(i);
    const float sum = sum_of_input + multiply<kLanes>(weights, h_before, lane);
    const float value = scalar::recurrent_gate<cell>(gate, sum);
    float values[kGates];
#pragma unroll
    for (int k = 0; k < kGates; ++k)
      values[k] = __shfl_sync(0xffffffffu, value, (lane & ~(6 * kShare)) | k * 2 * kShare);
    const auto state = scalar::recurrent_cell<cell>(values, c);
    const T h = static_cast<T>(state.h);
    c = static_cast<float>(static_cast<T>(state.c));
    if (i + 1 < sizes.length) exchange.send(i, own, unit, static_cast<float>(h), sent_to);
    if (inside) {
      const bool is_candidate = cell == RecurrentCell::gru && gate == 3;
      if (has_gate) gates[sizes.gate(t, sequence, gate, unit)] = static_cast<T>(is_candidate ? state.gates[3] : value);
      if (gate == 0) cells[sizes.state(t, sequence, unit)] = static_cast<T>(c);
      if (gate == 1) hidden[sizes.state(t, sequence, unit)] = h;
    }
  }
  cluster_sync();  // a block may not end while other blocks write to its shared memory
#endif
}

// The gradient of the hidden states: (L, N, H) with any strides, or absent.
template <class T>
struct StateGradient {
  const T* data;
  int64_t step, sequence, unit;
  explicit StateGradient(const View& view)
      : data(view.as<T>()), step(view ? view.strides[0] : 0), sequence(view ? view.strides[1] : 0),
        unit(view ? view.strides[2] : 0) {}
};

// Computes the gradients of the gates' sums at every step, and of the first states. `dc` contains the gradient of the
// last cell state before the call, and the gradient of c0 after it.
template <class T, RecurrentCell cell, int kSize>
__global__ void __launch_bounds__(Tile<kSize>::kThreads)
    sequence_backward_kernel(Sizes<cell> sizes, StateGradient<T> dhidden, const T* gates, const T* w_hh, const T* c0,
                             const T* cells, T* dc, T* dgates, T* dh0) {
#if __CUDA_ARCH__ >= 900
  // A warp multiplies the columns of w_hh of its units.
  constexpr int kBlocks = Tile<kSize>::kBlocks, kUnits = Tile<kSize>::kUnits, kShare = Tile<kSize>::kShare;
  constexpr int kWeights = kGates * kSize / kWarp;
  __shared__ Exchange<kGates * kSize> exchange;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int block = blockIdx.x % kBlocks, first = blockIdx.x / kBlocks * kSequences;
  const int warps_unit = block * kClusterUnits + warp * kUnits;

  // Shared memory holds the columns of the block's units first, because a warp loads a row of them at a time.
  extern __shared__ float columns[];
#pragma unroll 16
  for (int row = warp; row < sizes.kRows * kSize; row += Tile<kSize>::kThreads / kWarp)
    columns[row * kClusterPitch + lane] = sizes.weight(w_hh, row / kSize, row % kSize, block * kClusterUnits + lane);
  __syncthreads();
  float weights[kUnits][kWeights];
#pragma unroll
  for (int column = 0; column < kUnits; ++column)
#pragma unroll
    for (int i = 0; i < kWeights; ++i) {
      const int gate = i % kGates, row = gate * kSize + lane + kWarp * (i / kGates);
      weights[column][i] = gate < sizes.kRows ? columns[row * kClusterPitch + warp * kUnits + column] : 0.0f;
    }
  exchange.init();

  // Each lane computes the gradient of one gate of one unit in one sequence.
  const int own = lane / (4 * kShare) % 2, sequence = first + own, gate = lane % kGates;
  const int unit = warps_unit + lane / (8 * kShare);
  const bool inside = sequence < sizes.batch && unit < sizes.size;
  struct Saved {
    float active[kGates] = {}, c_before = 0, dh = 0;
  };
  const auto saved_of = [&](int i) {
    Saved saved;
    if (!inside) return saved;
    const int t = sizes.step(i);
#pragma unroll
    for (int k = 0; k < sizes.kSums; ++k) saved.active[k] = static_cast<float>(gates[sizes.gate(t, sequence, k, unit)]);
    saved.c_before = static_cast<float>(i == 0 ? c0[sizes.state(0, sequence, unit)]
                                               : cells[sizes.state(sizes.step(i - 1), sequence, unit)]);
    if (dhidden.data)
      saved.dh = static_cast<float>(dhidden.data[t * dhidden.step + sequence * dhidden.sequence + unit * dhidden.unit]);
    return saved;
  };

  const int64_t at_start = sizes.state(0, sequence, unit);
  float dcell = inside ? static_cast<float>(dc[at_start]) : 0.0f;
  float c = inside ? static_cast<float>(cells[sizes.state(sizes.step(sizes.length - 1), sequence, unit)]) : 0.0f;
  Saved next = saved_of(sizes.length - 1);
  cluster_sync();

  for (int i = 0; i < sizes.length; ++i) {  // from the last step to the first
    const int forward = sizes.length - 1 - i, t = sizes.step(forward);
    const Saved saved = next;
    if (forward > 0) next = saved_of(forward - 1);
    const float dh = saved.dh + (i == 0 ? 0.0f : multiply<kWarp>(weights, exchange.received(i), lane));
    const auto gradient = scalar::recurrent_cell_backward<cell>(saved.active, saved.c_before, c, dh, dcell);
    const auto& sums = gradient.sums;
    const T slope = static_cast<T>(gate == 0 ? sums[0] : gate == 1 ? sums[1] : gate == 2 ? sums[2] : sums[3]);
    dcell = static_cast<float>(static_cast<T>(gradient.dc_before));
    c = saved.c_before;
    for (int to = lane / kGates % kShare; to < kBlocks; to += kShare)
      exchange.send(i, own, unit * kGates + gate, static_cast<float>(slope), to);
    if (inside && gate < sizes.kSums) dgates[sizes.gate(t, sequence, gate, unit)] = slope;
  }
  const float dh = multiply<kWarp>(weights, exchange.received(sizes.length), lane);
  if (inside && gate == 0) {
    dc[at_start] = static_cast<T>(dcell);
    dh0[at_start] = static_cast<T>(cell == RecurrentCell::lstm ? dh : dh + dcell);
  }
  cluster_sync();
#endif
}

}  // namespace gradus::cuda_detail::recurrent

namespace gradus {
namespace {

using namespace cuda_detail;

bool contiguous(std::initializer_list<const StridedLayout*> views) {
  return std::all_of(views.begin(), views.end(),
                     [](const StridedLayout* view) { return view->strides == contiguous_strides(view->shape); });
}

RecurrentPlan plan_of(RecurrentCell cell, const View& states, const View& w_hr, bool is_contiguous, bool backward) {
  return select(RecurrentProblem{.cell = cell,
                                 .dtype = states.dtype,
                                 .length = states.shape[0],
                                 .batch = states.shape[1],
                                 .size = states.shape[2],
                                 .contiguous = is_contiguous,
                                 .projected = static_cast<bool>(w_hr),
                                 .backward = backward,
                                 .tf32 = cuda::matmul_allow_tf32(),
                                 .device = device_properties(states.device.index())});
}

// Calls f.operator()<T, cell, kSize>(sizes).
template <class F>
void visit(const RecurrentPlan& plan, RecurrentCell kind, const View& states, bool reverse, const F& f) {
  const auto size = [&](int axis) { return static_cast<int>(states.shape[axis]); };
  visit_narrow(states.dtype, [&]<class T>() {
    scalar::visit_cell(kind, [&]<RecurrentCell cell>() {
      visit_constant<128, kMostRecurrentUnits>(static_cast<int>(plan.cluster) * kClusterUnits, [&]<int kSize>() {
        f.template operator()<T, cell, kSize>(recurrent::Sizes<cell>{size(0), size(1), size(2), reverse});
      });
    });
  });
}

}  // namespace

void CudaBackend::recurrent_sequence(const RecurrentArgs& args) {
  const auto& [kind, gates, w_hh, w_hr, h0, c0, reverse, cells, outputs, hidden] = args;
  const bool is_contiguous = contiguous({&gates, &w_hh, &h0, &c0, &cells, &hidden});
  const RecurrentPlan plan = plan_of(kind, cells, w_hr, is_contiguous, false);
  if (plan.algorithm == &kRecurrentSteps) return Backend::recurrent_sequence(args);
  EventScope event("recurrent_sequence", "cuda", plan.algorithm->name, {&gates, &w_hh},
                   2 * gates.numel() * hidden.shape[2] + 25 * cells.numel(), plan.algorithm->reason);
  visit(plan, kind, cells, reverse, [&]<class T, RecurrentCell cell, int kSize>(recurrent::Sizes<cell> sizes) {
    Launch(args.gates.device)
        .with({.cluster = plan.cluster}, recurrent::sequence_kernel<T, cell, kSize>, plan.blocks,
              recurrent::Tile<kSize>::kThreads, sizes, args.gates.as<T>(), args.w_hh.as<T>(), args.h0.as<T>(),
              args.c0.as<T>(), args.cells.as<T>(), args.hidden.as<T>());
  });
}

void CudaBackend::recurrent_sequence_backward(const RecurrentBackwardArgs& args) {
  const auto& [kind, dhidden, gates, w_hh, w_hr, c0, cells, reverse, dc, dgates, dprojected, dh0] = args;
  const bool is_contiguous = contiguous({&gates, &w_hh, &c0, &cells, &dc, &dgates, &dh0});
  const RecurrentPlan plan = plan_of(kind, cells, w_hr, is_contiguous, true);
  if (plan.algorithm == &kRecurrentSteps) return Backend::recurrent_sequence_backward(args);
  EventScope event("recurrent_sequence_backward", "cuda", plan.algorithm->name, {&gates, &w_hh},
                   2 * gates.numel() * cells.shape[2] + 35 * cells.numel(), plan.algorithm->reason);
  visit(plan, kind, cells, reverse, [&]<class T, RecurrentCell cell, int kSize>(recurrent::Sizes<cell> sizes) {
    Launch(args.gates.device)
        .with({.shared_bytes = plan.shared_bytes, .cluster = plan.cluster},
              recurrent::sequence_backward_kernel<T, cell, kSize>, plan.blocks, recurrent::Tile<kSize>::kThreads, sizes,
              recurrent::StateGradient<T>(args.dhidden), args.gates.as<T>(), args.w_hh.as<T>(), args.c0.as<T>(),
              args.cells.as<T>(), args.dc.as<T>(), args.dgates.as<T>(), args.dh0.as<T>());
  });
}

// ---- one step ----

namespace {

// Computes a cell. `at` has the offsets in c, gates, c_before and h. `gate` is the stride from one gate to the next.
template <class T, RecurrentCell cell>
struct Cell {
  static constexpr int kSums = sums_of(cell);
  int64_t gate;
  T* gates;
  const T* c_before;
  T *c, *h;

  __device__ void operator()(uint32_t, const int64_t (&at)[4]) const {
    using Number = compute_t<T>;
    Number active[kSums];
    for (int k = 0; k < kSums; ++k)
      active[k] = scalar::recurrent_gate<cell>(k, static_cast<Number>(gates[at[1] + k * gate]));
    const auto step = scalar::recurrent_cell<cell>(active, static_cast<Number>(c_before[at[2]]));
    for (int k = 0; k < kSums; ++k) gates[at[1] + k * gate] = static_cast<T>(step.gates[k]);
    c[at[0]] = static_cast<T>(step.c), h[at[3]] = static_cast<T>(step.h);
  }
};

// Computes the gradients of a cell. `at` has the offsets in dc, dgates, dh, gates, c_before and c.
template <class T, RecurrentCell cell>
struct CellBackward {
  static constexpr int kSums = sums_of(cell);
  int64_t gate, dgate;
  const T *dh, *gates, *c_before, *c;
  T *dc, *dgates;

  __device__ void operator()(uint32_t, const int64_t (&at)[6]) const {
    using Number = compute_t<T>;
    const auto number = [](T x) { return static_cast<Number>(x); };
    Number active[kSums];
    for (int k = 0; k < kSums; ++k) active[k] = number(gates[at[3] + k * gate]);
    const auto gradient = scalar::recurrent_cell_backward<cell>(active, number(c_before[at[4]]), number(c[at[5]]),
                                                                number(dh[at[2]]), number(dc[at[0]]));
    for (int k = 0; k < kSums; ++k) dgates[at[1] + k * dgate] = static_cast<T>(gradient.sums[k]);
    dc[at[0]] = static_cast<T>(gradient.dc_before);
  }
};

const char* name_of(RecurrentCell cell) { return kRecurrentCellNames[static_cast<size_t>(cell)]; }

}  // namespace

void CudaBackend::recurrent_cell(RecurrentCell kind, const MutableView& gates, const View& c_before,
                                 const MutableView& c, const MutableView& h) {
  EventScope event("recurrent_cell", "cuda", name_of(kind), {&gates, &c_before}, 25 * c.numel());
  const Nest<4> nest(c.shape, {&c.strides, &gates.strides, &c_before.strides, &h.strides});
  visit_floating(c.dtype, [&]<class T>() {
    scalar::visit_cell(kind, [&]<RecurrentCell cell>() {
      for_each(Launch(c.device), nest, [&](const int64_t* base) {
        return Cell<T, cell>{c.shape[1] * gates.strides[1], gates.as<T>() + base[1], c_before.as<T>() + base[2],
                             c.as<T>() + base[0], h.as<T>() + base[3]};
      });
    });
  });
}

void CudaBackend::recurrent_cell_backward(RecurrentCell kind, const View& dh, const View& gates, const View& c_before,
                                          const View& c, const MutableView& dc, const MutableView& dgates) {
  EventScope event("recurrent_cell_backward", "cuda", name_of(kind), {&dh, &gates}, 35 * c.numel());
  const Nest<6> nest(c.shape,
                     {&dc.strides, &dgates.strides, &dh.strides, &gates.strides, &c_before.strides, &c.strides});
  visit_floating(c.dtype, [&]<class T>() {
    scalar::visit_cell(kind, [&]<RecurrentCell cell>() {
      for_each(Launch(c.device), nest, [&](const int64_t* base) {
        return CellBackward<T, cell>{c.shape[1] * gates.strides[1], c.shape[1] * dgates.strides[1],
                                     dh.as<T>() + base[2],          gates.as<T>() + base[3],
                                     c_before.as<T>() + base[4],    c.as<T>() + base[5],
                                     dc.as<T>() + base[0],          dgates.as<T>() + base[1]};
      });
    });
  });
}

}  // namespace gradus
