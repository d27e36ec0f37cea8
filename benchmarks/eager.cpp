// Measures the overhead of gradus in addition to the kernels: operators, backward passes, module calls and optimizer
// steps on tensors so small that the arithmetic takes no time. Prints a table with the median microseconds per call
// and, with --json, a JSON line for each measurement. benchmarks/eager.py runs the same with PyTorch and compares.
//
//   eager --row chain --json results.jsonl
#include <algorithm>
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/gradus.h>

namespace {

using namespace gradus;
using Work = std::function<void()>;

struct Row {
  std::string name;
  std::function<Work()> prepare;
};

double now_us() { return benchmarks::now_ms() * 1000; }

// Returns the median microseconds per call. Each sample consists of as many calls as take 50 us.
double time_us(const Work& work, double seconds) {
  const double warm = now_us() + seconds * 1e5;
  do work();
  while (now_us() < warm);
  const double once = now_us();
  work();
  const int calls = std::max(1, static_cast<int>(50 / std::max(now_us() - once, 0.01)));
  std::vector<double> samples;
  for (const double end = now_us() + seconds * 1e6; now_us() < end || samples.size() < 5;) {
    const double start = now_us();
    for (int i = 0; i < calls; ++i) work();
    samples.push_back((now_us() - start) / calls);
  }
  return benchmarks::median(std::move(samples));
}

constexpr int kChain = 1000;  // number of operators in a chain
constexpr int kTiny = 100;    // number of parameters of an optimizer's step

Tensor chain(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < kChain / 2; ++i) y = y * 1.001 + 0.1;
  return y;
}

template <class Optimizer, class Options>
Work tiny_step(const Options& options) {
  TensorList parameters;
  for (int i = 0; i < kTiny; ++i) {
    parameters.push_back(randn({4}).set_requires_grad(true));
    parameters.back().mutable_grad() = randn({4});
  }
  return [optimizer = std::make_shared<Optimizer>(parameters, options)] { optimizer->step(); };
}

std::vector<Row> rows() {
  return {
      {"add_scalars",
       [] {
         const Tensor a = tensor(1.5f).set_requires_grad(true), b = tensor(2.5f).set_requires_grad(true);
         return [a, b] { const Tensor y = a + b; };
       }},
      {"add_scalars_no_grad",
       [] {
         const Tensor a = tensor(1.5f), b = tensor(2.5f);
         return [a, b] { const Tensor y = a + b; };
       }},
      {"add_number",
       [] {
         const Tensor a = randn({4}).set_requires_grad(true);
         return [a] { const Tensor y = a + 0.1; };
       }},
      {"chain_forward",
       [] {
         const Tensor x = randn({4}).set_requires_grad(true);
         return [x] { const Tensor y = chain(x); };
       }},
      {"chain_forward_backward",
       [] {
         const Tensor x = randn({4}).set_requires_grad(true), dy = ones({4});
         return [x, dy] {
           x.zero_grad();
           chain(x).backward(dy);
         };
       }},
      {"linear_call",
       [] {
         nn::Linear module(4, 4);
         const Tensor x = randn({1, 4});
         return [module, x]() mutable { const Tensor y = module(x); };
       }},
      {"mlp_forward_backward",
       [] {
         nn::Sequential net(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 1));
         const Tensor x = randn({2, 4});
         return [net, x]() mutable {
           net->zero_grad();
           net->forward(x).sum().backward();
         };
       }},
      {"sgd_100_tiny", [] { return tiny_step<optim::SGD>(optim::SGDOptions(0.01).momentum(0.9)); }},
      {"adam_100_tiny", [] { return tiny_step<optim::Adam>(optim::AdamOptions(1e-3)); }},
  };
}

}  // namespace

int main(int argc, char** argv) {
  std::string wanted;
  double seconds = 0.5;
  benchmarks::Program program("eager", "Times what surrounds the kernels, on tiny tensors");
  program.option("--row", wanted, "only rows whose name starts with this");
  program.option("--seconds", seconds, "time per measurement");
  program.json_option();
  return program.run(argc, argv, [&] {
    manual_seed(0);
    for (const Row& row : rows()) {
      if (row.name.rfind(wanted, 0) != 0) continue;
      const double us = time_us(row.prepare(), seconds);
      std::printf("%-26s %12.3f us\n", row.name.c_str(), us);
      std::fflush(stdout);
      program.record({{"row", row.name}, {"threads", num_threads()}, {"us", us}});
    }
  });
}
