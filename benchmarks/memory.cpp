// Prints the memory of a training step as gradus::plan reports it and, with --measure, as the allocator counts it in a
// real step.
//
//   memory --net resnet18 --batch 32 --optimizer adamw --recompute selective --budget 300000000
//   memory --net stl10_net --fits 8589934592       prints the largest batch that fits in 8 GiB
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/nets.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace {

using namespace gradus;
using benchmarks::Fields;

struct Settings {
  std::string net = "lenet", device = "cpu", backend, optimizer = "sgd", recompute = "none", timeline;
  int64_t batch = 32, budget = 0, fits = 0;
  bool mixed = false, inference = false, measure = false, time = false;
};

class Net {
 public:
  Net(const benchmarks::Workload& work, const Settings& settings)
      : settings_(settings), work_(work), device_(settled(Device(settings.device))), at_start_(allocated()),
        net_(work.make()) {
    net_.ptr()->to(device_);
    if (settings.inference) return;
    const std::vector<Tensor> parameters = net_.ptr()->parameters();
    if (settings.optimizer == "sgd")
      optimizer_ = std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.01).momentum(0.9));
    else optimizer_ = std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(1e-3));
  }

  void choose_recomputation() {
    const Shape shape = work_.input(settings_.batch);
    std::vector<RecomputedPart> parts;
    if (settings_.recompute == "selective")
      parts = recompute_within(net_, shape, *optimizer_, settings_.budget, options());
    else if (settings_.recompute == "full") parts = recompute_all(net_, shape, *optimizer_, options());
    for (const RecomputedPart& part : parts) recomputed_ += (recomputed_.empty() ? "" : " ") + part.str();
    if (!recomputed_.empty()) std::printf("recomputed: %s\n", recomputed_.c_str());
  }

  MemoryReport planned() const {
    const Shape shape = work_.input(settings_.batch);
    return optimizer_ ? plan(net_, shape, *optimizer_, options()) : plan(net_, shape, options());
  }
  int64_t largest() const { return largest_batch(net_, work_.input(1), *optimizer_, settings_.fits, options()); }

  /// Returns what the allocator counts. The sizes of parameters, gradients, state and activations are differences
  /// between the allocated memory before and after each part of the step.
  Fields measured() {
    const Tensor x = rand(work_.input(settings_.batch)).to(device_);
    Fields fields = {{"measured_parameters", of_parameters()}};
    if (!optimizer_) {
      const NoGradGuard no_grad;
      fields.emplace_back("measured_peak", peak_of([&] { net_.forward(x); }));
      return fields;
    }
    const Tensor target = randint(0, 10, {settings_.batch}, kLong).to(device_);
    const auto loss_of = [&] {
      std::optional<amp::Autocast> autocast;
      if (settings_.mixed) autocast.emplace(device_.type(), kBFloat16);
      return cross_entropy(net_.forward(x), target);
    };
    const int64_t at_first = allocated();
    loss_of().backward();
    optimizer_->step();  // from now on keeps half-precision copies for autocast
    optimizer_->zero_grad();
    fields.emplace_back("measured_state", allocated() - at_first);
    const int64_t before = allocated();
    Tensor loss = loss_of();
    fields.emplace_back("measured_activations", allocated() - before);
    loss.backward();
    loss = {};
    fields.emplace_back("measured_gradients", allocated() - before);
    fields.emplace_back("measured_peak", peak_of([&] {
                          optimizer_->zero_grad();
                          loss = loss_of();
                          loss.backward();
                          optimizer_->step();
                        }));
    return fields;
  }
  const std::string& recomputed() const { return recomputed_; }

  struct Seconds {
    double forward = 0, step = 0;
  };
  /// Returns the least CPU time of several steps.
  Seconds seconds() {
    const Tensor x = rand(work_.input(settings_.batch)), target = randint(0, 10, {settings_.batch}, kLong);
    Seconds least{1e9, 1e9};
    for (int i = 0; i < 30; ++i) {
      const std::clock_t start = std::clock();
      optimizer_->zero_grad();
      const Tensor loss = cross_entropy(net_.forward(x), target);
      const std::clock_t middle = std::clock();
      loss.backward();
      optimizer_->step();
      least.forward = std::min(least.forward, static_cast<double>(middle - start) / CLOCKS_PER_SEC);
      least.step = std::min(least.step, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    return least;
  }

 private:
  PlanOptions options() const {
    PlanOptions options;
    options.batch_axis(work_.input(7)[0] == 7 ? 0 : 1);
    if (settings_.mixed) options.autocast(kBFloat16);
    return options;
  }
  int64_t of_parameters() const {
    int64_t bytes = 0;
    for (const Tensor& parameter : net_.ptr()->parameters())
      bytes += counted_bytes(parameter.array().nbytes(), device_.type());
    return bytes;
  }
  template <class F>
  int64_t peak_of(const F& f) const {
    runtime(device_.type()).reset_peak_memory_stats(device_.index());
    f();
    return runtime(device_.type()).memory_stats(device_.index()).peak_allocated - at_start_;
  }
  int64_t allocated() const { return runtime(device_.type()).memory_stats(device_.index()).allocated; }

  const Settings& settings_;
  const benchmarks::Workload& work_;
  const Device device_;
  const int64_t at_start_;
  const nn::AnyModule net_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::string recomputed_;
};

Fields fields_of(const MemoryReport& report) {
  Fields fields = {{"parameters", report.parameters},  {"buffers", report.buffers},
                   {"gradients", report.gradients},    {"state", report.optimizer_state},
                   {"inputs", report.inputs},          {"activations", report.activations},
                   {"workspace", report.workspace},    {"peak", report.peak},
                   {"arena", report.static_arena},     {"lower_bound", report.static_lower_bound},
                   {"static_peak", report.static_peak}};
  for (int kind = 0; kind < kMemoryKinds; ++kind)
    fields.emplace_back(std::string("at_peak ") + name(static_cast<MemoryKind>(kind)), report.at_peak[kind]);
  fields.emplace_back("forward_flops", report.forward_flops);
  fields.emplace_back("recomputed_flops", report.recomputed_flops);
  return fields;
}

/// Writes a line with the report, and then a line for each piece of memory.
void write_timeline(const MemoryReport& report, Fields first, const std::string& path) {
  std::ofstream file(path);
  for (const auto& [key, time] : {std::pair("backward_begin", report.backward_begin),
                                  {"step_begin", report.step_begin},
                                  {"end", report.end},
                                  {"peak_time", report.peak_time}})
    first.emplace_back(key, time);
  file << benchmarks::to_json(first) << "\n";
  for (const MemorySpan& span : report.timeline)
    file << benchmarks::to_json({{"kind", name(span.kind)},
                                 {"bytes", span.bytes},
                                 {"begin", span.begin},
                                 {"end", span.end},
                                 {"module", span.module},
                                 {"op", span.op}})
         << "\n";
  GRADUS_CHECK(file.flush(), IoError, "cannot write '", path, "'");
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  benchmarks::Program program("memory", "The memory of a training step, planned and measured");
  program.option("--net", settings.net, "a net of benchmarks/nets.h by name");
  program.option("--batch", settings.batch, "number of images or sequences");
  program.option("--optimizer", settings.optimizer, "SGD with momentum, or AdamW", {"sgd", "adamw"});
  program.option("--device", settings.device, "device on which the step is planned and run", {"cpu", "cuda"});
  program.option("--backend", settings.backend, "backend of that device; default: the current one");
  program.option("--recompute", settings.recompute, "which activations are recomputed in backward",
                 {"none", "selective", "full"});
  program.option("--budget", settings.budget, "peak in bytes that selective recomputation must not exceed");
  program.option("--fits", settings.fits, "print the largest batch whose step needs at most this number of bytes");
  program.option("--timeline", settings.timeline, "file for the lifetimes of memory blocks, as JSON lines");
  program.flag("--mixed", settings.mixed, "run the step under autocast to bfloat16");
  program.flag("--inference", settings.inference, "plan only a forward pass");
  program.flag("--measure", settings.measure, "run steps and print the statistics of the allocator");
  program.flag("--time", settings.time, "time steps with and without recomputation; most exact with --threads 1");
  program.json_option();
  return program.run(argc, argv, [&] {
    const DeviceType type = Device(settings.device).type();
    if (settings.backend.empty()) settings.backend = current_backend(type).name();
    set_backend(settings.backend);
    manual_seed(0);
    const std::vector<benchmarks::Workload> works = benchmarks::workloads();
    const auto work = std::find_if(works.begin(), works.end(), [&](const auto& w) { return w.name == settings.net; });
    GRADUS_CHECK(work != works.end(), ValueError, "there is no net '", settings.net, "'");
    GRADUS_CHECK(!settings.inference || (settings.fits == 0 && settings.recompute == "none" && !settings.time),
                 ValueError, "--inference goes without --fits, --recompute and --time");
    GRADUS_CHECK(backend(settings.backend).device_type() == type, ValueError, "--backend ", settings.backend,
                 " is not of --device ", settings.device);
    GRADUS_CHECK(!settings.time || type == DeviceType::cpu, ValueError, "--time measures the CPU's time: leave out ",
                 "--device ", settings.device);
    Net net(*work, settings);
    if (settings.fits > 0) {
      const int64_t batch = net.largest();
      std::printf("%s: a batch of %lld fits in %lld bytes\n", settings.net.c_str(), static_cast<long long>(batch),
                  static_cast<long long>(settings.fits));
      return program.record({{"net", settings.net}, {"bytes", settings.fits}, {"largest_batch", batch}});
    }
    const Net::Seconds before = settings.time ? net.seconds() : Net::Seconds();
    net.choose_recomputation();
    const auto start = std::chrono::steady_clock::now();
    const MemoryReport report = net.planned();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%s", report.str().c_str());
    Fields fields = {{"net", settings.net},
                     {"batch", settings.batch},
                     {"device", settings.device},
                     {"backend", settings.backend},
                     {"optimizer", settings.inference ? "none" : settings.optimizer},
                     {"mixed", settings.mixed},
                     {"recompute", settings.recompute},
                     {"recomputed", net.recomputed()},
                     {"plan_seconds", seconds}};
    for (const auto& field : fields_of(report)) fields.push_back(field);
    if (!settings.timeline.empty()) write_timeline(report, fields, settings.timeline);
    if (settings.measure) {
      for (const auto& field : net.measured()) {
        std::printf("%-24s %15lld\n", field.first.c_str(),
                    static_cast<long long>(std::get<int64_t>(field.second.held)));
        fields.push_back(field);
      }
    }
    if (settings.time) {
      const double planned = before.step + before.forward * report.recomputed_flops / report.forward_flops;
      const double measured = net.seconds().step;
      std::printf("CPU ms a step: %.3f without recomputation, planned %.3f, measured %.3f\n", 1e3 * before.step,
                  1e3 * planned, 1e3 * measured);
      fields.emplace_back("step_seconds_before", before.step);
      fields.emplace_back("planned_step_seconds", planned);
      fields.emplace_back("measured_step_seconds", measured);
    }
    program.record(fields);
  });
}
