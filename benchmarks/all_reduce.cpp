// All-reduce between processes of this machine, by size: over TCP, through shared memory, of arrays that lie in shared memory,
// and by Gloo where it is installed. Rounds alternate between the ways; a figure is the median of all calls of all rounds.
//
// Algorithm bandwidth is bytes by time; bus bandwidth is that times 2 (n - 1) / n, what each rank at least has to send.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <gradus/benchmarks/all_reduce/peer.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/distributed/comm/init.h>
#include <gradus/distributed/comm/shm_group.h>
#include <gradus/distributed/comm/tcp_group.h>

using namespace gradus;
using namespace gradus::benchmarks;

namespace {

struct Settings {
  int ranks = 2, rounds = 3;
  double seconds = 0.2;
  int64_t smallest = 1 << 10, largest = 64 << 20;
  std::string json;
};

/// One way to sum: its name, and what it does to `bytes` bytes that lie where it wants them.
struct Way {
  std::string name;
  std::function<float*(int64_t bytes)> buffer;
  AllReduce all_reduce;
};

/// Calls until `seconds` are over on rank 0, which tells the others how many there will be.
std::vector<double> measure(const Way& way, dist::ProcessGroup& group, int64_t bytes, double seconds) {
  float* x = way.buffer(bytes);
  const int64_t count = bytes / 4;
  std::fill_n(x, count, 1.0f);
  for (int i = 0; i < 3; ++i) way.all_reduce(x, count);
  const double begin = now_ms();
  way.all_reduce(x, count);
  Array calls = Array::empty({1}, DType::i64);
  *calls.data<int64_t>() = std::clamp<int64_t>(static_cast<int64_t>(seconds * 1000 / (now_ms() - begin)), 5, 20'000);
  group.broadcast(calls, 0);
  std::vector<double> samples;
  for (int64_t i = 0; i < *calls.data<int64_t>(); ++i) {
    const double before = now_ms();
    way.all_reduce(x, count);
    samples.push_back(now_ms() - before);
  }
  return samples;
}

void run_rank(const Settings& settings, int rank, const std::string& directory) {
  const auto tcp_group = dist::init_process_group({.backend = "tcp"}),
             shm_group = dist::init_process_group({.backend = "shm"});
  auto& tcp = dynamic_cast<dist::TcpGroup&>(*tcp_group);
  auto& shm = dynamic_cast<dist::ShmGroup&>(*shm_group);
  const Array own = Array::empty({settings.largest / 4}, DType::f32);
  const Array shared = shm.empty({settings.largest / 4}, DType::f32);
  const auto by = [](dist::ProcessGroup& group, const Array& memory) {
    return [&group, &memory](float*, int64_t count) { group.all_reduce(memory.slice(0, 0, count)); };
  };
  const auto in = [](const Array& memory) { return [&memory](int64_t) { return memory.data<float>(); }; };
  std::vector<Way> ways = {{"tcp", in(own), by(tcp, own)},
                           {"shm", in(own), by(shm, own)},
                           {"shm, its own arrays", in(shared), by(shm, shared)}};
  if (peer_name() != nullptr) ways.push_back({peer_name(), in(own), peer_all_reduce(rank, settings.ranks, directory)});

  nlohmann::json rows;
  if (rank == 0) {
    std::printf("%d ranks; tcp paced by %s\n%10s", settings.ranks, tcp.congestion_control().c_str(), "bytes");
    for (const Way& way : ways) std::printf("  %24s", way.name.c_str());
    std::printf("   (us, GB/s of the bus)\n");
  }
  for (int64_t bytes = settings.smallest; bytes <= settings.largest; bytes *= 4) {
    std::vector<std::vector<double>> samples(ways.size());
    for (int round = 0; round < settings.rounds; ++round)
      for (size_t i = 0; i < ways.size(); ++i) {
        const std::vector<double> more = measure(ways[i], tcp, bytes, settings.seconds);
        samples[i].insert(samples[i].end(), more.begin(), more.end());
      }
    if (rank != 0) continue;
    std::printf("%10lld", static_cast<long long>(bytes));
    nlohmann::json row = {{"bytes", bytes}};
    for (size_t i = 0; i < ways.size(); ++i) {
      const double ms = median(samples[i]), bus = 2.0 * (settings.ranks - 1) / settings.ranks;
      const double gigabytes = static_cast<double>(bytes) / ms / 1e6;
      std::printf("  %14.1f %9.2f", ms * 1e3, gigabytes * bus);
      row[ways[i].name] = {{"us", ms * 1e3}, {"algorithm_gb_s", gigabytes}, {"bus_gb_s", gigabytes * bus}};
    }
    std::printf("\n");
    std::fflush(stdout);
    rows.push_back(row);
  }
  if (rank == 0 && !settings.json.empty()) {
    std::string system;
    std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> system;
    std::ofstream(settings.json) << nlohmann::json{{"ranks", settings.ranks},
                                                   {"congestion_control",
                                                    {{"tcp", tcp.congestion_control()}, {"gloo", system}}},
                                                   {"rows", rows}}
                                        .dump(1)
                                 << "\n";
  }
  tcp.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("All-reduce between processes of this machine");
  app.add_option("--ranks", settings.ranks, "processes")->capture_default_str();
  app.add_option("--rounds", settings.rounds, "rounds that alternate between the ways")->capture_default_str();
  app.add_option("--seconds", settings.seconds, "of calls a round, way and size")->capture_default_str();
  app.add_option("--smallest", settings.smallest, "bytes")->capture_default_str();
  app.add_option("--largest", settings.largest, "bytes")->capture_default_str();
  app.add_option("--json", settings.json, "file to write");
  CLI11_PARSE(app, argc, argv);

  std::string directory = (std::filesystem::temp_directory_path() / "gradus-all-reduce-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return 1;
  int status = 0;
  try {
    dist::spawn([&](int rank) { run_rank(settings, rank, directory); }, settings.ranks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  std::filesystem::remove_all(directory);
  return status;
}
