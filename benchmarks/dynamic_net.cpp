// What a captured step and a static one cannot express, and what helps. A net applies its layer until its state is
// small, so the number of rounds depends on the input. Eagerly that is a loop; a recording would have to know the
// number, and refuses. With a greatest number of rounds, each masked where the loop would have ended, the step can be
// recorded (E11). A JSON line for each.
//
//   dynamic_net --device cuda
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/gradus.h>

namespace {

using namespace gradus;
using benchmarks::Fields;

constexpr int64_t kFeatures = 64, kBatch = 32, kMostRounds = 8;
constexpr double kSmall = 5;  // norm of a state

struct DynamicNet : nn::Module {
  nn::Linear layer = register_module("layer", nn::Linear(kFeatures, kFeatures));
  int64_t rounds = 0;  // of the last loop

  /// The host looks at a number of the device to decide whether to go on.
  Tensor loop(Tensor x) {
    for (rounds = 0; rounds < kMostRounds && x.norm().item<float>() > kSmall; ++rounds) x = tanh(layer(x));
    return x;
  }
  /// Always kMostRounds, and the device keeps the old state where the loop would have ended.
  Tensor masked(Tensor x) {
    for (int64_t round = 0; round < kMostRounds; ++round) x = where(x.norm() > kSmall, tanh(layer(x)), x);
    return x;
  }
};

/// Inputs that take the loop from no round to several.
std::vector<Tensor> make_inputs(Device device) {
  std::vector<Tensor> inputs;
  for (const double scale : {0.1, 0.2, 0.5, 4.0}) inputs.push_back((randn({kBatch, kFeatures}) * scale).to(device));
  return inputs;
}

struct Outcome {
  std::string rounds;  // by input, of the loop
  double step_ms = 0;
  std::vector<Tensor> parameters;  // after an epoch
};

Outcome train(Device device, bool loop, const std::string& mode, double seconds) {
  manual_seed(1);
  DynamicNet net;
  net.to(device);
  const std::vector<Tensor> inputs = make_inputs(device);
  optim::SGD optimizer(net.parameters(), optim::SGDOptions(1e-3));
  const auto function = [&](const TensorList& batch) -> TensorList {
    optimizer.zero_grad();
    const Tensor loss = (loop ? net.loop(batch[0]) : net.masked(batch[0])).square().mean();
    if (loss.requires_grad()) {  // the layer took part
      loss.backward();
      optimizer.step();
    }
    return {};
  };
  training::CapturedStep captured(device, {&optimizer}, function, training::CapturedStepOptions().warm_up(1));
  training::StaticStep recorded(device, {&optimizer}, function);
  const auto step = [&](const TensorList& batch) {
    if (mode == "captured") captured(batch);
    else if (mode == "static") recorded(batch);
    else function(batch);
  };
  Outcome outcome;
  for (int epoch = 0; epoch < 5; ++epoch) {
    outcome.rounds.clear();
    for (const Tensor& x : inputs) {
      step({x});
      outcome.rounds += (outcome.rounds.empty() ? "" : " ") + std::to_string(net.rounds);
    }
  }
  for (const Tensor& parameter : net.parameters())
    outcome.parameters.push_back(parameter.detach().to(kCPU, false, true));
  const double epoch_ms = benchmarks::time_ms(device, seconds, [&] {
    for (const Tensor& x : inputs) step({x});
  });
  outcome.step_ms = epoch_ms / static_cast<double>(inputs.size());
  return outcome;
}

double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = (a[i] - b[i]).abs().max().item<double>();
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);  // which would pass over a NaN
  }
  return largest;
}

}  // namespace

int main(int argc, char** argv) {
  std::string device_name = "cpu";
  double seconds = 0.5;
  benchmarks::Program program("dynamic_net", "Trains a net whose depth depends on its input, eagerly and recorded");
  program.option("--device", device_name, "cpu or cuda; on the cpu nothing is captured");
  program.option("--seconds", seconds, "time per measurement");
  return program.run(argc, argv, [&] {
    const Device device(device_name);
    const Outcome reference = train(device, /*loop=*/true, "eager", seconds);
    for (const char* mode : {"eager", "captured", "static"}) {
      if (std::string_view(mode) == "captured" && !device.is_cuda()) continue;
      for (const bool loop : {true, false}) {
        Fields fields = {{"step", loop ? "loop" : "masked"}, {"mode", mode}};
        try {
          const Outcome outcome = train(device, loop, mode, seconds);
          if (loop) fields.emplace_back("rounds", outcome.rounds);
          fields.emplace_back("step_ms", outcome.step_ms);
          fields.emplace_back("max_difference", largest_difference(outcome.parameters, reference.parameters));
        } catch (const DeviceError& error) {  // what a recorded loop ends with
          if (std::string_view(mode) == "eager" || !loop) throw;
          fields.emplace_back("error", error.what());
        }
        std::printf("%s\n", benchmarks::to_json(fields).c_str());
        std::fflush(stdout);
      }
    }
  });
}
