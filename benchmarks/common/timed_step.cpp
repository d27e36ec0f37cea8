#include <gradus/benchmarks/common/timed_step.h>

#include <numeric>

#include <gradus/benchmarks/timing.h>

namespace gradus::benchmarks {

void StepVariants::add_options(Program& program) {
  program.option("--mode", modes,
                 "how steps run; graph: captured (on the cpu: static); static: recorded once, run from planned memory",
                 {"eager", "graph", "static"});
  program.option("--precision", precisions, "precision of products and convolutions; fp16 and bf16: mixed precision",
                 {"fp32", "tf32", "fp16", "bf16"});
  program.option("--format", formats, "memory format of images and of the nets that take images",
                 {"contiguous", "channels_last"});
}

std::vector<StepVariant> StepVariants::all(bool has_images) const {
  std::vector<StepVariant> variants;
  for (const std::string& mode : modes)
    for (const std::string& precision : precisions)
      for (const std::string& format : has_images ? formats : std::vector<std::string>{"contiguous"})
        variants.push_back({mode, precision, format});
  return variants;
}

void set_tf32(const std::string& precision) {
  cudnn::set_allow_tf32(precision == "tf32");
  cuda::set_matmul_allow_tf32(precision == "tf32");
}

int64_t peak_bytes(Device device, const std::function<void()>& work) {
  DeviceRuntime& memory = runtime(device.type());
  memory.reset_peak_memory_stats(device.index());
  work();
  return memory.memory_stats(device.index()).peak_allocated;
}

StepFigures time_training_step(Device device, const std::string& mode, const std::vector<optim::Optimizer*>& optimizers,
                               const std::function<void()>& step, double seconds) {
  for (int i = 0; i < 2; ++i) step();  // creates the optimizers' state
  StepFigures figures;
  figures.peak_bytes = peak_bytes(device, step);
  auto time = [&](const std::function<void()>& one) {
    const std::vector<double> samples = samples_ms(device, seconds, one);
    figures.median_ms = median(samples);
    figures.mean_ms = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
  };
  const auto step_without_results = [&](const TensorList&) -> TensorList {
    step();
    return {};
  };
  if (mode == "static" || (mode == "graph" && device.is_cpu())) {
    training::StaticStep recorded(device, optimizers, step_without_results);
    while (!recorded.executor()) recorded({});
    figures.peak_bytes = peak_bytes(device, [&] {
      for (int i = 0; i < 2; ++i) recorded({});  // on a GPU, the first call captures
    });
    time([&] { recorded({}); });
  } else if (mode == "graph") {
    training::CapturedStep captured(device, optimizers, step_without_results);
    while (!captured.captured()) captured({});
    time([&] { captured({}); });
  } else {
    time(step);
  }
  return figures;
}

}  // namespace gradus::benchmarks
