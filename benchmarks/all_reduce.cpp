// Measures all-reduce between processes of this machine, for several sizes: over TCP (a root sums, or all ranks sum),
// through shared memory, with arrays that are in shared memory, and by Gloo if it is installed. Also measures two lower
// limits: sending the messages of two ranks without adding, and reading all operands without doing anything else. The
// program alternates between these ways in rounds; each figure is the median of all calls in all rounds. Started by
// Open MPI's mpirun, it measures only Open MPI or, with --mpi, only the backend 'mpi'. all_reduce.py runs all variants.
//
// Algorithm bandwidth is bytes divided by time. Bus bandwidth is algorithm bandwidth times 2 (n - 1) / n, because each
// of n ranks must send at least this share of the bytes.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include <gradus/benchmarks/all_reduce/limits.h>
#include <gradus/benchmarks/all_reduce/peer.h>
#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/core/error.h>
#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/comm/shm/shm_group.h>
#include <gradus/distributed/comm/tcp/tcp_group.h>

using namespace gradus;
using namespace gradus::benchmarks;

namespace {

struct Settings {
  int ranks = 2, rounds = 3;
  double seconds = 0.2;
  int64_t smallest = 1 << 10, largest = 64 << 20;
  std::string json;
  bool mpi = false;
};

/// One way to sum: its name, and a function that sums `bytes` bytes, which are already in the memory that it needs.
struct Way {
  std::string name;
  std::function<float*(int64_t bytes)> buffer;
  AllReduce all_reduce;
};

/// The processes that measure together.
struct Job {
  int rank = 0, size = 1;
  std::function<int64_t(int64_t)> broadcast;  // returns rank 0's value on all ranks
};

/// Measures as many calls as fit into `seconds` on rank 0. Returns the milliseconds of each.
std::vector<double> measure(const Way& way, const Job& job, int64_t bytes, double seconds) {
  float* x = way.buffer(bytes);
  const int64_t count = bytes / 4;
  std::fill_n(x, count, 1.0f);
  for (int i = 0; i < 3; ++i) way.all_reduce(x, count);
  const double begin = now_ms();
  way.all_reduce(x, count);
  const auto fit = static_cast<int64_t>(seconds * 1000 / (now_ms() - begin));
  const int64_t calls = job.broadcast(std::clamp<int64_t>(fit, 5, 20'000));
  std::vector<double> samples;
  for (int64_t i = 0; i < calls; ++i) {
    const double before = now_ms();
    way.all_reduce(x, count);
    samples.push_back(now_ms() - before);
  }
  return samples;
}

/// Returns the sizes to measure: powers of two, and the default bucket size of DistributedDataParallel.
std::vector<int64_t> sizes_of(const Settings& settings) {
  constexpr int64_t kBucket = 25 << 20;
  std::vector<int64_t> sizes;
  for (int64_t bytes = settings.smallest; bytes <= settings.largest; bytes *= 2) {
    sizes.push_back(bytes);
    if (bytes < kBucket && kBucket < 2 * bytes && kBucket <= settings.largest) sizes.push_back(kBucket);
  }
  return sizes;
}

void measure_all(const Settings& settings, const Job& job, const std::vector<Way>& ways, const std::string& pacing) {
  if (job.rank == 0) {
    std::printf("%d ranks; tcp paced by %s\n%10s", job.size, pacing.c_str(), "bytes");
    for (const Way& way : ways) std::printf("  %24s", way.name.c_str());
    std::printf("   (us, GB/s of the bus)\n");
  }
  nlohmann::json rows;
  for (const int64_t bytes : sizes_of(settings)) {
    std::vector<std::vector<double>> samples(ways.size());
    for (int round = 0; round < settings.rounds; ++round)
      for (size_t i = 0; i < ways.size(); ++i) {
        const std::vector<double> more = measure(ways[i], job, bytes, settings.seconds);
        samples[i].insert(samples[i].end(), more.begin(), more.end());
      }
    if (job.rank != 0) continue;
    std::printf("%10lld", static_cast<long long>(bytes));
    nlohmann::json row = {{"bytes", bytes}};
    for (size_t i = 0; i < ways.size(); ++i) {
      const double us = median(samples[i]) * 1e3, bus = 2.0 * (job.size - 1) / job.size;
      std::printf("  %14.1f %9.2f", us, static_cast<double>(bytes) / us / 1e3 * bus);
      row[ways[i].name] = us;
    }
    std::printf("\n");
    std::fflush(stdout);
    rows.push_back(row);
  }
  if (job.rank == 0 && !settings.json.empty())
    std::ofstream(settings.json) << nlohmann::json{{"ranks", job.size}, {"tcp_paced_by", pacing}, {"rows", rows}}
                                 << "\n";
}

/// Returns the kernel's default algorithm for congestion control.
std::string default_pacing() {
  std::string name;
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> name;
  return name;
}

std::function<float*(int64_t)> in(const Array& memory) {
  return [&memory](int64_t) { return memory.data<float>(); };
}

AllReduce by(dist::ProcessGroup& group, const Array& memory) {
  return [&group, &memory](float*, int64_t count) { group.all_reduce(memory.slice(0, 0, count)); };
}

std::function<int64_t(int64_t)> broadcast_by(dist::ProcessGroup& group) {
  return [&group](int64_t value) {
    const Array x = Array::empty({1}, DType::i64);
    *x.data<int64_t>() = value;
    group.broadcast(x, 0);
    return *x.data<int64_t>();
  };
}

void run_rank(const Settings& settings, int rank, const std::string& directory) {
  const auto tcp_group = dist::init_process_group({.backend = "tcp"}),
             shm_group = dist::init_process_group({.backend = "shm"});
  auto& tcp = dynamic_cast<dist::TcpGroup&>(*tcp_group);
  auto& shm = dynamic_cast<dist::ShmGroup&>(*shm_group);
  const Array own = Array::empty({settings.largest / 4}, DType::f32);
  const Array shared = shm.empty({settings.largest / 4}, DType::f32);
  const auto naive = [&](float*, int64_t count) {
    const Array x = own.slice(0, 0, count);
    tcp.reduce(x, 0);
    tcp.broadcast(x, 0);
  };
  std::vector<Way> ways = {{"tcp, naive", in(own), naive},
                           {"tcp", in(own), by(tcp, own)},
                           {"shm", in(own), by(shm, own)},
                           {"shm, its own arrays", in(shared), by(shm, shared)},
                           {"shm, reading alone", in(own), [&](float* x, int64_t count) {
                              shm.barrier();
                              read_alone(x, count);
                              shm.barrier();
                            }}};
  std::optional<SocketsAlone> sockets;
  if (settings.ranks == 2) {
    sockets.emplace(tcp);
    ways.push_back({"tcp, sockets alone", in(own), [&](float* x, int64_t count) { sockets->exchange(x, count); }});
  }
  if (AllReduce gloo = gloo_all_reduce(rank, settings.ranks, directory))
    ways.push_back({"Gloo, " + default_pacing(), in(own), gloo});
  measure_all(settings, {rank, settings.ranks, broadcast_by(tcp)}, ways, tcp.congestion_control());
  tcp.barrier();
}

void run_mpi(const Settings& settings) {
  const auto group = dist::init_process_group({.backend = "mpi"});
  const Array own = Array::empty({settings.largest / 4}, DType::f32);
  measure_all(settings, {group->rank(), group->size(), broadcast_by(*group)},
              {{"mpi, " + OpenMpi::transport(), in(own), by(*group, own)}}, default_pacing());
}

void run_open_mpi(const Settings& settings) {
  const OpenMpi mpi;
  const Array own = Array::empty({settings.largest / 4}, DType::f32);
  measure_all(settings, {mpi.rank, mpi.size, [&](int64_t value) { return mpi.broadcast(value); }},
              {{mpi.name, in(own), mpi.all_reduce}}, default_pacing());
}

void run_ranks(const Settings& settings) {
  std::string directory = (std::filesystem::temp_directory_path() / "gradus-all-reduce-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) GRADUS_FAIL(IoError, "cannot make the folder ", directory);
  try {
    dist::spawn([&](int rank) { run_rank(settings, rank, directory); }, settings.ranks);
  } catch (...) {
    std::filesystem::remove_all(directory);
    throw;
  }
  std::filesystem::remove_all(directory);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  Program program("all_reduce", "All-reduce between processes of this machine");
  program.option("--ranks", settings.ranks, "number of processes");
  program.option("--rounds", settings.rounds, "number of rounds; each round measures every way");
  program.option("--seconds", settings.seconds, "time for calls per round, way and size");
  program.option("--smallest", settings.smallest, "smallest size in bytes");
  program.option("--largest", settings.largest, "largest size in bytes");
  program.option("--json", settings.json, "file for the results, in microseconds");
  program.flag("--mpi", settings.mpi, "under mpirun: the backend 'mpi' instead of Open MPI's own all-reduce");
  return program.run(argc, argv, [&] {
    if (OpenMpi::has_started_this_process()) return settings.mpi ? run_mpi(settings) : run_open_mpi(settings);
    run_ranks(settings);
  });
}
