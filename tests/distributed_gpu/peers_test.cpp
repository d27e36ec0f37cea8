// The sums of GPUs that access each other's memory, tested without NVLink: the ranks are streams of one GPU.
#include <cstdlib>

#include <gradus/distributed/comm/nccl/peer_memory.h>
#include <gradus/gradus.h>
#include <gradus/tests/distributed_gpu/support.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

/// The summands differ between rounds, so that a leftover of an earlier round gives a wrong result. They repeat after
/// kSummandPeriod.
constexpr int64_t kSummandPeriod = 13;
double summand(int rank, int round, int64_t i) {
  return static_cast<double>((i * 7 + rank * 3 + round * 11) % kSummandPeriod);
}

template <class T>
Array summands(int rank, int round, int64_t count) {
  Array x = Array::empty({count}, dtype_of<T>);
  for (int64_t i = 0; i < count; ++i) x.data<T>()[i] = static_cast<T>(summand(rank, round, i));
  return x;
}

/// The memory of all ranks, and a stream for each.
struct StreamRanks {
  std::vector<Array> memory;
  std::vector<Peers> peers;
  std::vector<Stream> streams;
  Array stopped = on_device(contribution<int32_t>(0, 1));  // element(0, 0) = 0

  StreamRanks(int ranks, size_t staging, size_t slot) : peers(static_cast<size_t>(ranks)) {
    Peers all{{}, 0, ranks, staging, slot, stopped.data<int>()};
    for (int r = 0; r < ranks; ++r) {
      memory.push_back(on_device(zeros({static_cast<int64_t>(all.bytes())}, kByte).array()));
      all.memory[r] = static_cast<std::byte*>(memory.back().data());
      streams.push_back(cuda::new_stream());
    }
    for (int r = 0; r < ranks; ++r) peers[static_cast<size_t>(r)] = all, peers[static_cast<size_t>(r)].rank = r;
  }
};

/// Computes sums of these counts, one after the other on each stream. Sums that exceed the staging memory go by shares.
template <class T>
void check_sums(int ranks, const std::vector<int64_t>& counts) {
  StreamRanks on(ranks, size_t{1} << 20, size_t{4} << 20);
  const auto rounds = static_cast<int>(counts.size());
  std::vector<std::vector<Array>> arrays(static_cast<size_t>(rounds));
  for (int round = 0; round < rounds; ++round)
    for (int r = 0; r < ranks; ++r)
      arrays[static_cast<size_t>(round)].push_back(
          on_device(summands<T>(r, round, counts[static_cast<size_t>(round)])));
  for (int r = 0; r < ranks; ++r)  // the first stream waits until the last one has its work
    for (int round = 0; round < rounds; ++round) {
      const Array& x = arrays[static_cast<size_t>(round)][static_cast<size_t>(r)];
      const Stream& stream = on.streams[static_cast<size_t>(r)];
      const Peers& peers = on.peers[static_cast<size_t>(r)];
      if (x.nbytes() > peers.staging) {
        all_reduce_shares(stream, peers, x.dtype(), ReduceKind::avg, x.data(), x.data(),
                          static_cast<size_t>(x.numel()));
      } else {
        PeerLines lines;
        lines.in[0] = lines.out[0] = x.data(), lines.count[0] = static_cast<uint32_t>(x.numel()), lines.size = 1;
        all_reduce_lines(stream, peers, x.dtype(), ReduceKind::avg, lines);
      }
    }
  cuda::synchronize();
  for (int round = 0; round < rounds; ++round)
    for (int r = 0; r < ranks; ++r) {
      const auto average = [&](int64_t i) {
        double sum = 0;
        for (int other = 0; other < ranks; ++other) sum += summand(other, round, i);
        return sum / ranks;
      };
      const int64_t count = counts[static_cast<size_t>(round)];
      require(equals<T>(on_host(arrays[static_cast<size_t>(round)][static_cast<size_t>(r)]), 0, count, average,
                        kSummandPeriod),
              std::to_string(ranks) + " ranks, round " + std::to_string(round) + " of " + std::to_string(count) + " " +
                  std::string(type_name(dtype_of<T>)) + ", rank " + std::to_string(r));
    }
}

}  // namespace

TEST_CASE("successive sums in each other's memory do not mix, in one kernel or by shares") {
  if (fewer_gpus_than(1)) return;
  dist::spawn(
      [](int) {
        // Without this, a kernel that is loaded when it is first needed waits for the running kernels of other streams.
        setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/1);
        for (const int ranks : {2, 4}) {
          check_sums<float>(ranks, {1'000'001, 300'001, 1'000'001, 17, 600'000, 900'000, 5, 1, 900'000, 800'000});
          check_sums<double>(ranks, {500'001, 3, 400'000, 400'003});
          check_sums<BFloat16>(ranks, {1'500'001, 1'500'001, 7, 1'499'999});
        }
      },
      1);
}
