// A worker for elastic_training_test.py: trains a net with dist::ElasticTraining and prints the loss of every step, in
// hexadecimal. Ranks wait at most 5 s for each other.
// usage: elastic_training_worker BACKEND ddp|alike|sharded|tensor STEPS STEP_MS FOLDER
//   ddp      dropout, batch norm and a loader; if a spare replaces a rank, the losses equal those of an unbroken run
//   alike    all samples are computed in the same way, so that fewer ranks have the same losses except for rounding
//   sharded  FullyShardedDataParallel, which saves a checkpoint in FOLDER after every tenth step
//   tensor   tensor-parallel layers, which save checkpoints likewise
// With BACKEND nccl each rank uses the GPU with its number, and a spare that of the rank whose place it takes.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include <gradus/distributed/distributed.h>
#include <gradus/gradus.h>

using namespace gradus;
namespace samplers = data::samplers;

namespace {

constexpr int64_t kSamples = 90, kFeatures = 8, kClasses = 4;
constexpr size_t kBatch = 12;  // of all ranks together
constexpr int64_t kMicroBatch = 4;
constexpr dist::Milliseconds kTimeout{5000};

/// CLOCK_MONOTONIC, the clock that Python's time.monotonic() reads.
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Arguments {
  std::string backend, scheme;
  int64_t steps;
  std::chrono::milliseconds pause;  // in every step
  std::filesystem::path folder;

  Device device_of(int rank) const { return backend == "nccl" ? Device(kCUDA, rank) : Device(kCPU); }
};

nn::Sequential make_net(bool alike) {
  manual_seed(3);
  nn::Sequential net(nn::Linear(kFeatures, 32));
  if (!alike) {
    net->push_back(nn::BatchNorm1d(32));
    net->push_back(nn::Dropout(0.3));
  }
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(32, kClasses));
  net->to(kDouble);
  return net;
}

nn::Sequential make_tensor_parallel_net(const std::shared_ptr<dist::ProcessGroup>& group) {
  manual_seed(3);
  nn::Sequential net(nn::ColumnParallelLinear(nn::ColumnParallelLinearOptions(kFeatures, 33), group), nn::ReLU(),
                     nn::RowParallelLinear(nn::RowParallelLinearOptions(33, kClasses), group));
  net->to(kDouble);
  return net;
}

auto make_loader() {
  manual_seed(5);
  const Tensor x = randn({kSamples, kFeatures}, kDouble);
  const Tensor y = x.narrow(1, 0, kClasses).argmax(1);
  return data::make_data_loader<samplers::RandomSampler>(
      data::datasets::TensorDataset(x, y).map(data::transforms::Stack<>()), data::DataLoaderOptions(kBatch).seed(7));
}

/// The mean of the losses of all ranks.
double mean_over(dist::ProcessGroup& group, const Tensor& loss) {
  const Tensor mean = loss.detach().clone();
  group.all_reduce(mean.array(), dist::ReduceKind::avg);
  return mean.item<double>();
}

void report_step(dist::ElasticTraining& elastic) {
  if (elastic.group()->rank() != 0) return;
  std::printf("step %d generation %d at %.4f\n", static_cast<int>(elastic.step()),
              static_cast<int>(elastic.generation()), now());
  std::fflush(stdout);
}

void report_losses(dist::ElasticTraining& elastic, const Tensor& losses) {
  if (elastic.group()->rank() != 0) return;
  std::string line = "losses";
  for (int64_t i = 0; i < losses.numel(); ++i) {
    char text[32];
    std::snprintf(text, sizeof text, " %a", losses[i].item<double>());
    line += text;
  }
  std::puts(line.c_str());
}

/// Data-parallel training, in which every rank has the whole state.
void train_replicas(const Arguments& arguments) {
  const bool alike = arguments.scheme == "alike";
  nn::Sequential net = make_net(alike);
  optim::Adam adam(net->parameters(), optim::AdamOptions(1e-2));
  auto loader = make_loader();
  const Tensor losses = zeros({arguments.steps}, dtype(kDouble));
  training::Checkpoint state, position;
  state.add("net", *net).add("adam", adam).add("losses", losses);
  position.add("loader", *loader);

  std::optional<dist::DistributedDataParallel> ddp;
  const auto on_group = [&](const std::shared_ptr<dist::ProcessGroup>& group) {
    ddp.emplace(net, group);
    loader->distribute(static_cast<size_t>(group->size()), static_cast<size_t>(group->rank()));
    Generator& generator = default_generator();
    generator.set_state(static_cast<uint64_t>(group->rank()), generator.offset());
  };
  Device device;
  dist::ElasticOptions options{.group = {.backend = arguments.backend, .timeout = kTimeout}, .on_group = on_group};
  options.on_rank = [&](int rank) {
    std::printf("rank %d\n", rank);
    net->to(device = arguments.device_of(rank));
  };
  std::optional<dist::ElasticTraining> elastic;
  options.on_finish = [&] { report_losses(*elastic, losses); };
  elastic.emplace(*net, state, position, options);

  double mean = 0;
  const auto compute = [&](int64_t) {
    const auto& batch = loader->next_batch();
    const int64_t samples = batch.target.numel();
    const auto whole = static_cast<int64_t>(
        data::samples_in_batch(kSamples, kBatch, static_cast<size_t>(loader->state().batches - 1)));
    const Tensor x = batch.data.to(device), y = batch.target.to(device);
    Tensor sum = zeros({}, dtype(kDouble).device(device));
    // With fewer ranks, each has a larger share of the same batch and computes it in several micro-batches.
    for (int64_t begin = 0; begin < samples; begin += kMicroBatch) {
      const int64_t count = std::min(kMicroBatch, samples - begin);
      std::optional<dist::DistributedDataParallel::NoSync> more;
      if (begin + count < samples) more.emplace(*ddp);
      const Tensor loss = cross_entropy(net->forward(x.narrow(0, begin, count)), y.narrow(0, begin, count)) *
                          ddp->loss_weight(count, whole);
      loss.backward();
      sum += loss.detach();
    }
    std::this_thread::sleep_for(arguments.pause);
    mean = mean_over(*elastic->group(), sum);
  };
  const auto update = [&] {
    adam.step();
    adam.zero_grad();
    losses[elastic->step()].fill_(mean);
    report_step(*elastic);
  };
  elastic->run(arguments.steps, compute, update);
}

/// Training in which every rank has a part of the state, so that all ranks return to the newest checkpoint.
void train_shards(const Arguments& arguments) {
  struct Run {
    nn::Sequential net;
    std::unique_ptr<dist::FullyShardedDataParallel> fsdp;  // null if the net's own layers are divided
    std::unique_ptr<optim::Adam> adam;
    decltype(make_loader()) loader = make_loader();
  };
  const bool is_tensor_parallel = arguments.scheme == "tensor";
  std::optional<Run> run;
  const Tensor losses = zeros({arguments.steps}, dtype(kDouble));
  std::optional<dist::ElasticTraining> elastic;
  const auto path_of = [&](int64_t step) { return arguments.folder / ("step_" + std::to_string(step)); };
  /// The state that is the same on all ranks, besides the shards. Rank 0 writes it after the shards.
  const auto others = [&] {
    training::Checkpoint checkpoint;
    checkpoint.add("loader", *run->loader).add("losses", losses);
    return checkpoint;
  };
  const auto on_group = [&](const std::shared_ptr<dist::ProcessGroup>& group) {
    run.reset();
    run.emplace();
    run->net = is_tensor_parallel ? make_tensor_parallel_net(group) : make_net(true);
    run->net->to(arguments.device_of(group->rank()));
    if (!is_tensor_parallel) {
      run->fsdp = std::make_unique<dist::FullyShardedDataParallel>(run->net, group);
      run->loader->distribute(static_cast<size_t>(group->size()), static_cast<size_t>(group->rank()));
    }
    run->adam = std::make_unique<optim::Adam>(run->fsdp ? run->fsdp->parameters() : run->net->parameters(),
                                              optim::AdamOptions(1e-2));
    int64_t step = arguments.steps;
    while (step > 0 && !std::filesystem::exists(path_of(step) / "others.safetensors")) --step;
    if (step > 0) {
      if (run->fsdp) run->fsdp->load(path_of(step), *run->adam);
      else dist::load_sharded(path_of(step), *run->net, group, run->adam.get());
      others().load(path_of(step) / "others.safetensors");
    }
    elastic->set_step(step);
  };
  dist::ElasticOptions options{.group = {.backend = arguments.backend, .timeout = kTimeout}, .on_group = on_group};
  options.on_finish = [&] { report_losses(*elastic, losses); };
  elastic.emplace(options);

  double mean = 0;
  const auto compute = [&](int64_t) {
    const auto& batch = run->loader->next_batch();
    const Device device = arguments.device_of(elastic->group()->rank());
    const Tensor loss = cross_entropy(run->net->forward(batch.data.to(device)), batch.target.to(device));
    loss.backward();
    std::this_thread::sleep_for(arguments.pause);
    mean = mean_over(*elastic->group(), loss);
  };
  const auto update = [&] {
    run->adam->step();
    run->adam->zero_grad();
    losses[elastic->step()].fill_(mean);
    if (const int64_t step = elastic->step() + 1; step % 10 == 0) {
      if (run->fsdp) run->fsdp->save(path_of(step), *run->adam);
      else dist::save_sharded(path_of(step), *run->net, elastic->group(), run->adam.get());
      if (elastic->group()->rank() == 0) others().save(path_of(step) / "others.safetensors");
      elastic->group()->barrier();
    }
    report_step(*elastic);
  };
  elastic->run(arguments.steps, compute, update);
}

}  // namespace

int main(int argc, char** argv) try {
  GRADUS_CHECK(argc == 6, ValueError,
               "usage: elastic_training_worker BACKEND ddp|alike|sharded|tensor STEPS STEP_MS FOLDER");
  const Arguments arguments{argv[1], argv[2], std::atoll(argv[3]), std::chrono::milliseconds(std::atoi(argv[4])),
                            argv[5]};
  const dist::JobEnvironment job = dist::job_environment();
  std::printf("worker %d pid %d\n", job.worker.value_or(job.rank), getpid());
  std::fflush(stdout);
  set_num_threads(1);
  arguments.scheme == "sharded" || arguments.scheme == "tensor" ? train_shards(arguments) : train_replicas(arguments);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
