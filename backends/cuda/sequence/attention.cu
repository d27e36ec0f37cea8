// Attention over short sequences, forward and backward in one launch each:
//   weights = softmax(scale q kᵀ + mask),  y = dropout(weights) v
//   dscore = weights (dropout(dy vᵀ) - sum of dy y along the row),  dq = scale dscore k,  dk = scale dscoreᵀ q,
//   dv = dropout(weights)ᵀ dy
// Layout: q (N, H, L, E), k (N, H, S, E), v (N, H, S, V), y (N, H, L, V) with unit strides along E and V; weights
//   (N, H, L, S) dense.
// Grid: forward: x = heads x parts of 16 queries; backward: x = heads x parts of 16 keys, then heads x parts of 16
//   queries.
// Block: 128 threads for 16 rows of a head's weights (for dk and dv: 16 columns); a warp computes four of these.
// Phases: (1) products of the 16 rows with tiles of 64 rows of the other operand; a lane computes two dot products for
//   each of its warp's rows, and the products of all tiles stay in shared memory. (2) forward: softmax. (3) sums of the
//   other operand's rows, weighted by the results; a lane computes every 32nd column.
// Deterministic: sums over lanes are fixed trees, and sums over tiles are in order.
#include <gradus/backends/cuda/cuda_backend.h>
#include <gradus/backends/cuda/sequence/select.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/random.h>
#include <gradus/backends/cuda/device/row.cuh>
#include <gradus/backends/cuda/device/vec.cuh>
#include <gradus/backends/cuda/device/warp.cuh>

namespace gradus {
namespace {

using namespace cuda_detail;

constexpr int kWarps = 4, kBlockThreads = 32 * kWarps, kWarpRows = 4, kRows = kAttentionRows, kTile = kAttentionTile;
static_assert(kRows == kWarps * kWarpRows);

// A matrix (rows, columns) of each head, with contiguous columns; strides are in elements.
template <class T>
struct HeadRows {
  T* data;
  int64_t image, head, row;
  int columns;

  template <class AnyView>
  explicit HeadRows(const AnyView& view)
      : data(view.template as<std::remove_const_t<T>>()), image(view.strides[0]), head(view.strides[1]),
        row(view.strides[2]), columns(static_cast<int>(view.shape[3])) {}
};

struct Sizes {
  int images, heads, queries, keys;

  Sizes(const View& q, const View& k)
      : images(static_cast<int>(q.shape[0])), heads(static_cast<int>(q.shape[1])),
        queries(static_cast<int>(q.shape[2])), keys(static_cast<int>(k.shape[2])) {}
};

// The mask that is added to the scores, with strides of (N, H, L, S), which are 0 along broadcast axes. `data` is null
// if there is no mask.
struct Mask {
  const void* data;
  bool boolean;
  Strides4 steps;

  explicit Mask(const View& mask) : data(mask.data), boolean(mask.dtype == DType::boolean) {
    if (mask) steps = Strides4(mask.strides);
  }
};

// The options of attention. If `drops` is set, dropout draws from the stream `random`.
template <class T>
struct Rule {
  using C = compute_t<T>;
  C scale, dropout_scale;
  bool causal, drops;
  double keep;
  RandomState random;

  Rule(const AttentionRule& rule, bool drops)
      : scale(static_cast<C>(rule.scale)),
        dropout_scale(static_cast<C>(static_cast<T>(static_cast<C>(1 / (1 - rule.dropout))))),  // rounded to T
        causal(rule.causal), drops(drops), keep(1 - rule.dropout), random(rule.random) {}
};

// A block's part of one head, and its shared memory: 16 rows of an operand, a tile of the other operand, a number for
// each row of the tile, and one or two matrices of 16 rows with the other operand's length as columns. The index r of a
// row counts from the warp's first row.
template <class T, int kHead>
struct Block {
  using C = compute_t<T>;
  using Products = C[kWarpRows][2];
  using Sums = C[kWarpRows][kHead / 32];
  using Four = Vec<C, 4>;
  static constexpr int kPitch = kHead + kAttentionPad;  // the padding puts the vectors of 8 lanes in different banks

  C* memory;                            // rows (16, kHead), tile (64, kPitch), numbers (64), matrices (…, 16, pitch)
  int pitch;                            // elements from row to row of the matrices
  int head_number, image, head, first;  // first: the first row of the block

  __device__ Block(const Sizes& sizes, unsigned char* memory, int length, int block, int parts)
      : memory(reinterpret_cast<C*>(memory)), pitch(attention_pitch(length)), head_number(block / parts),
        image(head_number / sizes.heads), head(head_number % sizes.heads), first(block % parts * kRows) {}

  __device__ static int warp() { return threadIdx.x / 32; }
  __device__ static int lane() { return threadIdx.x % 32; }
  __device__ C* rows() const { return memory; }
  __device__ C* tile(int r) const { return memory + kRows * kHead + r * kPitch; }
  __device__ C* numbers() const { return tile(kTile); }
  __device__ C* matrix(int which, int r) const {
    return numbers() + kTile + (which * kRows + warp() * kWarpRows + r) * pitch;
  }
  __device__ int row(int r) const { return first + warp() * kWarpRows + r; }
  template <class U>
  __device__ U* of_head(const HeadRows<U>& rows) const {
    return rows.data + image * rows.image + head * rows.head;
  }

  // Loads kCount rows, beginning with row `from`, into shared memory. Elements outside of the matrix become 0.
  template <int kCount>
  __device__ void load(const HeadRows<const T>& matrix, int from, int count, C* to, int to_pitch) const {
    const T* data = of_head(matrix);
#pragma unroll 16
    for (int k = 0; k < kCount * kHead / kBlockThreads; ++k) {
      const int i = k * kBlockThreads + threadIdx.x, row = i / kHead, column = i % kHead;
      const bool inside = from + row < count && column < matrix.columns;
      to[row * to_pitch + column] = inside ? static_cast<C>(data[(from + row) * matrix.row + column]) : C(0);
    }
  }
  __device__ void load_rows(const HeadRows<const T>& matrix, int count) const {
    load<kRows>(matrix, first, count, rows(), kHead);
  }
  __device__ void load_tile(const HeadRows<const T>& matrix, int from, int count) const {
    load<kTile>(matrix, from, count, tile(0), kPitch);
  }

  // Computes the dot products of the warp's rows with the rows lane() and lane() + 32 of the tile.
  __device__ void multiply(Products& sums) const {
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) sums[r][0] = sums[r][1] = C(0);
#pragma unroll 4
    for (int column = 0; column < kHead; column += 4) {
      Four b[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) b[k] = *reinterpret_cast<const Four*>(tile(lane() + 32 * k) + column);
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
        const Four a = *reinterpret_cast<const Four*>(rows() + (warp() * kWarpRows + r) * kHead + column);
#pragma unroll
        for (int k = 0; k < 2; ++k)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[r][k] += a.value[i] * b[k].value[i];
      }
    }
  }
  // Calls f(r, half, i) for each of the lane's products: that of the warp's row r and row i = lane() + 32 half of the
  // tile.
  template <class F>
  __device__ void for_each_product(F&& f) const {
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) f(r, half, lane() + 32 * half);
  }

  // For each row r of the warp, adds the rows of the tile to sums[r], weighted by row r of matrix `which`. The tile has
  // rows `from` + 0 … 63 of the other operand.
  __device__ void add_weighted(int which, int from, Sums& sums) const {
#pragma unroll 2
    for (int j = 0; j < kTile; j += 4) {
      Four weights[kWarpRows];
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) weights[r] = *reinterpret_cast<const Four*>(matrix(which, r) + from + j);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int k = 0; k < kHead / 32; ++k) {
          const C value = tile(j + i)[lane() + 32 * k];
#pragma unroll
          for (int r = 0; r < kWarpRows; ++r) sums[r][k] += weights[r].value[i] * value;
        }
    }
  }
  // Stores in `to`, which has `count` rows, the sums of all `length` rows of `other`, weighted by matrix `which` and
  // multiplied by `scale`.
  __device__ void store_weighted(int which, const HeadRows<const T>& other, int length, C scale, const HeadRows<T>& to,
                                 int count) const {
    Sums sums = {};
    for (int from = 0; from < length; from += kTile) {
      load_tile(other, from, length);
      __syncthreads();
      add_weighted(which, from, sums);
      __syncthreads();
    }
    store(sums, scale, to, count);
  }
  __device__ void store(const Sums& sums, C scale, const HeadRows<T>& to, int count) const {
    T* data = of_head(to);
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r)
#pragma unroll
      for (int k = 0; k < kHead / 32; ++k) {
        const int column = lane() + 32 * k;
        if (row(r) < count && column < to.columns) data[row(r) * to.row + column] = static_cast<T>(sums[r][k] * scale);
      }
  }
};

// Folds several numbers over the lanes of a warp. Together they are faster, because their shuffles overlap.
template <class C, int kCount, class F>
__device__ void warp_reduce_all(C (&values)[kCount], F&& fold) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = fold(values[i], shfl_xor(values[i], distance));
}

template <class T>
struct Forward {
  Sizes sizes;
  Rule<T> rule;
  HeadRows<const T> q, k, v;
  Mask mask;
  T* weights;
  bool* kept;  // null without dropout
  HeadRows<T> y;

  explicit Forward(const AttentionArgs& a)
      : sizes(a.q, a.k), rule(a.rule, a.kept.data), q(a.q), k(a.k), v(a.v), mask(a.mask),
        weights(a.weights.template as<T>()), kept(a.kept.template as<bool>()), y(a.y) {}

  template <class C>
  __device__ C masked(C score, int image, int head, int row, int key) const {
    if (mask.data && row < sizes.queries && key < sizes.keys) {
      const int64_t at = image * mask.steps.n + head * mask.steps.c + row * mask.steps.h + key * mask.steps.w;
      if (!mask.boolean) score += static_cast<C>(static_cast<const T*>(mask.data)[at]);
      else if (!static_cast<const bool*>(mask.data)[at]) score = -INFINITY;
    }
    return key >= sizes.keys || (rule.causal && key > row) ? -INFINITY : score;
  }
};

// Turns the warp's rows of scores into weights, stores the weights and the mask of kept weights, and applies dropout.
template <class T, int kHead>
__device__ void softmax(const Forward<T>& task, const Block<T, kHead>& block) {
  using C = compute_t<T>;
  const auto& [sizes, rule, q, k, v, mask, weights, kept, y] = task;
  const uint64_t offset = rule.random.offset + (rule.random.device_offset ? *rule.random.device_offset : 0);
  C largest[kWarpRows], sum[kWarpRows];
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) largest[r] = -INFINITY, sum[r] = 0;
  const auto larger = [](C a, C b) { return a < b || b != b ? b : a; };  // NaN if a or b is NaN
  for (int key = block.lane(); key < sizes.keys; key += 32)
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) largest[r] = larger(largest[r], block.matrix(0, r)[key]);
  warp_reduce_all(largest, larger);
#pragma unroll
  for (C& base : largest) base = RunningSum<C>::base_of(base);
  for (int key = block.lane(); key < sizes.keys; key += 32)
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      C& score = block.matrix(0, r)[key];
      score = ::exp(score - largest[r]), sum[r] += score;
    }
  warp_reduce_all(sum, Add());
  for (int key = block.lane(); key < block.pitch; key += 32)
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      C& power = block.matrix(0, r)[key];
      const int row = block.row(r);
      C weight = key < sizes.keys && sum[r] != 0 ? power / sum[r] : C(0);  // the sum of a row without keys is 0
      if (key < sizes.keys && row < sizes.queries) {
        const int64_t at = (static_cast<int64_t>(block.head_number) * sizes.queries + row) * sizes.keys + key;
        weights[at] = static_cast<T>(weight);
        if (rule.drops) {
          const bool stays = random_bernoulli(rule.random.seed, offset, static_cast<uint64_t>(at), rule.keep);
          kept[at] = stays;
          weight = stays ? weight * rule.dropout_scale : C(0);
        }
      }
      power = weight;
    }
}

template <class T, int kHead>
__global__ void __launch_bounds__(kBlockThreads) forward_kernel(Forward<T> task) {
  using C = compute_t<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  const Sizes& sizes = task.sizes;
  const Block<T, kHead> block(sizes, memory, sizes.keys, blockIdx.x, ceil_div(sizes.queries, kRows));
  block.load_rows(task.q, sizes.queries);
  for (int from = 0; from < sizes.keys; from += kTile) {
    block.load_tile(task.k, from, sizes.keys);
    __syncthreads();
    C scores[kWarpRows][2];
    block.multiply(scores);
    block.for_each_product([&](int r, int half, int at) {
      block.matrix(0, r)[from + at] =
          task.masked(scores[r][half] * task.rule.scale, block.image, block.head, block.row(r), from + at);
    });
    __syncthreads();
  }
  softmax(task, block);
  block.store_weighted(0, task.v, sizes.keys, C(1), task.y, sizes.queries);
}

template <class T>
struct Backward {
  Sizes sizes;
  Rule<T> rule;
  HeadRows<const T> dy, y, q, k, v;
  const T* weights;
  const bool* kept;
  HeadRows<T> dq, dk, dv;

  explicit Backward(const AttentionBackwardArgs& a)
      : sizes(a.q, a.k), rule(a.rule, a.kept.data), dy(a.dy), y(a.y), q(a.q), k(a.k), v(a.v),
        weights(a.weights.template as<T>()), kept(a.kept.template as<bool>()), dq(a.dq), dk(a.dk), dv(a.dv) {}
};

// A weight, and the factor by which dropout multiplies it. It is loaded before the products are computed, and used
// after them.
template <class T>
struct Weight {
  using C = compute_t<T>;
  C value, factor;
  __device__ void read(const Backward<T>& task, int head_number, int query, int key) {
    const int queries = task.sizes.queries, keys = task.sizes.keys;
    const bool inside = query < queries && key < keys;
    const int64_t at = (static_cast<int64_t>(head_number) * queries + query) * keys + key;
    value = inside ? static_cast<C>(task.weights[at]) : C(0);
    factor = !task.rule.drops ? C(1) : inside && task.kept[at] ? task.rule.dropout_scale : C(0);
  }
  // The gradient of the score, from the product of dy and v, and the sum of dy y along the row.
  __device__ C dscore(C product, C of_row) const { return value * (product * factor - of_row); }
};

// Sets numbers()[i] to the dot product of the rows `first` + i of dy and y, or to 0 from row `count` on. Row `first` +
// i of dy is in shared memory, as row i at `dy`.
template <int kCount, class T, int kHead, class C>
__device__ void row_products(const Block<T, kHead>& block, const C* dy, int pitch, const HeadRows<const T>& y,
                             int first, int count) {
  const T* y_rows = block.of_head(y);
  C products[kCount / kWarps];
#pragma unroll
  for (int i = 0; i < kCount / kWarps; ++i) {
    products[i] = 0;
    const int row = block.warp() + i * kWarps;
#pragma unroll
    for (int k = 0; k < kHead / 32; ++k) {
      const int column = block.lane() + 32 * k;
      if (column < y.columns && first + row < count)
        products[i] += dy[row * pitch + column] * static_cast<C>(y_rows[(first + row) * y.row + column]);
    }
  }
  warp_reduce_all(products, Add());
#pragma unroll
  for (int i = 0; i < kCount / kWarps; ++i)
    if (block.lane() == i) block.numbers()[block.warp() + i * kWarps] = products[i];
}

// Computes dk and dv of 16 keys (kOfKeys), or dq of 16 queries. Accordingly, a row of the scores' gradient in shared
// memory belongs to a key or to a query.
template <bool kOfKeys, class T, int kHead>
__device__ void gradients(const Backward<T>& task, const Block<T, kHead>& block) {
  using C = compute_t<T>;
  const int rows = kOfKeys ? task.sizes.keys : task.sizes.queries;
  const int columns = kOfKeys ? task.sizes.queries : task.sizes.keys;
  block.load_rows(kOfKeys ? task.v : task.dy, rows);
  typename Block<T, kHead>::Sums of_v = {};
  for (int from = 0; from < columns; from += kTile) {
    block.load_tile(kOfKeys ? task.dy : task.v, from, columns);
    Weight<T> weights[kWarpRows][2];
    block.for_each_product([&](int r, int half, int at) {
      const int row = block.row(r), column = from + at;
      weights[r][half].read(task, block.head_number, kOfKeys ? column : row, kOfKeys ? row : column);
    });
    __syncthreads();
    if constexpr (kOfKeys) row_products<kTile>(block, block.tile(0), block.kPitch, task.y, from, columns);
    else if (from == 0) row_products<kRows>(block, block.rows(), kHead, task.y, block.first, rows);
    __syncthreads();
    C products[kWarpRows][2];
    block.multiply(products);
    block.for_each_product([&](int r, int half, int at) {
      const Weight<T>& weight = weights[r][half];
      const C of_query = block.numbers()[kOfKeys ? at : block.warp() * kWarpRows + r];
      block.matrix(0, r)[from + at] = weight.dscore(products[r][half], of_query);
      if constexpr (kOfKeys) block.matrix(1, r)[from + at] = weight.value * weight.factor;
    });
    __syncwarp();
    if constexpr (kOfKeys) block.add_weighted(1, from, of_v);
    __syncthreads();
  }
  if constexpr (kOfKeys) block.store(of_v, C(1), task.dv, rows);
  block.store_weighted(0, kOfKeys ? task.q : task.k, columns, task.rule.scale, kOfKeys ? task.dk : task.dq, rows);
}

// The first blocks compute parts of 16 keys, the others parts of 16 queries.
template <class T, int kHead>
__global__ void __launch_bounds__(kBlockThreads) backward_kernel(Backward<T> task) {
  extern __shared__ __align__(16) unsigned char memory[];
  const Sizes& sizes = task.sizes;
  const int key_parts = ceil_div(sizes.keys, kRows), query_parts = ceil_div(sizes.queries, kRows);
  const int key_blocks = sizes.images * sizes.heads * key_parts, block = blockIdx.x;
  if (block < key_blocks) gradients<true>(task, Block<T, kHead>(sizes, memory, sizes.queries, block, key_parts));
  else gradients<false>(task, Block<T, kHead>(sizes, memory, sizes.keys, block - key_blocks, query_parts));
}

template <class Args>
AttentionPlan plan_of(const Args& args, std::initializer_list<const StridedLayout*> views, bool backward) {
  AttentionProblem problem{.dtype = args.q.dtype, .q = args.q.shape, .k = args.k.shape, .v = args.v.shape};
  for (const StridedLayout* view : std::initializer_list<const StridedLayout*>{&args.weights, &args.kept})
    problem.dense &= view->strides == contiguous_strides(view->shape);
  for (const StridedLayout* view : views) {
    problem.dense &= view->shape[3] <= 1 || view->strides[3] == 1;
    problem.even &= view->shape[0] <= 1 || view->strides[0] == view->shape[1] * view->strides[1];
  }
  problem.backward = backward, problem.dropout = static_cast<bool>(args.kept);
  problem.masked = args.rule.causal;
  if constexpr (requires { args.mask; }) problem.masked |= static_cast<bool>(args.mask);
  problem.tf32 = cuda::matmul_allow_tf32(), problem.device = device_properties(args.q.device.index());
  return select(problem);
}

// Calls f.operator()<T, kHead>() with the type for `dtype` and the plan's head.
template <class F>
void visit_kernel(const AttentionPlan& plan, DType dtype, const F& f) {
  visit_floating(dtype, [&]<class T>() {
    visit_constant<32, 64, 128>(plan.head, [&]<int kHead>() { f.template operator()<T, kHead>(); });
  });
}

}  // namespace

void CudaBackend::attention(const AttentionArgs& args) {
  const View &q = args.q, &k = args.k, &v = args.v;
  const AttentionPlan plan = plan_of(args, {&q, &k, &v, &args.y}, false);
  if (plan.algorithm == &kAttentionProducts) return Backend::attention(args);
  EventScope event("attention", "cuda", plan.algorithm->name, {&q, &k, &v},
                   2 * args.weights.numel() * (q.shape[3] + v.shape[3]), plan.algorithm->reason);
  visit_kernel(plan, q.dtype, [&]<class T, int kHead>() {
    Launch(q.device).with({plan.shared_bytes}, forward_kernel<T, kHead>, plan.blocks, kBlockThreads, Forward<T>(args));
  });
}

void CudaBackend::attention_backward(const AttentionBackwardArgs& args) {
  const View &dy = args.dy, &q = args.q, &k = args.k, &v = args.v;
  const AttentionPlan plan = plan_of(args, {&q, &k, &v, &dy, &args.y, &args.dq, &args.dk, &args.dv}, true);
  if (plan.algorithm == &kAttentionProducts) return Backend::attention_backward(args);
  EventScope event("attention_backward", "cuda", plan.algorithm->name, {&dy, &q, &k, &v},
                   2 * args.weights.numel() * (2 * q.shape[3] + 3 * v.shape[3]), plan.algorithm->reason);
  visit_kernel(plan, q.dtype, [&]<class T, int kHead>() {
    Launch(q.device).with({plan.shared_bytes}, backward_kernel<T, kHead>, plan.blocks, kBlockThreads,
                          Backward<T>(args));
  });
}

}  // namespace gradus
