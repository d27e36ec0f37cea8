// How the backend "cuda" computes attention, and recurrent layers over sequences, decided without a GPU for the
// properties of an H200. The expected decisions are in sequence_plans.txt. After an intended change,
//   GRADUS_WRITE_DECISIONS=1 build/cpu-release/tests/test_cuda "plans of attention and recurrent layers on CUDA are *"
// overwrites that file, and its diff shows what changed.
#include <sstream>

#include <gradus/backends/cuda/sequence/select.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/decisions.h>

using namespace gradus;
using namespace gradus::cuda_detail;

namespace {

AttentionPlan plan_attention(DType dtype, int64_t N, int64_t H, int64_t L, int64_t S, int64_t E, int64_t V,
                             bool backward, const DeviceProperties& device = kH200) {
  return select(AttentionProblem{
      .dtype = dtype, .q = {N, H, L, E}, .k = {N, H, S, E}, .v = {N, H, S, V}, .backward = backward, .device = device});
}

RecurrentPlan plan_recurrent(RecurrentCell cell, DType dtype, int64_t L, int64_t N, int64_t H,
                             const DeviceProperties& device = kH200) {
  return select(RecurrentProblem{.cell = cell, .dtype = dtype, .length = L, .batch = N, .size = H, .device = device});
}

}  // namespace

TEST_CASE("plans of attention and recurrent layers on CUDA are those written down") {
  std::ostringstream plans;
  plans
      << "# What select() in backends/cuda/sequence decides on an H200. Attention of q (N, H, L, E),\n# k (N, H, S, "
         "E), "
         "v (N, H, S, V): algorithm, head, blocks and bytes of shared memory. Recurrent layers of states\n# (L, N, H): "
         "algorithm, blocks of a cluster and blocks. Written by tests/cuda/sequence_select_test.cpp.\n\n";
  constexpr int64_t heads[][6] = {{16, 4, 64, 64, 32, 32},  {1, 1, 1, 1, 1, 1},        {2, 8, 128, 128, 64, 64},
                                  {2, 8, 129, 129, 64, 64}, {64, 8, 64, 64, 64, 64},   {8, 12, 128, 128, 64, 64},
                                  {4, 4, 100, 30, 96, 128}, {4, 4, 30, 100, 16, 33},   {1, 1, 128, 128, 128, 128},
                                  {1, 1, 16, 16, 129, 16},  {96, 8, 512, 512, 64, 64}, {1, 4, 17, 65, 40, 8}};
  for (const auto& [N, H, L, S, E, V] : heads)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
      for (const bool backward : {false, true}) {
        const AttentionPlan plan = plan_attention(dtype, N, H, L, S, E, V, backward);
        plans << "attention" << (backward ? "_backward" : "") << " " << N << " " << H << " " << L << " " << S << " "
              << E << " " << V << " " << name(dtype) << ": " << plan.algorithm->name << " " << plan.head << " "
              << plan.blocks << " " << plan.shared_bytes << "\n";
      }
  plans << "\n";
  constexpr int64_t states[][3] = {{64, 32, 128},  {64, 33, 128}, {64, 66, 128},  {64, 67, 128},
                                   {64, 32, 65},   {64, 32, 129}, {64, 32, 256},  {64, 33, 256},
                                   {64, 64, 256},  {64, 32, 257}, {28, 128, 128}, {64, 512, 128},
                                   {64, 512, 256}, {1, 1, 1},     {0, 32, 128},   {64, 0, 128}};
  for (const auto& [L, N, H] : states)
    for (const RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::rnn_tanh})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
        const RecurrentPlan plan = plan_recurrent(cell, dtype, L, N, H);
        plans << kRecurrentCellNames[static_cast<size_t>(cell)] << " " << L << " " << N << " " << H << " "
              << name(dtype) << ": " << plan.algorithm->name << " " << plan.cluster << " " << plan.blocks << "\n";
      }
  test::check_decisions("cuda/sequence_plans.txt", plans.str());
}

TEST_CASE("plans of attention on CUDA: operands without dense rows, and devices with little shared memory") {
  AttentionProblem problem{.q = {2, 2, 64, 32}, .k = {2, 2, 64, 32}, .v = {2, 2, 64, 32}};
  CHECK(select(problem).algorithm == &kAttentionTiles);
  problem.dense = false;
  CHECK(select(problem).algorithm == &kAttentionProducts);
  constexpr DeviceProperties turing = limited(kH200, 75, 75);
  for (const bool backward : {false, true}) {  // both passes can run the same problems
    CHECK(plan_attention(DType::f32, 1, 1, 128, 128, 64, 64, backward, turing).shared_bytes <= turing.shared_memory);
    CHECK(plan_attention(DType::f64, 1, 1, 128, 128, 128, 128, backward, turing).algorithm == &kAttentionProducts);
  }
}

TEST_CASE("plans of attention on CUDA: tiles fit in the shared memory of every device, in both passes or in none") {
  size_t most = 0;
  for (const int capability : {75, 80, 86, 89, 90})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
      for (const int64_t queries : {1, 64, 100, 500, 1500, 1 << 17})
        for (const int64_t keys : {1, 64, 100, 500, 1500, 1 << 17})
          for (const int64_t columns : {16, 64, 128, 129}) {
            INFO("sm_" << capability << " " << queries << " x " << keys << " of " << columns);
            const DeviceProperties device = limited(kH200, 90, capability);
            AttentionProblem problem{.dtype = dtype, .device = device};
            problem.q = {2, 3, queries, columns}, problem.k = problem.v = {2, 3, keys, columns};
            const bool can_run = kAttentionTiles.can_run(problem);
            for (const bool backward : {false, true}) {
              problem.backward = backward;
              CHECK(kAttentionTiles.can_run(problem) == can_run);
              if (!can_run) continue;
              const size_t bytes = kAttentionTiles.plan(problem).shared_bytes;
              CHECK(bytes <= device.shared_memory);
              most = std::max(most, bytes);
            }
          }
  CHECK(most > size_t{163} << 10);
}

TEST_CASE("plans of recurrent layers on CUDA: clusters, contiguous operands, and blocks for all sequences") {
  for (const int capability : {75, 80, 86, 89, 90}) {
    const RecurrentPlan plan =
        plan_recurrent(RecurrentCell::gru, DType::f32, 64, 32, 128, limited(kH200, 90, capability));
    CHECK(plan.algorithm == (capability < 90 ? &kRecurrentSteps : &kRecurrentClusters));
  }
  const ForcedAlgorithm forced("clusters");
  for (int64_t N = 1; N < 300; ++N)
    for (const int64_t H : {1, 64, 65, 128, 129, 256}) {
      const RecurrentPlan plan = plan_recurrent(RecurrentCell::lstm, DType::f16, 5, N, H);
      CHECK(plan.cluster == (H <= 128 ? 4 : 8));
      CHECK(plan.blocks % plan.cluster == 0);
      CHECK(plan.blocks / plan.cluster * kClusterSequences >= N);
    }
  const RecurrentProblem possible{.length = 5, .batch = 7, .size = 256};
  RecurrentProblem wide = possible, strided = possible, projected = possible, precise = possible;
  wide.size = 257, strided.contiguous = false, projected.projected = true, precise.dtype = DType::f64;
  CHECK(select(possible).algorithm == &kRecurrentClusters);
  for (const RecurrentProblem& other : {wide, strided, projected, precise})
    CHECK(select(other).algorithm == &kRecurrentSteps);
  // In a backward pass, shared memory holds columns of the weights, which some devices with clusters cannot hold.
  for (const auto& [size, cell] : {std::pair{int64_t{256}, RecurrentCell::lstm}, {128, RecurrentCell::gru}})
    for (const bool backward : {false, true}) {
      RecurrentProblem problem{.cell = cell, .length = 5, .batch = 7, .size = size, .backward = backward};
      const size_t bytes = select(problem).shared_bytes;
      CHECK(bytes == (backward ? static_cast<size_t>(4 * gates_of(cell) * size * 33) : 0));
      problem.device.shared_memory = size_t{99} << 10;
      CHECK(select(problem).algorithm == (backward && size == 256 ? &kRecurrentSteps : &kRecurrentClusters));
    }
}
