// Measures how much DistributedDataParallel adds to a training step, on ranks of this machine. Alternately times the
// step with and without it. Also measures how much communication cannot overlap with computation, because the
// all-reduce of a bucket takes longer than the rest of the backward pass after the bucket is full. Prints a JSON object
// per row. ddp.py runs it and PyTorch, and compares them.
#include <algorithm>
#include <cstdio>
#include <numeric>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/nets.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/core/ops/ops.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/distributed/distributed.h>

namespace {

using namespace gradus;
using namespace gradus::benchmarks;

struct Settings {
  int64_t ranks = 2, samples = 9, calls = 0, threads = 1;
  std::string device = "cuda", comm = "nccl";
  std::vector<std::string> nets = {"stl10_net", "lenet"}, modes = {"eager", "graph"}, precisions = {"fp32", "bf16"};
  std::vector<size_t> batches = {16, 32, 64, 128};
  bool step_only = false;
};

struct Case {
  Workload work;
  int64_t batch;  // batch size of each rank
  std::string mode, precision;
};

/// A net on this rank, with its optimizer and a batch.
class Trainer {
 public:
  Trainer(const Case& c, Device device) : device_(device), half_(c.precision == "bf16"), net_(c.work.make()) {
    net_.ptr()->to(device);
    x_ = randn(c.work.input(c.batch)).to(device);
    y_ = randint(10, {c.batch}).to(device);
    optimizer_ = std::make_unique<optim::Adam>(net_.ptr()->parameters(), optim::AdamOptions(1e-3));
  }
  nn::Module& net() const { return *net_.ptr(); }
  Tensor loss() const {
    const amp::Autocast autocast(device_.type(), kBFloat16, half_);
    return cross_entropy(net_.forward(x_), y_);
  }
  void step() const {
    optimizer_->zero_grad();
    loss().backward();
    optimizer_->step();
  }

 private:
  const Device device_;
  const bool half_;
  nn::AnyModule net_;
  Tensor x_, y_;
  std::unique_ptr<optim::Adam> optimizer_;
};

/// Returns `work`, or a function that replays it as a CUDA graph.
std::function<void()> in_mode(const std::string& mode, const std::function<void()>& work) {
  for (int i = 0; i < 3; ++i) work();
  if (mode != "graph") return work;
  const auto graph = std::make_shared<cuda::Graph>();
  graph->capture(work);
  return [graph] { graph->replay(); };
}

/// Returns the milliseconds per call. All ranks begin at the same time.
double time_row(dist::ProcessGroup& group, Device device, int64_t calls, const std::function<void()>& work) {
  group.barrier();
  runtime(device.type()).synchronize(device.index());
  const double before = now_ms();
  for (int64_t i = 0; i < calls; ++i) work();
  runtime(device.type()).synchronize(device.index());
  return (now_ms() - before) / static_cast<double>(calls);
}

/// Returns the mean milliseconds per call, where each call counts with the time of its slowest rank.
double time_slowest(dist::ProcessGroup& group, int64_t calls, const std::function<void()>& work) {
  const Array times = Array::empty({calls}, DType::f64);
  group.barrier();
  for (int64_t i = 0; i < calls; ++i) {
    const double before = now_ms();
    work();
    times.data<double>()[i] = now_ms() - before;
  }
  group.all_reduce(times, dist::ReduceKind::max);
  return std::accumulate(times.data<double>(), times.data<double>() + calls, 0.0) / static_cast<double>(calls);
}

double time_median(dist::ProcessGroup& group, Device device, int64_t calls, const std::function<void()>& work) {
  std::vector<double> samples;
  for (int i = 0; i < 5; ++i) samples.push_back(time_row(group, device, calls, work));
  return median(samples);
}

/// Returns the maximum of a figure over all ranks.
double slowest(dist::ProcessGroup& group, Device device, double figure) {
  const Array x = ops::full({1}, figure, DType::f64, device);
  group.all_reduce(x, dist::ReduceKind::max);
  return ops::item(x).to_double();
}

struct Exposed {
  double us = 0;             // communication after the end of the backward pass
  double all_reduce_us = 0;  // all-reduce of the largest bucket
  double backward_us = 0;    // rest of the backward pass when this bucket is full
  double megabytes = 0;
};

/// Computes the communication that cannot overlap with the backward pass: buckets are reduced one after the other, and
/// each starts when it is full.
Exposed exposed(const Case& c, dist::ProcessGroup& group, Device device, int64_t calls) {
  const Trainer trainer(c, device);
  const std::vector<Tensor> parameters = trainer.net().parameters();
  std::vector<Array> arrays;
  for (const Tensor& parameter : parameters) arrays.push_back(parameter.array());
  std::vector<size_t> order(parameters.size());
  std::iota(order.rbegin(), order.rend(), 0);
  const auto until = [&](const TensorList& inputs) {
    return time_median(group, device, calls, in_mode(c.mode, [&] {
                         trainer.net().zero_grad();
                         autograd::backward({trainer.loss()}, {}, std::nullopt, false, inputs);
                       }));
  };
  const double end = until(parameters);
  Exposed found;
  double done = 0;
  TensorList filled;
  for (const std::vector<size_t>& bucket : dist::plan_buckets(arrays, order, {})) {
    int64_t count = 0;
    for (const size_t i : bucket) {
      filled.push_back(parameters[i]);
      count += parameters[i].numel();
    }
    const Array flat = group.empty({count}, DType::f32, device);
    ops::fill(flat, 0);
    const double reduce = time_median(group, device, calls, in_mode(c.mode, [&] { group.all_reduce(flat); }));
    const double full = until(filled);
    done = std::max(done, full) + reduce;
    if (const double megabytes = static_cast<double>(flat.nbytes()) / 1e6; megabytes > found.megabytes)
      found = {0, reduce * 1e3, (end - full) * 1e3, megabytes};
  }
  found.us = std::max(0.0, done - end) * 1e3;
  return found;
}

void run_case(const Case& c, const Settings& settings, const std::shared_ptr<dist::ProcessGroup>& group,
              Device device) {
  manual_seed(0);
  const Trainer alone(c, device), averaged(c, device);
  const dist::DistributedDataParallel ddp(averaged.net(), group);
  const auto step_alone = in_mode(c.mode, [&] { alone.step(); });
  const auto step_averaged = in_mode(c.mode, [&] { averaged.step(); });
  const int64_t calls = settings.calls > 0 ? settings.calls : device.is_cuda() ? 50 : 3;
  std::vector<double> without, with, slowest_without;
  for (int64_t sample = 0; sample < settings.samples; ++sample) {
    without.push_back(time_row(*group, device, calls, step_alone));
    with.push_back(time_row(*group, device, calls, step_averaged));
    if (device.is_cpu()) slowest_without.push_back(time_slowest(*group, calls, step_alone));
  }
  const Exposed hidden = settings.step_only ? Exposed() : exposed(c, *group, device, calls);
  const double step = slowest(*group, device, median(with)), local = slowest(*group, device, median(without));
  if (group->rank() != 0) return;
  Fields fields = {{"net", c.work.name},    {"batch", c.batch},        {"mode", c.mode},  {"precision", c.precision},
                   {"comm", settings.comm}, {"ranks", settings.ranks}, {"step_ms", step}, {"local_ms", local}};
  if (device.is_cpu()) fields.emplace_back("slowest_ms", median(slowest_without));
  if (!settings.step_only)
    fields.insert(fields.end(), {{"exposed_us", hidden.us},
                                 {"bucket_megabytes", hidden.megabytes},
                                 {"bucket_all_reduce_us", hidden.all_reduce_us},
                                 {"backward_left_us", hidden.backward_us}});
  std::printf("%s\n", to_json(fields).c_str());
  std::fflush(stdout);
}

void run_rank(const Settings& settings, int rank) {
  const bool on_gpu = Device(settings.device).is_cuda();
  const Device device = on_gpu ? Device(DeviceType::cuda, rank) : Device();
  if (on_gpu) cuda::set_device(rank);
  else set_num_threads(static_cast<int>(settings.threads));
  cudnn::set_allow_tf32(false);
  const auto group = dist::init_process_group({.backend = settings.comm});
  for (const Workload& work : workloads()) {
    if (std::find(settings.nets.begin(), settings.nets.end(), work.name) == settings.nets.end()) continue;
    for (const size_t batch : settings.batches)
      for (const std::string& mode : settings.modes)
        for (const std::string& precision : settings.precisions)
          run_case({work, static_cast<int64_t>(batch), mode, precision}, settings, group, device);
  }
  group->barrier();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::vector<size_t> batches;
  Program program("ddp", "Training steps with DistributedDataParallel and without, on the ranks of this machine");
  program.option("--ranks", settings.ranks, "number of processes; on cuda each has a GPU");
  program.option("--rank-threads", settings.threads, "number of CPU threads of each rank");
  program.option("--device", settings.device, "cpu or cuda");
  program.option("--comm", settings.comm, "how ranks communicate", {"nccl", "tcp", "shm"});
  program.option("--nets", settings.nets, "names of the nets");
  program.option("--batches", settings.batches, "batch sizes of a rank");
  program.option("--modes", settings.modes, "how steps run; graph: captured and replayed", {"eager", "graph"});
  program.flag("--step-only", settings.step_only, "do not measure the communication that cannot overlap");
  program.option("--precisions", settings.precisions, "precision of the steps; bf16: autocast", {"fp32", "bf16"});
  program.option("--samples", settings.samples, "number of samples with and without DistributedDataParallel");
  program.option("--calls", settings.calls, "number of steps in a sample; default: 50, on the cpu 3");
  return program.run(
      argc, argv, [&] { dist::spawn([&](int rank) { run_rank(settings, rank); }, static_cast<int>(settings.ranks)); });
}
