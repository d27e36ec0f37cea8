// Measures all-reduce of arrays on GPUs between processes of this machine, for several sizes: over NCCL, and over TCP
// and shared memory through the host. Prints a JSON object per line. all_reduce_cuda.py runs it and torch.distributed,
// and compares them.
#include <cstdio>
#include <nlohmann/json.hpp>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/core/ops/ops.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/distributed/comm/init.h>

using namespace gradus;
using namespace gradus::benchmarks;

namespace {

struct Settings {
  int ranks = 2, samples = 5;
  std::vector<std::string> backends = {"nccl", "tcp", "shm"};
  int64_t smallest = 4 << 10, largest = 256 << 20;
};

/// Number of calls between two waits for the device, the same as in all_reduce_cuda.py.
int calls_of(const std::string& backend, int64_t bytes) {
  if (backend == "nccl") return bytes <= 1 << 20 ? 200 : bytes <= 16 << 20 ? 100 : 30;
  return bytes <= 64 << 10 ? 100 : bytes <= 1 << 20 ? 50 : bytes <= 16 << 20 ? 10 : 4;
}

void run_rank(const Settings& settings, int rank) {
  cuda::set_device(rank);
  for (const std::string& backend : settings.backends) {
    const auto group = dist::init_process_group({.backend = backend});
    // Warms up until the GPU's clock and the connections have reached their speed.
    const Array first = ops::full({settings.smallest / 4}, 0, DType::f32, Device(DeviceType::cuda, rank));
    for (int i = 0; i < 500; ++i) group->all_reduce(first);
    for (int64_t bytes = settings.smallest; bytes <= settings.largest; bytes *= 4) {
      const Array x = ops::full({bytes / 4}, 0, DType::f32, Device(DeviceType::cuda, rank));
      for (int i = 0; i < 5; ++i) group->all_reduce(x);
      std::vector<double> samples;
      for (int sample = 0; sample < settings.samples; ++sample) {
        group->barrier();
        cuda::synchronize();
        const int calls = calls_of(backend, bytes);
        const double before = now_ms();
        for (int i = 0; i < calls; ++i) group->all_reduce(x);
        cuda::synchronize();
        samples.push_back((now_ms() - before) * 1e3 / calls);
      }
      if (rank != 0) continue;
      const nlohmann::json row = {{"backend", backend}, {"bytes", bytes}, {"us", samples}};
      std::printf("%s\n", row.dump().c_str());
      std::fflush(stdout);
    }
    group->barrier();
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  Program program("all_reduce_cuda", "All-reduce of arrays on the GPUs of this machine");
  program.option("--ranks", settings.ranks, "number of processes, each with a GPU");
  program.option("--backends", settings.backends, "backends to measure: nccl, tcp, shm");
  program.option("--samples", settings.samples, "number of samples for each size");
  program.option("--smallest", settings.smallest, "smallest size in bytes");
  program.option("--largest", settings.largest, "largest size in bytes");
  return program.run(argc, argv, [&] {
    std::printf("%s\n", to_json({{"nccl_version", dist::nccl_version()}}).c_str());
    dist::spawn([&](int rank) { run_rank(settings, rank); }, settings.ranks);
  });
}
