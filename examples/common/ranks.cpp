#include <gradus/examples/common/ranks.h>

#include <signal.h>
#include <sys/mman.h>

#include <utility>

#include <gradus/autograd/autograd.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/distributed/comm/init.h>

using namespace gradus;

namespace {

std::vector<double> reduced(std::vector<double> numbers, dist::ProcessGroup* group, dist::ReduceKind kind) {
  if (group == nullptr) return numbers;
  const Tensor all = tensor(numbers, kDouble);
  group->all_reduce(all.array(), kind);
  return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
}

}  // namespace

data::DataLoaderOptions Ranks::loader_options(int batch_size) const {
  return data::DataLoaderOptions(static_cast<size_t>(batch_size))
      .distributed(static_cast<size_t>(size), static_cast<size_t>(rank));
}

std::vector<double> Ranks::sum(std::vector<double> numbers) const {
  return reduced(std::move(numbers), host.get(), dist::ReduceKind::sum);
}

std::vector<double> Ranks::max(std::vector<double> numbers) const {
  return reduced(std::move(numbers), host.get(), dist::ReduceKind::max);
}

void Ranks::barrier() const {
  if (host) host->barrier();
}

Ranks join_ranks(const std::string& comm, Device& device) {
  const dist::JobEnvironment job = dist::job_environment();
  if (job.world_size == 1) return {};
  GRADUS_CHECK(comm != "nccl" || device.is_cuda(), ValueError,
               "--comm nccl sums up what is on GPUs: it needs --device cuda, not ", device);
  Ranks ranks;
  ranks.rank = job.rank;
  ranks.size = job.world_size;
  ranks.host = ranks.gradients = dist::init_process_group({.backend = comm == "nccl" ? "auto" : comm});
  if (device.is_cpu()) return ranks;

  const int devices = cuda::device_count();
  const bool shared = device.index() >= 0 || devices < job.local_world_size;
  const bool any_shared = ranks.max({shared ? 1.0 : 0.0})[0] > 0;
  const bool nccl = comm == "nccl" || (comm == "auto" && !any_shared && dist::nccl_version() > 0);
  GRADUS_CHECK(!nccl || !any_shared, DeviceError, "--comm nccl needs a GPU for each rank: here are ", devices, " for ",
               job.local_world_size, " ranks on --device ", device,
               "; start as many ranks as there are GPUs with --device cuda, or share them over --comm shm or tcp");
  if (device.index() < 0) device = Device(kCUDA, job.local_rank % devices);
  cuda::set_device(device.index());
  if (nccl) ranks.gradients = dist::init_process_group({.backend = "nccl", .device = device.index()});
  return ranks;
}

int spawn_ranks(const std::function<int()>& run, int size) {
  void* const shared = mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  GRADUS_CHECK(shared != MAP_FAILED, CommError, "--spawn: no memory is left");
  int* const code = static_cast<int*>(shared);
  // Ctrl-C sends SIGINT to all processes of the terminal. The ranks finish their step; this process ignores the signal
  // and waits for them.
  auto* const on_interrupt = signal(SIGINT, SIG_IGN);
  const auto run_rank = [&](int rank) {
    signal(SIGINT, on_interrupt);
    const int own = run();
    if (rank == 0) *code = own;
  };
  dist::spawn(run_rank, size);
  signal(SIGINT, on_interrupt);
  return *code;
}
