// Shows what a CapturedStep and a StaticStep cannot record, and a solution. A net applies its layer until its state is
// small, so the number of rounds depends on the input. An eager step uses a loop; a recorded step cannot, because the
// number of rounds must be known. With a fixed number of rounds, which are masked after the loop would have ended, the
// step can be recorded (experiment E11). Prints a JSON line for each variant.
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
constexpr double kSmall = 5;  // norm below which a state is small

struct DynamicNet : nn::Module {
  nn::Linear layer = register_module("layer", nn::Linear(kFeatures, kFeatures));
  int64_t rounds = 0;  // number of rounds of the last loop

  /// The host reads a number from the device to decide whether to continue.
  Tensor loop(Tensor x) {
    for (rounds = 0; rounds < kMostRounds && x.norm().item<float>() > kSmall; ++rounds) x = tanh(layer(x));
    return x;
  }
  /// Always makes kMostRounds rounds. After the loop would have ended, the device keeps the old state.
  Tensor masked(Tensor x) {
    for (int64_t round = 0; round < kMostRounds; ++round) x = where(x.norm() > kSmall, tanh(layer(x)), x);
    return x;
  }
};

/// Returns inputs for which the loop takes between none and several rounds.
std::vector<Tensor> make_inputs(Device device) {
  std::vector<Tensor> inputs;
  for (const double scale : {0.1, 0.2, 0.5, 4.0}) inputs.push_back((randn({kBatch, kFeatures}) * scale).to(device));
  return inputs;
}

struct Outcome {
  std::string rounds;  // numbers of rounds of the loop, for each input
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
    if (loss.requires_grad()) {  // the loop made at least one round
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
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);  // std::max alone would ignore a NaN
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
        } catch (const DeviceError& error) {  // a recorded loop throws this error
          if (std::string_view(mode) == "eager" || !loop) throw;
          fields.emplace_back("error", error.what());
        }
        std::printf("%s\n", benchmarks::to_json(fields).c_str());
        std::fflush(stdout);
      }
    }
  });
}
