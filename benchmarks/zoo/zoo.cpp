// Lists the nets of the zoo, times their training steps, or computes losses and gradients for zoo.py, which compares
// them with PyTorch's.
//
//   zoo --list
//   zoo --net resnet18 --threads 2 --mode eager,static --precision fp32,bf16 --format contiguous,channels_last
//   zoo --net resnet18 --parity weights_and_inputs.safetensors --results results.safetensors
#include <algorithm>
#include <cstdio>
#include <sstream>

#include <gradus/autograd/archive.h>
#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/common/timed_step.h>
#include <gradus/benchmarks/zoo/zoo.h>
#include <gradus/core/runtime/cuda.h>

namespace {

using namespace gradus;
using benchmarks::Program;
using benchmarks::StepFigures;
using benchmarks::StepVariant;
using zoo::Entry;
using zoo::Input;
using zoo::Net;
using zoo::Phase;
using Names = std::vector<std::string>;

struct Settings {
  Names nets = {"all"};
  std::string device = "cpu", backend, parity, results;
  benchmarks::StepVariants variants;
  int64_t batch = 0;
  double seconds = 1.0;
  bool list = false, timed = false;
};

std::vector<Entry> chosen_entries(const Names& names) {
  if (names == Names{"all"}) return zoo::entries();
  std::vector<Entry> chosen;
  for (const std::string& name : names) {
    const auto found = std::find_if(zoo::entries().begin(), zoo::entries().end(),
                                    [&](const Entry& entry) { return entry.name == name; });
    if (found == zoo::entries().end()) throw ValueError("no net '" + name + "'; zoo --list shows all");
    chosen.push_back(*found);
  }
  return chosen;
}

/// Prints a JSON line. Inputs are written as "normal 4,3,32,32; integers 4 below 10".
void list(const Entry& entry, const Settings& settings) {
  const int64_t batch = settings.batch > 0 ? settings.batch : entry.batch;
  std::ostringstream inputs;
  for (const Input& input : entry.inputs(batch)) {
    inputs << (inputs.tellp() > 0 ? "; " : "") << input.kind << " ";
    for (int i = 0; i < input.shape.size(); ++i) inputs << (i ? "," : "") << input.shape[i];
    if (input.bound > 0) inputs << " below " << input.bound;
  }
  std::puts(benchmarks::to_json({{"net", entry.name},
                                 {"batch", batch},
                                 {"frozen", zoo::is_frozen(entry.name)},
                                 {"parameters", entry.make().module->num_parameters()},
                                 {"inputs", inputs.str()}})
                .c_str());
}

// ---- Parity ----

/// Reads weights ("net.NAME") and inputs ("input.0" and so on) in float64. Writes the loss of each phase ("0.loss"),
/// its gradients ("0.grad.NAME") and, after all phases, the buffers ("buffer.NAME"). Parameters are not updated, and
/// nothing is dropped.
void compute_for_parity(const Entry& entry, const Settings& settings) {
  const Net net = entry.make();
  net.module->to(kDouble);
  net.module->apply([](nn::Module& module) {
    if (module.as<nn::Dropout>()) module.eval();
  });
  serialize::InputArchive given, weights;
  given.load_from(settings.parity);
  given.read("net", weights);
  net.module->load(weights);
  TensorList batch;
  for (Tensor x; given.try_read("input." + std::to_string(batch.size()), x); x = {}) batch.push_back(x);

  serialize::OutputArchive results;
  for (size_t i = 0; i < net.phases.size(); ++i) {
    const std::string phase = std::to_string(i);
    net.module->zero_grad();
    const Tensor loss = net.phases[i].loss(batch);
    loss.backward();
    results.write(phase + ".loss", loss.detach());
    for (const auto& item : net.module->named_parameters())
      if (item.value().grad().defined()) results.write(phase + ".grad." + item.key(), item.value().grad());
  }
  for (const auto& item : net.module->named_buffers()) results.write("buffer." + item.key(), item.value());
  results.save_to(settings.results);
}

// ---- Time ----

/// Random inputs on the device, images in the memory format.
TensorList draw_batch(const Entry& entry, int64_t size, Device device, MemoryFormat format) {
  TensorList batch;
  for (const Input& input : entry.inputs(size)) {
    const Tensor x = input.draw().to(device);
    batch.push_back(x.dim() == 4 ? x.contiguous(format) : x);
  }
  return batch;
}

StepFigures measure(const Entry& entry, int64_t size, const StepVariant& variant, const Settings& settings) {
  const Device device(settings.device);
  benchmarks::set_tf32(variant.precision);
  manual_seed(0);
  const Net net = entry.make();
  net.module->to(device);
  net.module->to(variant.memory_format());
  const TensorList batch = draw_batch(entry, size, device, variant.memory_format());
  std::vector<std::unique_ptr<optim::Adam>> adams;  // of each phase
  std::vector<optim::Optimizer*> optimizers;
  for (const Phase& phase : net.phases) {
    adams.push_back(std::make_unique<optim::Adam>(phase.trained->parameters(), optim::AdamOptions(1e-3)));
    optimizers.push_back(adams.back().get());
  }
  const auto loss_of = [&](const Phase& phase) {
    const amp::Autocast autocast(device.type(), variant.half_type(), variant.is_mixed());
    return phase.loss(batch);
  };
  const auto step = [&] {
    for (size_t i = 0; i < net.phases.size(); ++i) {
      net.module->zero_grad();
      loss_of(net.phases[i]).backward();
      optimizers[i]->step();
    }
  };
  return benchmarks::time_training_step(device, variant.mode, optimizers, step, settings.seconds);
}

void time(const Entry& entry, const StepVariant& variant, const Settings& settings, const Program& program) {
  const int64_t size = settings.batch > 0 ? settings.batch : entry.batch;
  const StepFigures figures = measure(entry, size, variant, settings);
  const DeviceType type = Device(settings.device).type();
  std::printf("%-20s %6lld %-6s %-4s %-13s %10.4f %10.2f\n", entry.name.c_str(), static_cast<long long>(size),
              variant.mode.c_str(), variant.precision.c_str(), variant.format.c_str(), figures.median_ms,
              static_cast<double>(figures.peak_bytes) / (1 << 20));
  std::fflush(stdout);
  program.record({{"net", entry.name},
                  {"batch", size},
                  {"frozen", zoo::is_frozen(entry.name)},
                  {"device", settings.device},
                  {"backend", std::string(current_backend(type).name())},
                  {"mode", variant.mode},
                  {"precision", variant.precision},
                  {"format", variant.format},
                  {"threads", num_threads()},
                  {"machine", runtime(type).description(0)},
                  {"version", version()},
                  {"step_ms", figures.median_ms},
                  {"peak_bytes", figures.peak_bytes}});
}

void time_all(const Entry& entry, const Settings& settings, const Program& program) {
  const std::vector<Input> inputs = entry.inputs(1);
  const bool has_images =
      std::any_of(inputs.begin(), inputs.end(), [](const Input& input) { return input.shape.size() == 4; });
  for (const StepVariant& variant : settings.variants.all(has_images)) time(entry, variant, settings, program);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  Program program("zoo", "Trains public architectures of small models on random inputs");
  program.flag("--list", settings.list, "print the nets, with a JSON line for each");
  program.option("--net", settings.nets, "nets by name, or all");
  program.option("--batch", settings.batch, "size of the batch; default: the net's");
  program.option("--parity", settings.parity,
                 "file with weights and inputs, from which losses and gradients are computed");
  program.option("--results", settings.results, "file for the losses and gradients of --parity");
  program.option("--device", settings.device, "cpu or cuda");
  program.option("--backend", settings.backend, "naive, openmp, cuda, cudnn; default: the device's best");
  settings.variants.add_options(program);
  program.flag("--timed", settings.timed, "choose convolutions by time: cudnn::set_benchmark()");
  program.option("--seconds", settings.seconds, "time per measurement");
  program.json_option();
  return program.run(argc, argv, [&] {
    if (!settings.backend.empty()) set_backend(settings.backend);
    cudnn::set_benchmark(settings.timed);
    for (const Entry& entry : chosen_entries(settings.nets)) {
      if (settings.list) list(entry, settings);
      else if (!settings.parity.empty()) compute_for_parity(entry, settings);
      else time_all(entry, settings, program);
    }
  });
}
