// Trains a net with one of the methods of distributed/sharding (experiment E12), under gradus-run. Prints a JSON
// object: the memory and the sent bytes of a rank as predicted by gradus::plan and a RecordingGroup, the same as
// measured, the time of a step, and the losses.
//
//   gradus-run --nproc 4 sharding --net transformer --parallel zero3 --threads 1
//   gradus-run --nproc 2 sharding --comm nccl --net transformer --parallel zero3 --width 2048 --blocks 8 --context 512
//
// With nccl, rank i uses GPU i. Then the program predicts nothing and does not count the sent bytes.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/distributed/comm/local/recording_group.h>
#include <gradus/examples/common/resnet.h>
#include <gradus/examples/language/model.h>
#include <gradus/examples/language/sharded_trainer.h>

namespace {

using namespace gradus;

struct Settings {
  std::string net = "mlp", parallel = "none", comm = "tcp", precision = "fp32";
  int64_t steps = 12, warm_up = 2;
  int64_t width = 128, blocks = 4, context = 64, samples = 0;

  Device device_of(const Group& group) const { return comm == "nccl" ? Device(kCUDA, group->rank()) : Device(kCPU); }
};

constexpr int64_t kRows = 50000, kFeatures = 16, kLookups = 8, kWidth = 1024;  // the MLP and its embedding table
constexpr int64_t kVocabulary = 2048;                                          // the transformer

/// Returns the layers after an embedding table, in which each sample looks up kLookups rows.
nn::Sequential mlp(const Group& group) {
  nn::Sequential net;
  const int64_t in = kLookups * kFeatures;
  net->push_back(nn::Flatten());
  if (group) net->push_back(nn::ColumnParallelLinear(nn::ColumnParallelLinearOptions(in, kWidth), group));
  else net->push_back(nn::Linear(in, kWidth));
  net->push_back(nn::ReLU());
  if (group) net->push_back(nn::RowParallelLinear(nn::RowParallelLinearOptions(kWidth, kWidth), group));
  else net->push_back(nn::Linear(kWidth, kWidth));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(kWidth, 10));
  return net;
}

/// A net on a rank of `group`, trained by the chosen method.
class Training {
 public:
  Training(const Settings& settings, const Group& group, Device device = kCPU)
      : settings_(settings), group_(group), device_(device) {
    manual_seed(1);  // all ranks begin with the same weights
    const Group layers = settings.parallel == "tensor" ? group : nullptr;
    if (settings.net == "transformer") {
      language_ = LanguageModel(LanguageModelOptions{.vocabulary = kVocabulary,
                                                     .context = settings.context,
                                                     .width = settings.width,
                                                     .heads = std::max<int64_t>(4, settings.width / 64),
                                                     .blocks = settings.blocks},
                                layers);
      net_ = nn::AnyModule(language_);
    } else if (settings.net == "resnet18") {
      // Without batch norm: each rank would compute the statistics of its part of the batch, and losses would not be
      // comparable.
      net_ = nn::AnyModule(ResNet18(ResNet18Options().width(32).batch_norm(false)));
    } else {
      nn::Sequential whole;
      if (settings.parallel == "table") {
        table_ = nn::ShardedEmbedding(nn::ShardedEmbeddingOptions(kRows, kFeatures).placement(nn::RowPlacement::hash),
                                      group);
        whole->push_back(table_);
      } else if (layers) {
        whole->push_back(nn::VocabParallelEmbedding(nn::VocabParallelEmbeddingOptions(kRows, kFeatures), layers));
      } else {
        whole->push_back(nn::Embedding(kRows, kFeatures));
      }
      rest_ = mlp(layers);
      for (const nn::AnyModule& layer : *rest_) whole->push_back(std::to_string(whole->size()), layer);
      net_ = nn::AnyModule(whole);
    }
    net_.ptr()->to(device);
    // The embedding table is distributed separately from the other layers.
    nn::Module& trained = table_ ? static_cast<nn::Module&>(*rest_) : *net_.ptr();
    const std::string way = !table_ ? settings.parallel : group->size() == 1 ? "none" : "ddp";
    trainer_.emplace(trained, way, way == "none" ? nullptr : group, [](std::vector<Tensor> parameters) {
      return std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamWOptions(1e-3));
    });
  }

  /// Returns this rank's samples in a step, and their targets.
  std::pair<Tensor, Tensor> batch(int64_t step) const {
    manual_seed(static_cast<uint64_t>(100 + step));
    const int64_t all = share() * parts();
    Tensor x, y;
    if (language_) {
      const Tensor text = randint(kVocabulary, {all, settings_.context + 1}, kLong);
      x = text.narrow(1, 0, settings_.context), y = text.narrow(1, 1, settings_.context);
    } else if (settings_.net == "resnet18") {
      x = randn({all, 3, 32, 32}), y = randint(10, {all}, kLong);
    } else {
      x = randint(kRows, {all, kLookups}, kLong), y = randint(10, {all}, kLong);
    }
    const int64_t begin = parts() == 1 ? 0 : group_->rank() * share();
    return {x.narrow(0, begin, share()).clone().to(device_), y.narrow(0, begin, share()).clone().to(device_)};
  }

  double step(const Tensor& x, const Tensor& y) {
    Tensor loss;
    {
      const amp::Autocast autocast(device_.type(), kBFloat16, settings_.precision == "bf16");
      loss = loss_of(net_.forward(x), y);
    }
    trainer_->step(loss);
    if (table_) table_->adagrad_step(1e-2);
    return loss.item<double>();
  }

  int64_t planned_bytes() {
    const auto [x, y] = batch(0);
    PlanOptions options;
    options.target_shape(y.sizes()).loss(
        [this](const Tensor& output, const Tensor& target) { return loss_of(output, target); });
    if (!table_) return plan(net_, x.sizes(), trainer_->optimizer(), options.input_dtype(x.dtype())).peak;
    // gradus::plan cannot know which rows will be looked up, so it reports only the other layers. This formula adds the
    // table and its state, the looked-up vectors with their indices, and their gradients.
    const int64_t vectors = share() * kLookups * kFeatures * 4;
    const Shape looked_up = {share(), kLookups, kFeatures};
    return plan(rest_, looked_up, trainer_->optimizer(), options).peak + kRows / group_->size() * (kFeatures + 1) * 4 +
           vectors + 3 * x.array().nbytes();
  }

  int64_t parameters() const {
    int64_t count = 0;
    for (const Tensor& parameter : net_.ptr()->parameters()) count += parameter.numel();
    return count;
  }

 private:
  /// Number of parts into which the samples of a step are divided. Tensor parallel ranks all get all samples.
  int64_t parts() const { return group_ && settings_.parallel != "tensor" ? group_->size() : 1; }
  int64_t share() const { return settings_.samples / parts(); }
  Tensor loss_of(const Tensor& output, const Tensor& target) const {
    return language_ ? language_->loss(output, target) : cross_entropy(output, target);
  }

  const Settings& settings_;
  const Group group_;
  const Device device_;
  LanguageModel language_{nullptr};
  nn::Sequential rest_;
  nn::ShardedEmbedding table_{nullptr};
  nn::AnyModule net_;
  std::optional<ShardedTrainer> trainer_;
};

/// Returns the bytes that all TCP connections of this process have sent, as counted by the kernel.
int64_t bytes_sent() {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(std::stoi(entry.path().filename()), IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
      bytes += static_cast<int64_t>(info.tcpi_bytes_sent);
  }
  return bytes;
}

/// Figures of a rank for a step.
struct Figures {
  int64_t parameters = 0;
  double peak = 0, sent = 0, milliseconds = 0;  // bytes, bytes, and the median time
  std::vector<double> losses;
};

/// Predicts the figures of a rank. Needs no other ranks.
Figures predict(const Settings& settings, int rank, int ranks) {
  const auto group = std::make_shared<dist::RecordingGroup>(rank, ranks);
  Training training(settings, group);
  Figures figures;
  figures.peak = static_cast<double>(training.planned_bytes());
  for (int64_t step = 0; step < settings.warm_up + settings.steps; ++step) {
    if (step == settings.warm_up) group->reset_bytes();
    const auto [x, y] = training.batch(step);
    training.step(x, y);
  }
  for (int kind = 0; kind <= static_cast<int>(dist::CollectiveKind::barrier); ++kind)
    figures.sent += static_cast<double>(group->bytes(static_cast<dist::CollectiveKind>(kind)));
  figures.sent /= static_cast<double>(settings.steps);
  return figures;
}

Figures measure(const Settings& settings, const Group& group) {
  const Device device = settings.device_of(group);
  DeviceRuntime& memory = runtime(device.type());
  const int64_t at_start = memory.memory_stats(device.index()).allocated;
  Training training(settings, group, device);
  Figures figures;
  figures.parameters = training.parameters();
  std::vector<double> milliseconds;
  for (int64_t step = 0; step < settings.warm_up + settings.steps; ++step) {
    const auto [x, y] = training.batch(step);
    group->barrier();
    memory.reset_peak_memory_stats(device.index());
    const int64_t before = bytes_sent();
    memory.synchronize(device.index());
    const double begin = benchmarks::now_ms();
    const double loss = training.step(x, y);
    memory.synchronize(device.index());
    const double end = benchmarks::now_ms();
    group->barrier();  // then this rank has also sent what it passes on for other ranks
    if (step < settings.warm_up) continue;
    milliseconds.push_back(end - begin);
    figures.losses.push_back(loss);
    if (device.is_cpu())
      figures.sent += static_cast<double>(bytes_sent() - before) / static_cast<double>(settings.steps);
    const int64_t peak = memory.memory_stats(device.index()).peak_allocated - at_start;
    figures.peak = std::max(figures.peak, static_cast<double>(peak));
  }
  figures.milliseconds = benchmarks::median(milliseconds);
  return figures;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  benchmarks::Program program("sharding", "What a rank holds and sends, predicted and measured");
  program.option("--net", settings.net, "net to train", {"mlp", "resnet18", "transformer"});
  program.option("--parallel", settings.parallel,
                 "how the net is parallelised; table: a sharded table, with ddp for the rest (mlp)",
                 {"none", "ddp", "zero1", "zero2", "zero3", "tensor", "table"});
  program.option("--steps", settings.steps, "number of steps to time, whose losses are printed");
  program.option("--comm", settings.comm, "tcp: on the CPU; nccl: each rank on a GPU", {"tcp", "nccl"});
  program.option("--precision", settings.precision, "precision of the steps; bf16: autocast", {"fp32", "tf32", "bf16"});
  program.option("--width", settings.width, "width of the transformer");
  program.option("--blocks", settings.blocks, "number of blocks of the transformer");
  program.option("--context", settings.context, "number of characters of a sample of the transformer");
  program.option("--samples", settings.samples,
                 "number of samples of a step, over all ranks; 0: 256 for the MLP, 16 for other nets");
  program.json_option();
  return program.run(argc, argv, [&] {
    if (settings.samples == 0) settings.samples = settings.net == "mlp" ? 256 : 16;
    GRADUS_CHECK(settings.net == "mlp" || settings.parallel != "table", ValueError, "--parallel table: of the nets ",
                 "only mlp has a table to shard");
    GRADUS_CHECK(settings.net != "resnet18" || settings.parallel != "tensor", ValueError, "--parallel tensor: there ",
                 "are no tensor-parallel convolutions for resnet18");
    const Group group = dist::init_process_group({.backend = settings.comm});
    const Device device = settings.device_of(group);
    if (device.is_cuda()) {
      cuda::set_device(device.index());
      cuda::set_matmul_allow_tf32(settings.precision == "tf32");
      cudnn::set_allow_tf32(settings.precision == "tf32");
    }
    const Figures predicted = device.is_cuda() ? Figures() : predict(settings, group->rank(), group->size());
    const Figures measured = measure(settings, group);
    const double ranks = group->size();
    Tensor sums = tensor(measured.losses).to(device), greatest = tensor({predicted.peak, measured.peak}).to(device);
    Tensor sent = tensor({predicted.sent, measured.sent, measured.milliseconds}).to(device);
    group->all_reduce(sums.array());
    group->all_reduce(sent.array());
    group->all_reduce(greatest.array(), dist::ReduceKind::max);
    if (group->rank() > 0) return;
    std::string losses;
    for (int64_t i = 0; i < sums.numel(); ++i) {
      char loss[32];
      std::snprintf(loss, sizeof loss, "%.8f ", sums[i].item<double>() / ranks);
      losses += loss;
    }
    const benchmarks::Fields fields = {{"net", settings.net},
                                       {"parallel", settings.parallel},
                                       {"ranks", group->size()},
                                       {"comm", settings.comm},
                                       {"precision", settings.precision},
                                       {"width", settings.width},
                                       {"blocks", settings.blocks},
                                       {"context", settings.context},
                                       {"samples", settings.samples},
                                       {"parameters", measured.parameters},
                                       {"predicted_peak_bytes", static_cast<int64_t>(greatest[0].item<double>())},
                                       {"measured_peak_bytes", static_cast<int64_t>(greatest[1].item<double>())},
                                       {"predicted_sent_bytes", std::llround(sent[0].item<double>() / ranks)},
                                       {"measured_sent_bytes", std::llround(sent[1].item<double>() / ranks)},
                                       {"step_ms", sent[2].item<double>() / ranks},
                                       {"losses", losses}};
    std::printf("%s\n", benchmarks::to_json(fields).c_str());
    program.record(fields);
  });
}
