// Times a training step (forward, cross-entropy, backward, Adam) of each net on random images that lie on the device
// already: the whole step and its parts, medians over many; and, for the nets of 28x28 images, how long a step that is fed
// by a DataLoader waits for its batch. One table row and, with --json, one JSON line a net.
//
//   train_step --net lenet --backend openmp --threads 2 --format channels_last --json results.jsonl
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <gradus/benchmarks/nets.h>

namespace {

using namespace gradus;
using benchmarks::Workload;

struct Settings {
  std::string net = "all", device = "cpu", backend, format = "contiguous", json;
  int threads = 0;
  size_t workers = 1;
  double seconds = 1.0;
  bool graph = false;
  bool step_only = false;
};

struct Medians {
  double step = 0, forward = 0, backward = 0, optimizer = 0, data_wait = 0;  // milliseconds
};

void wait_for(Device device) { runtime(device.type).synchronize(device.index); }

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Milliseconds of one call of `work`: the median over `seconds` of samples. On cuda a sample is a row of calls between
// two waits, so that the host's launching overlaps as it does in training.
template <class Work>
double time_ms(Device device, double seconds, Work&& work) {
  const int row = device.is_cuda() ? 20 : 1;
  for (int i = 0; i < 5; ++i) work();
  wait_for(device);
  std::vector<double> samples;
  const double end = now_ms() + seconds * 1000;
  while (now_ms() < end || samples.size() < 5) {
    const double start = now_ms();
    for (int i = 0; i < row; ++i) work();
    wait_for(device);
    samples.push_back((now_ms() - start) / row);
  }
  return median(std::move(samples));
}

// Milliseconds that a step waits for its batch: the mean over an epoch of digits, after one to warm up.
template <class Train>
double data_wait_ms(int64_t batch, size_t workers, Train&& train) {
  const int64_t batches = std::max<int64_t>(4096 / batch, 4);
  auto digits = data::datasets::SyntheticDigits(static_cast<size_t>(batches * batch))
                    .map(data::transforms::Normalize<>(0.1307, 0.3081))
                    .map(data::transforms::Stack<>());
  auto loader = data::make_data_loader<data::samplers::RandomSampler>(
      std::move(digits), data::DataLoaderOptions(static_cast<size_t>(batch)).workers(workers));
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& example : *loader) train(example.data, example.target);
  return loader->wait_seconds() * 1000 / static_cast<double>(batches);
}

Medians measure(const Workload& work, int64_t batch, const Settings& settings) {
  const Device device(settings.device);
  const MemoryFormat format =
      settings.format == "channels_last" ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  manual_seed(0);
  nn::Sequential net = work.make();
  net->to(device);
  if (format == MemoryFormat::channels_last) net->to(format);
  optim::Adam optimizer(net->parameters(), optim::AdamOptions(1e-3));
  const Tensor x = randn({batch, work.image[0], work.image[1], work.image[2]}).to(device).contiguous(format);
  const Tensor y = randint(10, {batch}).to(device);

  auto train = [&](const Tensor& images, const Tensor& classes) {
    optimizer.zero_grad();
    cross_entropy(net->forward(images), classes).backward();
    optimizer.step();
  };
  auto forward = [&] { return cross_entropy(net->forward(x), y); };
  auto step = [&] { train(x, y); };
  Medians medians;
  if (settings.graph) {
    for (int i = 0; i < 3; ++i) step();
    optimizer.zero_grad();
    cuda::Graph graph;
    graph.capture(step);
    medians.step = time_ms(device, settings.seconds, [&] { graph.replay(); });
    return medians;
  }
  medians.step = time_ms(device, settings.seconds, step);
  if (settings.step_only) return medians;
  medians.forward = time_ms(device, settings.seconds, forward);
  const double both = time_ms(device, settings.seconds, [&] {
    net->zero_grad();
    forward().backward();
  });
  medians.backward = both - medians.forward;
  medians.optimizer = time_ms(device, settings.seconds, [&] { optimizer.step(); });
  if (work.image == Shape({1, 28, 28}))
    medians.data_wait = data_wait_ms(batch, settings.workers, [&](const Tensor& images, const Tensor& classes) {
      train(images.to(device).contiguous(format), classes.to(device));
    });
  return medians;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Times training steps on random images");
  app.add_option("--net", settings.net, "a net by name, or all");
  app.add_option("--device", settings.device, "cpu or cuda");
  app.add_option("--backend", settings.backend, "naive, openmp, cuda; default: the device's best");
  app.add_option("--format", settings.format, "contiguous or channels_last")
      ->check(CLI::IsMember({"contiguous", "channels_last"}));
  app.add_option("--threads", settings.threads, "CPU threads; default: all");
  app.add_option("--workers", settings.workers, "threads that prepare batches for the data-wait column");
  app.add_option("--seconds", settings.seconds, "time per measurement");
  app.add_option("--json", settings.json, "append one JSON line a row to this file");
  app.add_flag("--graph", settings.graph, "capture the step once and replay it (cuda)");
  app.add_flag("--step-only", settings.step_only, "skip the parts");
  CLI11_PARSE(app, argc, argv);
  try {
    if (settings.threads > 0) set_num_threads(settings.threads);
    if (!settings.backend.empty()) set_backend(settings.backend);
    const Device device(settings.device);
    const std::string backend(current_backend(device.type).name());
    std::printf("%-12s %6s %10s %10s %10s %10s %10s %12s %10s\n", "net", "batch", "step ms", "forward", "backward",
                "optimizer", "data wait", "images/s", "peak MiB");
    bool found = false;
    for (const Workload& work : benchmarks::workloads()) {
      if (settings.net != "all" && settings.net != work.name) continue;
      found = true;
      for (const int64_t batch : work.batches) {
        runtime(device.type).reset_peak_memory_stats(device.index);
        const Medians ms = measure(work, batch, settings);
        const double images = static_cast<double>(batch) / ms.step * 1000;
        const double peak =
            static_cast<double>(runtime(device.type).memory_stats(device.index).peak_allocated) / (1 << 20);
        std::printf("%-12s %6lld %10.4f %10.4f %10.4f %10.4f %10.4f %12.0f %10.1f\n", work.name.c_str(),
                    static_cast<long long>(batch), ms.step, ms.forward, ms.backward, ms.optimizer, ms.data_wait, images,
                    peak);
        std::fflush(stdout);
        if (settings.json.empty()) continue;
        const nlohmann::json row = {{"net", work.name},
                                    {"batch", batch},
                                    {"device", settings.device},
                                    {"backend", backend},
                                    {"format", settings.format},
                                    {"graph", settings.graph},
                                    {"threads", num_threads()},
                                    {"machine", runtime(device.type).description(device.index)},
                                    {"version", version()},
                                    {"step_ms", ms.step},
                                    {"forward_ms", ms.forward},
                                    {"backward_ms", ms.backward},
                                    {"optimizer_ms", ms.optimizer},
                                    {"data_wait_ms", ms.data_wait},
                                    {"images_per_second", images},
                                    {"peak_mib", peak}};
        std::ofstream(settings.json, std::ios::app) << row.dump() << "\n";
      }
    }
    if (!found) throw ValueError("no net '" + settings.net + "'");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_step: %s\n", error.what());
    return 1;
  }
  return 0;
}
