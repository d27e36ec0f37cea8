// Chooses the kernels for attention and recurrent layers, and plans their tiles.
#include <gradus/backends/cuda/sequence/select.h>

namespace gradus::cuda_detail {
namespace {

// "forward_float32", "backward_float32", "forward_tf32", …
std::vector<std::string> kinds() {
  std::vector<std::string> all;
  for (const char* type : kProductTypes)
    for (const char* pass : {"forward_", "backward_"}) all.push_back(std::string(pass) + type);
  return all;
}

int64_t element(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }

// The work of operators that run one after the other: matrix products by cuBLASLt, and kernels between them.
enum ProductPart : size_t { kProductMultiplyAdds, kProductTiles, kProductBytes, kOtherBytes, kKernels };
constexpr WorkParts kProductParts = {{{"multiply_adds", WorkLimit::multiply_adds},
                                      {"tiles", WorkLimit::multiply_adds},
                                      {"product_bytes", WorkLimit::bytes},
                                      {"other_bytes", WorkLimit::bytes},
                                      {"kernels", WorkLimit::calls}}};

// Adds `batch` products of (M, K) and (K, N), `times` times. Tiles of 64 x 64 count the empty part, and idle
// multiprocessors.
void add_products(KernelWork& work, const DeviceProperties& device, DType dtype, MathMode mode, int64_t times,
                  int64_t batch, int64_t M, int64_t N, int64_t K) {
  constexpr int64_t kTile = 64;
  const double at_once = multiply_adds_at_once(dtype, mode);
  const int64_t tiles = batch * ceil_div(M, kTile) * ceil_div(N, kTile);
  const int64_t SMs = device.multiprocessors;
  work[kProductMultiplyAdds] += number(times * batch * M * N * K) / at_once;
  work[kProductTiles] += number(times * round_up(tiles, SMs) * kTile * kTile * K) / at_once;
  work[kProductBytes] += number(times * batch * (M * K + K * N + M * N) * element(dtype));
  work[kKernels] += number(times);
}

// ---- attention ----

// The bytes of shared memory that a block needs. The block computes 16 rows of one operand (queries, or keys in a
// backward pass) against all `length` rows of the other operand. It stores these 16 rows, a tile of the other operand,
// a number for each row of the tile, and `matrices` matrices of 16 rows and `length` columns.
size_t attention_bytes(size_t element, int head, int64_t length, int matrices) {
  const int numbers = kAttentionRows * head + kAttentionTile * (head + kAttentionPad) + kAttentionTile +
                      matrices * kAttentionRows * attention_pitch(static_cast<int>(length));
  return element * static_cast<size_t>(numbers);
}

int head_of(const AttentionProblem& p) { return p.columns() <= 32 ? 32 : p.columns() <= 64 ? 64 : 128; }
size_t bytes_of_keys(const AttentionProblem& p) {
  return attention_bytes(p.dtype == DType::f64 ? 8 : 4, head_of(p), p.keys(), 1);
}
size_t bytes_of_both(const AttentionProblem& p) {
  return std::max(bytes_of_keys(p), attention_bytes(p.dtype == DType::f64 ? 8 : 4, head_of(p), p.queries(), 2));
}

// Forward and backward can run the same problems.
bool can_tile(const AttentionProblem& p) {
  constexpr int64_t kMostColumns = 128, kLongest = 1 << 16;
  if (!p.dense || p.is_empty() || p.columns() > kMostColumns) return false;
  return p.queries() <= kLongest && p.keys() <= kLongest && bytes_of_both(p) <= p.device.shared_memory;
}

AttentionPlan plan_attention_tiles(const AttentionProblem& p) {
  const int64_t blocks =
      ceil_div(p.queries(), int64_t{kAttentionRows}) + (p.backward ? ceil_div(p.keys(), int64_t{kAttentionRows}) : 0);
  return {.algorithm = &kAttentionTiles,
          .head = head_of(p),
          .blocks = u32(p.heads() * blocks),
          .shared_bytes = p.backward ? bytes_of_both(p) : bytes_of_keys(p)};
}

// A block multiplies its 16 rows with each tile of 64 rows of the other operand twice (backward: four times). Random
// numbers for dropout take about as long as another product.
KernelWork attention_tiles_work(const AttentionProblem& p) {
  constexpr int64_t kMostBlocks = 8;
  const AttentionPlan plan = plan_attention_tiles(p);
  const int64_t operands = numel_of(p.q) + numel_of(p.k) + numel_of(p.v);
  const int64_t weights = p.heads() * p.queries() * p.keys();
  const double bytes = number((operands * (p.backward ? 2 : 1) + weights) * element(p.dtype));
  WorkCounter counter(p.device, p.dtype, MathMode::fma, bytes);
  const int64_t resident =
      std::clamp<int64_t>(static_cast<int64_t>(p.device.shared_memory / plan.shared_bytes), 1, kMostBlocks);
  const int64_t others = p.backward ? std::max(p.queries(), p.keys()) : p.keys();
  counter.add_tiles({.blocks = plan.blocks,
                     .resident = resident,
                     .steps = (p.backward  ? 4
                               : p.dropout ? 3
                                           : 2) *
                              ceil_div(others, int64_t{kAttentionTile}),
                     .multiply_adds = int64_t{kAttentionRows} * kAttentionTile * plan.head,
                     .bytes = kAttentionTile * plan.head * element(p.dtype)});
  return counter.work();
}

KernelWork attention_products_work(const AttentionProblem& p) {
  const int64_t heads = p.heads(), L = p.queries(), S = p.keys(), E = p.q[3], V = p.v[3];
  const double weights = number(heads * L * S * element(p.dtype));
  const double rows = number((numel_of(p.q) + numel_of(p.k) + numel_of(p.v)) * element(p.dtype));
  KernelWork work = {};
  const auto add = [&](int64_t times, int64_t M, int64_t N, int64_t K) {
    add_products(work, p.device, p.dtype, p.mode(), times, heads, M, N, K);
  };
  // Kernels between products, and how often they read or write the weights.
  double kernels = 2, passes = 2;
  if (!p.backward) {
    add(1, L, S, E), add(1, L, V, S);
    if (p.masked) kernels += 1, passes += 2;
    if (p.dropout) kernels += 4, passes += 7;
  } else {
    add(1, L, S, V), add(1, S, V, L), add(1, L, E, S), add(1, S, E, L);
    passes += 3;
    if (p.dropout) kernels += 6, passes += 10;
  }
  if (!p.even) kernels += p.backward ? 7 : 4, work[kOtherBytes] += 2 * rows;
  work[kOtherBytes] += passes * weights;
  work[kKernels] += kernels;
  return scaled_to(p.device, kProductParts, work);
}

// ---- Recurrent layers ----

RecurrentPlan plan_clusters(const RecurrentProblem& p) {
  const int64_t cluster = recurrent_cluster(p.size);
  const int64_t clusters = ceil_div(p.batch, int64_t{kClusterSequences});
  const int64_t columns = p.backward ? gates_of(p.cell) * cluster * kClusterUnits * kClusterPitch : 0;
  return {&kRecurrentClusters, u32(cluster), u32(cluster * clusters), sizeof(float) * static_cast<size_t>(columns)};
}

bool can_cluster(const RecurrentProblem& p) {
  constexpr int64_t kMost = int64_t{1} << 24;  // grid sizes and step numbers have 32 bits
  constexpr size_t kExchangeBytes = 20 << 10;  // at most, of numbers that the blocks of a cluster exchange
  const auto within = [](int64_t n, int64_t limit) { return n > 0 && n <= limit; };
  return p.contiguous && !p.projected && p.device.has_clusters() && p.dtype != DType::f64 &&
         within(p.length, kMost - 1) && within(p.batch, kMost - 1) && within(p.size, kMostRecurrentUnits) &&
         plan_clusters(p).shared_bytes + kExchangeBytes <= p.device.shared_memory;
}

// States, and sums of a step.
double recurrent_bytes(const RecurrentProblem& p) {
  const int64_t states = p.length * p.batch * p.size;
  return number((2 * sums_of(p.cell) + (p.backward ? 3 : 2)) * states * element(p.dtype));
}

// A step of a cluster multiplies the states of its sequences with all weights, which are in registers. These registers
// decide how many blocks a multiprocessor can run.
KernelWork clusters_work(const RecurrentProblem& p) {
  const RecurrentPlan plan = plan_clusters(p);
  const int64_t gates = gates_of(p.cell), size = plan.cluster * kClusterUnits;
  WorkCounter counter(p.device, p.dtype, MathMode::fma, recurrent_bytes(p));
  counter.add_tiles({.blocks = plan.blocks,
                     .resident = (gates == 1 ? 16 : 8) / plan.cluster,
                     .steps = p.length,
                     .multiply_adds = kClusterSequences * gates * kClusterUnits * size});
  counter.add(kTileBytes, plan.blocks / plan.cluster * gates * p.size * p.size * element(p.dtype));
  return counter.work();
}

KernelWork steps_work(const RecurrentProblem& p) {
  KernelWork work = {};
  const int64_t H = p.size, rows = gates_of(p.cell) * H;
  add_products(work, p.device, p.dtype, p.mode(), p.length, 1, p.batch, p.backward ? H : rows, p.backward ? rows : H);
  work[kOtherBytes] = recurrent_bytes(p);
  work[kKernels] += number(p.length * (p.backward ? 2 : 1));  // cells, and sums of gradients
  return scaled_to(p.device, kProductParts, work);
}

}  // namespace

constinit const AttentionAlgorithm kAttentionTiles = {.name = "tiles",
                                                      .reason = "short sequences",
                                                      .parts = kTileParts,
                                                      .can_run = can_tile,
                                                      .work = attention_tiles_work,
                                                      .plan = plan_attention_tiles,
                                                      .launch = {}};

constinit const AttentionAlgorithm kAttentionProducts = {
    .name = "products",
    .reason = "long sequences, or operands without dense rows",
    .parts = kProductParts,
    .can_run = [](const AttentionProblem&) { return true; },
    .work = attention_products_work,
    .plan = [](const AttentionProblem&) { return AttentionPlan{.algorithm = &kAttentionProducts}; },
    .launch = {}};

constinit const RecurrentAlgorithm kRecurrentClusters = {.name = "clusters",
                                                         .reason = "a cluster's registers hold the weights",
                                                         .parts = kTileParts,
                                                         .can_run = can_cluster,
                                                         .work = clusters_work,
                                                         .plan = plan_clusters,
                                                         .launch = {}};

constinit const RecurrentAlgorithm kRecurrentSteps = {
    .name = "steps",
    .reason = "large products in each step",
    .parts = kProductParts,
    .can_run = [](const RecurrentProblem&) { return true; },
    .work = steps_work,
    .plan = [](const RecurrentProblem&) { return RecurrentPlan{&kRecurrentSteps}; },
    .launch = {}};

const KernelFamily<AttentionAlgorithm>& attention_family() {
  static const KernelFamily<AttentionAlgorithm> family(
      "cuda_attention", kinds(), {&kAttentionTiles, &kAttentionProducts}, tuned_devices(), tuning_table());
  return family;
}

const KernelFamily<RecurrentAlgorithm>& recurrent_family() {
  static const KernelFamily<RecurrentAlgorithm> family(
      "cuda_recurrent", kinds(), {&kRecurrentClusters, &kRecurrentSteps}, tuned_devices(), tuning_table());
  return family;
}

AttentionPlan select(const AttentionProblem& problem) {
  thread_local RecentPlans<AttentionProblem, AttentionPlan> recent;
  return recent.get(problem, hash_of({problem.heads(), problem.queries(), problem.keys(), problem.backward}),
                    [&] { return attention_family().select(problem).algorithm->plan(problem); });
}

RecurrentPlan select(const RecurrentProblem& problem) {
  thread_local RecentPlans<RecurrentProblem, RecurrentPlan> recent;
  return recent.get(
      problem,
      hash_of({problem.length, problem.batch, problem.size, 4 * problem.backward + static_cast<int>(problem.cell)}),
      [&] { return recurrent_family().select(problem).algorithm->plan(problem); });
}

}  // namespace gradus::cuda_detail
