// Times a training step (forward, cross-entropy, backward, Adam) of each net, on random inputs that are already on the
// device. Prints a row for each net with medians of the whole step and of its parts, and the most memory that tensors
// hold during a step; with --json, also a JSON line for each net.
//
//   train_step --net lenet --backend openmp --threads 2 --format channels_last --json results.jsonl
//   train_step --net resnet18 --device cuda --mode eager,graph --precision fp32,bf16 --format contiguous,channels_last
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/common/timed_step.h>
#include <gradus/benchmarks/ladders/conv2d_cuda/backend.h>
#include <gradus/benchmarks/nets.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/core/runtime/cuda.h>

namespace {

using namespace gradus;
using benchmarks::Program;
using benchmarks::StepVariant;
using benchmarks::time_ms;
using benchmarks::Workload;

struct Settings {
  std::string net = "all", device = "cpu", backend;
  benchmarks::StepVariants variants;
  int64_t batch = 0;
  int rung = 0;
  double seconds = 1.0;
  bool step_only = false;
  bool timed = false;
  bool small = false;
};

struct Figures {
  double step_ms = 0, mean_step_ms = 0, forward_ms = 0, backward_ms = 0, optimizer_ms = 0;
  int64_t peak_bytes = 0;
};

Figures measure(const Workload& work, int64_t batch, const StepVariant& variant, const Settings& settings) {
  const Device device(settings.device);
  const MemoryFormat format = variant.memory_format();
  benchmarks::set_tf32(variant.precision);
  manual_seed(0);
  const nn::AnyModule net = work.make();
  net.ptr()->to(device);
  Tensor x = randn(work.input(batch)).to(device);
  if (format == MemoryFormat::channels_last) {
    net.ptr()->to(format);
    x = x.contiguous(format);
  }
  const Tensor y = randint(10, {batch}).to(device);
  optim::Adam optimizer(net.ptr()->parameters(), optim::AdamOptions(1e-3));

  amp::GradScaler scaler(amp::GradScalerOptions().enabled(variant.precision == "fp16"));
  auto forward = [&] {
    const amp::Autocast autocast(device.type(), variant.half_type(), variant.is_mixed());
    return scaler.scale(cross_entropy(net.forward(x), y));
  };
  auto step = [&] {
    optimizer.zero_grad();
    forward().backward();
    scaler.step(optimizer);
    scaler.update();
  };
  const benchmarks::StepFigures whole =
      benchmarks::time_training_step(device, variant.mode, {&optimizer}, step, settings.seconds);
  Figures figures{whole.median_ms, whole.mean_ms, 0, 0, 0, whole.peak_bytes};
  if (variant.mode != "eager" || settings.step_only) return figures;
  figures.forward_ms = time_ms(device, settings.seconds, forward);
  const double both = time_ms(device, settings.seconds, [&] {
    optimizer.zero_grad();
    forward().backward();
  });
  figures.backward_ms = both - figures.forward_ms;
  figures.optimizer_ms = time_ms(device, settings.seconds, [&] { optimizer.step(); });
  return figures;
}

void report(const Workload& work, int64_t batch, const StepVariant& variant, const Settings& settings,
            const Program& program) {
  const Device device(settings.device);
  const Figures figures = measure(work, batch, variant, settings);
  const double samples_per_second = static_cast<double>(batch) / figures.step_ms * 1000;
  std::printf("%-12s %6lld %-5s %-4s %-13s %10.4f %10.4f %10.4f %10.4f %12.0f %10.2f\n", work.name.c_str(),
              static_cast<long long>(batch), variant.mode.c_str(), variant.precision.c_str(), variant.format.c_str(),
              figures.step_ms, figures.forward_ms, figures.backward_ms, figures.optimizer_ms, samples_per_second,
              static_cast<double>(figures.peak_bytes) / (1 << 20));
  std::fflush(stdout);
  program.record({{"net", work.name},
                  {"batch", batch},
                  {"device", settings.device},
                  {"backend", std::string(current_backend(device.type()).name())},
                  {"mode", variant.mode},
                  {"precision", variant.precision},
                  {"format", variant.format},
                  {"timed", settings.timed},
                  {"threads", num_threads()},
                  {"thread_runtime", name(thread_runtime())},
                  {"machine", runtime(device.type()).description(device.index())},
                  {"libraries", current_backend(device.type()).libraries()},
                  {"version", version()},
                  {"step_ms", figures.step_ms},
                  {"mean_step_ms", figures.mean_step_ms},
                  {"forward_ms", figures.forward_ms},
                  {"backward_ms", figures.backward_ms},
                  {"optimizer_ms", figures.optimizer_ms},
                  {"samples_per_second", samples_per_second},
                  {"peak_bytes", figures.peak_bytes}});
}

void report_all(const Workload& work, int64_t batch, const Settings& settings, const Program& program) {
  const bool has_images = work.input(batch).size() == 4;
  for (const StepVariant& variant : settings.variants.all(has_images)) report(work, batch, variant, settings, program);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  Program program("train_step", "Times training steps on random inputs");
  program.option("--net", settings.net, "a net by name, or all");
  program.option("--batch", settings.batch, "batch size; default: the sizes of the experiments");
  program.option("--device", settings.device, "cpu or cuda");
  program.option("--backend", settings.backend, "naive, openmp, cuda, cudnn; default: the device's best");
  program.option("--rung", settings.rung,
                 "rung 1 to 7 of ladders/conv2d_cuda that runs the forward convolutions it supports");
  settings.variants.add_options(program);
  program.option("--seconds", settings.seconds, "time per measurement");
  program.json_option();
  program.flag("--timed", settings.timed, "choose convolutions by time: cudnn::set_benchmark()");
  program.flag("--small", settings.small, "let cuDNN also run small convolutions");
  program.flag("--step-only", settings.step_only, "do not time the parts of a step");
  return program.run(argc, argv, [&] {
    if (!settings.backend.empty()) set_backend(settings.backend);
    if (settings.rung > 0) ladders::use_rung(settings.rung);
    cudnn::set_benchmark(settings.timed);
    cudnn::set_small_convolutions(settings.small);
    std::printf("%-12s %6s %-5s %-4s %-13s %10s %10s %10s %10s %12s %10s\n", "net", "batch", "mode", "", "format",
                "step ms", "forward", "backward", "optimizer", "samples/s", "peak MiB");
    bool found = false;
    for (const Workload& work : benchmarks::workloads()) {
      if (settings.net != "all" && settings.net != work.name) continue;
      found = true;
      std::vector<int64_t> batches = work.batches;
      if (Device(settings.device).is_cuda())
        batches.insert(batches.end(), work.larger_batches.begin(), work.larger_batches.end());
      if (settings.batch > 0) batches = {settings.batch};
      for (const int64_t batch : batches) report_all(work, batch, settings, program);
    }
    if (!found) throw ValueError("no net '" + settings.net + "'");
  });
}
