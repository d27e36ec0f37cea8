// Runs every case of tests/op_cases with Google Benchmark: forward, and forward with backward, on each backend, in
// float32. The inputs are small, so this measures the overhead of a call. train_step measures the kernels with large
// inputs.
//
//   op_bench --benchmark_filter='conv2d.*/openmp'
#include <benchmark/benchmark.h>

#include <gradus/gradus.h>
#include <gradus/tests/op_cases/op_case.h>

namespace {

using namespace gradus;
using op_cases::OpCase;

Device device_of(const std::string& backend_name) { return Device(backend(backend_name).device_type()); }

void run_case(benchmark::State& state, const OpCase& op_case, const std::string& backend_name, bool backward) {
  const BackendGuard guard(backend_name);
  const Device device = device_of(backend_name);
  DeviceRuntime& waiter = runtime(device.type());
  TensorList inputs;
  for (const Tensor& input : op_cases::make_inputs(op_case, kFloat)) {
    inputs.push_back(input.to(device));
    if (backward && is_floating(input.dtype())) inputs.back() = inputs.back().detach().requires_grad_();
  }
  for (auto _ : state) {
    const TensorList outputs = op_case.run(inputs);
    if (backward) {
      TensorList roots, ones;
      for (const Tensor& output : outputs)
        if (output.requires_grad()) roots.push_back(output), ones.push_back(ones_like(output));
      autograd::backward(roots, ones);
    }
    benchmark::DoNotOptimize(outputs.data());
  }
  waiter.synchronize(device.index());
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  for (const std::string& backend_name : backend_names())
    for (const OpCase& op_case : op_cases::all_cases()) {
      if (!op_case.runs_in(kFloat)) continue;
      const std::string name = op_case.name + "/" + backend_name;
      benchmark::RegisterBenchmark((name + "/forward").c_str(), [&, backend_name](benchmark::State& s) {
        run_case(s, op_case, backend_name, false);
      });
      if (op_case.order > 0)
        benchmark::RegisterBenchmark((name + "/backward").c_str(), [&, backend_name](benchmark::State& s) {
          run_case(s, op_case, backend_name, true);
        });
    }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
