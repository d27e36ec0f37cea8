// Attention over short sequences in one launch each way. A block has one head and 16 rows of the matrix of weights (L,
// S) or, for the gradients of keys and values, 16 of its columns; a warp has four of these. It multiplies them with
// tiles of 64 rows of the other side, a lane two dot products for each of its warp's rows, keeps what comes out in
// shared memory across all tiles, and sums rows weighted by it, a lane one column in 32.
#pragma once

#include <gradus/core/backend.h>
#include <gradus/core/random.h>

namespace gradus::cuda_detail::attention {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kRowsOfWarp = 4, kRows = kWarps * kRowsOfWarp, kTile = 64;
constexpr uint32_t kEveryLane = 0xffffffff;

/// A matrix (rows, columns) of each head, columns side by side; steps are in elements.
template <class T>
struct Rows {
  T* data;
  int64_t image, head, row;
  int columns;

  __device__ T* of(int which_image, int which_head) const { return data + which_image * image + which_head * head; }
};

struct Sizes {
  int images, heads, queries, keys;
};

/// What is added to the scores, with steps of 0 where it is broadcast; none: data is null.
struct Mask {
  const void* data = nullptr;
  bool boolean = false;
  int64_t image = 0, head = 0, row = 0, column = 0;
};

/// Numbers of the rule as the kernels take them. `random` draws where keep < 1.
template <class C>
struct Rule {
  C scale, dropout_scale;
  bool causal, drops;
  double keep;
  RandomState random;
};

template <class C>
struct alignas(16) Four {
  C value[4];
};

/// What lies in shared memory: a block's 16 rows, a tile, a number for each row of the tile, and kSides matrices of 16
/// rows over the other side's length.
template <class C, int kHead>
struct Shared {
  static constexpr int kPitch = kHead + 4;  // eight lanes read four elements each from as many banks
  C* memory;
  int pitch;  // of the matrices

  __host__ __device__ static int pitch_for(int length) { return (length + kTile - 1) / kTile * kTile; }
  static size_t bytes(int length, int sides) {
    return sizeof(C) * static_cast<size_t>(kRows * kHead + kTile * kPitch + kTile + sides * kRows * pitch_for(length));
  }
  __device__ C* row(int r) const { return memory + r * kHead; }
  __device__ C* tile(int r) const { return memory + kRows * kHead + r * kPitch; }
  __device__ C* sums() const { return tile(kTile); }
  __device__ C* weights(int side, int r) const { return sums() + kTile + (side * kRows + r) * pitch; }
};

/// kCount rows from `first` on, zeros outside.
template <int kCount, int kHead, class T, class C>
__device__ void load(const T* from, int64_t step, int columns, int first, int count, C* to, int pitch) {
#pragma unroll 16
  for (int k = 0; k < kCount * kHead / kThreads; ++k) {
    const int i = k * kThreads + threadIdx.x, row = i / kHead, column = i % kHead;
    const bool inside = first + row < count && column < columns;
    to[row * pitch + column] = inside ? static_cast<C>(from[(first + row) * step + column]) : C(0);
  }
}

/// Products of a warp's rows with rows lane and lane + 32 of the tile.
template <class C, int kHead>
__device__ void dots(const Shared<C, kHead>& shared, int warp, int lane, C (&sums)[kRowsOfWarp][2]) {
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) sums[r][0] = sums[r][1] = C(0);
#pragma unroll 4
  for (int column = 0; column < kHead; column += 4) {
    Four<C> b[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) b[k] = *reinterpret_cast<const Four<C>*>(shared.tile(lane + 32 * k) + column);
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const auto a = *reinterpret_cast<const Four<C>*>(shared.row(warp * kRowsOfWarp + r) + column);
#pragma unroll
      for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[r][k] += a.value[i] * b[k].value[i];
    }
  }
}

/// Adds the tile's rows, which are `first` + 0 … 63 of the other side, weighted by the warp's rows of a matrix.
template <class C, int kHead>
__device__ void add_weighted(const Shared<C, kHead>& shared, int side, int first, int warp, int lane,
                             C (&sums)[kRowsOfWarp][kHead / 32]) {
#pragma unroll 2
  for (int j = 0; j < kTile; j += 4) {
    Four<C> weights[kRowsOfWarp];
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r)
      weights[r] = *reinterpret_cast<const Four<C>*>(shared.weights(side, warp * kRowsOfWarp + r) + first + j);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int k = 0; k < kHead / 32; ++k) {
        const C value = shared.tile(j + i)[lane + 32 * k];
#pragma unroll
        for (int r = 0; r < kRowsOfWarp; ++r) sums[r][k] += weights[r].value[i] * value;
      }
  }
}

template <class T, class C, int kHead>
__device__ void store(const C (&sums)[kRowsOfWarp][kHead / 32], C scale, T* to, int64_t step, int columns, int first,
                      int count, int warp, int lane) {
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r)
#pragma unroll
    for (int k = 0; k < kHead / 32; ++k) {
      const int row = first + warp * kRowsOfWarp + r, column = lane + 32 * k;
      if (row < count && column < columns) to[row * step + column] = static_cast<T>(sums[r][k] * scale);
    }
}

/// Sums over the lanes, of several numbers side by side.
template <class C, int kCount>
__device__ void warp_sum(C (&values)[kCount]) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += __shfl_xor_sync(kEveryLane, values[i], distance);
}
template <class C>
__device__ C larger(C a, C b) {
  return a < b || b != b ? b : a;  // a NaN stays
}

/// Grid: heads times parts of 16 queries. weights and kept are (N, H, L, S) without gaps; kept is null without dropout.
template <class T, int kHead>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Sizes sizes, Rule<compute_t<T>> rule, Rows<const T> q, Rows<const T> k, Rows<const T> v, Mask mask,
                   T* weights, bool* kept, Rows<T> y) {
  using C = compute_t<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  const Shared<C, kHead> shared{reinterpret_cast<C*>(memory), Shared<C, kHead>::pitch_for(sizes.keys)};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int parts = (sizes.queries + kRows - 1) / kRows, which = blockIdx.x / parts;
  const int first = blockIdx.x % parts * kRows, image = which / sizes.heads, head = which % sizes.heads;
  const auto row_of = [&](int r) { return first + warp * kRowsOfWarp + r; };
  const auto place = [&](int row, int key) {
    return (static_cast<int64_t>(which) * sizes.queries + row) * sizes.keys + key;
  };

  load<kRows, kHead>(q.of(image, head), q.row, q.columns, first, sizes.queries, shared.row(0), kHead);
  for (int tile = 0; tile < sizes.keys; tile += kTile) {
    load<kTile, kHead>(k.of(image, head), k.row, k.columns, tile, sizes.keys, shared.tile(0), shared.kPitch);
    __syncthreads();
    C scores[kRowsOfWarp][2];
    dots(shared, warp, lane, scores);
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = tile + lane + 32 * half, row = row_of(r);
        C score = scores[r][half] * rule.scale;
        if (mask.data && row < sizes.queries && key < sizes.keys) {
          const int64_t at = image * mask.image + head * mask.head + row * mask.row + key * mask.column;
          if (!mask.boolean) score += static_cast<C>(static_cast<const T*>(mask.data)[at]);
          else if (!static_cast<const bool*>(mask.data)[at]) score = -INFINITY;
        }
        if (key >= sizes.keys || (rule.causal && key > row)) score = -INFINITY;
        shared.weights(0, warp * kRowsOfWarp + r)[key] = score;
      }
    __syncthreads();
  }

  // The softmax of the warp's rows side by side, and dropout.
  const uint64_t offset = rule.random.offset + (rule.random.device_offset ? *rule.random.device_offset : 0);
  C largest[kRowsOfWarp], sum[kRowsOfWarp];
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) largest[r] = -INFINITY, sum[r] = 0;
  for (int key = lane; key < sizes.keys; key += 32)
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r)
      largest[r] = larger(largest[r], shared.weights(0, warp * kRowsOfWarp + r)[key]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r)
      largest[r] = larger(largest[r], __shfl_xor_sync(kEveryLane, largest[r], distance));
  for (int key = lane; key < sizes.keys; key += 32)
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      C& score = shared.weights(0, warp * kRowsOfWarp + r)[key];
      score = ::exp(score - largest[r]), sum[r] += score;
    }
  warp_sum(sum);
  for (int key = lane; key < shared.pitch; key += 32)
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      C& power = shared.weights(0, warp * kRowsOfWarp + r)[key];
      const int row = row_of(r);
      C weight = key < sizes.keys ? power / sum[r] : C(0);
      if (key < sizes.keys && row < sizes.queries) {
        const int64_t at = place(row, key);
        weights[at] = static_cast<T>(weight);
        if (rule.drops) {
          const bool stays = random_bernoulli(rule.random.seed, offset, static_cast<uint64_t>(at), rule.keep);
          kept[at] = stays;
          weight = stays ? weight * rule.dropout_scale : C(0);
        }
      }
      power = weight;
    }

  C sums[kRowsOfWarp][kHead / 32] = {};
  for (int tile = 0; tile < sizes.keys; tile += kTile) {
    load<kTile, kHead>(v.of(image, head), v.row, v.columns, tile, sizes.keys, shared.tile(0), shared.kPitch);
    __syncthreads();
    add_weighted(shared, 0, tile, warp, lane, sums);
    __syncthreads();
  }
  store<T, C, kHead>(sums, C(1), y.of(image, head), y.row, y.columns, first, sizes.queries, warp, lane);
}

/// What the gradients are made of.
template <class T>
struct Saved {
  Rows<const T> dy, y, q, k, v;
  const T* weights;
  const bool* kept;
};

/// A weight and whether dropout left it: read early, used where the products are there.
template <class C>
struct Weight {
  C value, factor;
  template <class T>
  __device__ void read(const Saved<T>& saved, const Rule<C>& rule, bool inside, int64_t at) {
    value = inside ? static_cast<C>(saved.weights[at]) : C(0);
    factor = !rule.drops ? C(1) : inside && saved.kept[at] ? rule.dropout_scale : C(0);
  }
  /// dscore = weight (dweight - sum of dy y along the row), from the product of dy and v.
  __device__ C slope(C product, C of_row) const { return value * (product * factor - of_row); }
};

/// Products of kCount rows of dy, of which the first lies at `dy`, the others `step` rows behind each other, with those
/// of y; 0 from row `count` on.
template <class T, class C, int kHead, int kCount>
__device__ void row_products(const C* dy, int pitch, const T* y, const Rows<const T>& layout, int first, int step,
                             int count, int lane, C (&products)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    products[i] = 0;
#pragma unroll
    for (int k = 0; k < kHead / 32; ++k) {
      const int column = lane + 32 * k, row = first + i * step;
      if (column < layout.columns && row < count)
        products[i] += dy[i * step * pitch + column] * static_cast<C>(y[row * layout.row + column]);
    }
  }
  warp_sum(products);
}

/// dq of 16 queries.
template <class T, int kHead>
__device__ void query_gradients(const Sizes& sizes, const Rule<compute_t<T>>& rule, const Saved<T>& saved,
                                const Rows<T>& dq, const Shared<compute_t<T>, kHead>& shared, int which, int first) {
  using C = compute_t<T>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, image = which / sizes.heads, head = which % sizes.heads;
  const auto& [dy, y, q, k, v, weights, kept] = saved;
  load<kRows, kHead>(dy.of(image, head), dy.row, dy.columns, first, sizes.queries, shared.row(0), kHead);
  C of_row[kRowsOfWarp];
  for (int tile = 0; tile < sizes.keys; tile += kTile) {
    load<kTile, kHead>(v.of(image, head), v.row, v.columns, tile, sizes.keys, shared.tile(0), shared.kPitch);
    Weight<C> saved_weights[kRowsOfWarp][2];
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = tile + lane + 32 * half, row = first + warp * kRowsOfWarp + r;
        saved_weights[r][half].read(saved, rule, row < sizes.queries && key < sizes.keys,
                                    (static_cast<int64_t>(which) * sizes.queries + row) * sizes.keys + key);
      }
    __syncthreads();
    if (tile == 0)
      row_products<T, C, kHead>(shared.row(warp * kRowsOfWarp), kHead, y.of(image, head), y, first + warp * kRowsOfWarp,
                                1, sizes.queries, lane, of_row);
    C products[kRowsOfWarp][2];
    dots(shared, warp, lane, products);
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        shared.weights(0, warp * kRowsOfWarp + r)[tile + lane + 32 * half] =
            saved_weights[r][half].slope(products[r][half], of_row[r]);
    __syncthreads();
  }
  C sums[kRowsOfWarp][kHead / 32] = {};
  for (int tile = 0; tile < sizes.keys; tile += kTile) {
    load<kTile, kHead>(k.of(image, head), k.row, k.columns, tile, sizes.keys, shared.tile(0), shared.kPitch);
    __syncthreads();
    add_weighted(shared, 0, tile, warp, lane, sums);
    __syncthreads();
  }
  store<T, C, kHead>(sums, rule.scale, dq.of(image, head), dq.row, dq.columns, first, sizes.queries, warp, lane);
}

/// dk and dv of 16 keys.
template <class T, int kHead>
__device__ void key_gradients(const Sizes& sizes, const Rule<compute_t<T>>& rule, const Saved<T>& saved,
                              const Rows<T>& dk, const Rows<T>& dv, const Shared<compute_t<T>, kHead>& shared,
                              int which, int first) {
  using C = compute_t<T>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, image = which / sizes.heads, head = which % sizes.heads;
  const auto& [dy, y, q, k, v, weights, kept] = saved;
  load<kRows, kHead>(v.of(image, head), v.row, v.columns, first, sizes.keys, shared.row(0), kHead);
  C sums[kRowsOfWarp][kHead / 32] = {};
  for (int tile = 0; tile < sizes.queries; tile += kTile) {
    load<kTile, kHead>(dy.of(image, head), dy.row, dy.columns, tile, sizes.queries, shared.tile(0), shared.kPitch);
    Weight<C> saved_weights[kRowsOfWarp][2];
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = tile + lane + 32 * half, key = first + warp * kRowsOfWarp + r;
        saved_weights[r][half].read(saved, rule, query < sizes.queries && key < sizes.keys,
                                    (static_cast<int64_t>(which) * sizes.queries + query) * sizes.keys + key);
      }
    __syncthreads();
    constexpr int kOfWarp = kTile / kWarps;
    C of_rows[kOfWarp];
    row_products<T, C, kHead>(shared.tile(warp), shared.kPitch, y.of(image, head), y, tile + warp, kWarps,
                              sizes.queries, lane, of_rows);
#pragma unroll
    for (int i = 0; i < kOfWarp; ++i)
      if (lane == i) shared.sums()[warp + i * kWarps] = of_rows[i];
    __syncthreads();
    C products[kRowsOfWarp][2];
    dots(shared, warp, lane, products);
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int place = lane + 32 * half;
        const Weight<C>& weight = saved_weights[r][half];
        shared.weights(0, warp * kRowsOfWarp + r)[tile + place] = weight.value * weight.factor;
        shared.weights(1, warp * kRowsOfWarp + r)[tile + place] = weight.slope(products[r][half], shared.sums()[place]);
      }
    __syncwarp();
    add_weighted(shared, 0, tile, warp, lane, sums);
    __syncthreads();
  }
  store<T, C, kHead>(sums, C(1), dv.of(image, head), dv.row, dv.columns, first, sizes.keys, warp, lane);
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r)
#pragma unroll
    for (int i = 0; i < kHead / 32; ++i) sums[r][i] = C(0);
  for (int tile = 0; tile < sizes.queries; tile += kTile) {
    load<kTile, kHead>(q.of(image, head), q.row, q.columns, tile, sizes.queries, shared.tile(0), shared.kPitch);
    __syncthreads();
    add_weighted(shared, 1, tile, warp, lane, sums);
    __syncthreads();
  }
  store<T, C, kHead>(sums, rule.scale, dk.of(image, head), dk.row, dk.columns, first, sizes.keys, warp, lane);
}

/// Grid: heads times parts of 16 keys, then heads times parts of 16 queries.
template <class T, int kHead>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(Sizes sizes, Rule<compute_t<T>> rule, Saved<T> saved, Rows<T> dq, Rows<T> dk, Rows<T> dv) {
  using C = compute_t<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  const int key_parts = (sizes.keys + kRows - 1) / kRows, query_parts = (sizes.queries + kRows - 1) / kRows;
  const int key_blocks = sizes.images * sizes.heads * key_parts, block = blockIdx.x;
  const bool of_keys = block < key_blocks;
  const int length = of_keys ? sizes.queries : sizes.keys, parts = of_keys ? key_parts : query_parts;
  const int which = (of_keys ? block : block - key_blocks) / parts;
  const int first = (of_keys ? block : block - key_blocks) % parts * kRows;
  const Shared<C, kHead> shared{reinterpret_cast<C*>(memory), Shared<C, kHead>::pitch_for(length)};
  if (of_keys) key_gradients<T, kHead>(sizes, rule, saved, dk, dv, shared, which, first);
  else query_gradients<T, kHead>(sizes, rule, saved, dq, shared, which, first);
}

}  // namespace gradus::cuda_detail::attention
