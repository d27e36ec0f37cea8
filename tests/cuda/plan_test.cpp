// Compares memory plans on a GPU with its allocator, and the arenas of static steps with eager steps.
#include <gradus/benchmarks/nets.h>
#include <gradus/gradus.h>
#include <gradus/graph/executor.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;

namespace {

enum class Recompute : uint8_t { none, selective, full };

struct PlannedOnGpu {
  int64_t batch = 2;
  bool adamw = false;
  Recompute recompute = Recompute::none;
  std::optional<DType> half = std::nullopt;
  bool runs_static = false;
};

int batch_axis_of_net(const benchmarks::Workload& workload) { return workload.input(7)[0] == 7 ? 0 : 1; }

std::unique_ptr<optim::Optimizer> optimizer_on_gpu(bool adamw, const TensorList& parameters) {
  if (adamw) return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(1e-3));
  return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.01).momentum(0.9));
}

int64_t peak_on_gpu(const std::function<void()>& f) {
  cuda::reset_peak_memory_stats();
  f();
  return cuda::max_memory_allocated();
}

/// Plans the memory of a step of the net, runs the step eagerly and as a static step, and compares the peaks.
void check_plan_on_gpu(const benchmarks::Workload& workload, const PlannedOnGpu& setup) {
  INFO(workload.name << " " << setup.batch << " " << setup.adamw << " recompute " << static_cast<int>(setup.recompute)
                     << " on " << current_backend(DeviceType::cuda).name());
  manual_seed(3);
  const Device device = cuda_device();
  const int64_t before = cuda::memory_allocated();
  const nn::AnyModule net = workload.make();
  net.ptr()->to(device);
  const auto optimizer = optimizer_on_gpu(setup.adamw, net.ptr()->parameters());
  const Shape shape = workload.input(setup.batch);
  const PlanOptions options = PlanOptions().batch_axis(batch_axis_of_net(workload)).autocast(setup.half);
  const int64_t without = setup.recompute == Recompute::selective ? plan(net, shape, *optimizer, options).peak : 0;
  if (setup.recompute == Recompute::full) recompute_all(net, shape, *optimizer, options);
  if (without > 0) recompute_within(net, shape, *optimizer, without * 9 / 10, options);
  const MemoryReport report = plan(net, shape, *optimizer, options);
  CHECK(cuda::memory_allocated() - before == report.parameters + report.buffers);  // planning leaves no allocations
  const auto take_step = [&](const Tensor& x, const Tensor& target) {
    optimizer->zero_grad();
    Tensor loss;
    {
      const amp::Autocast autocast(kCUDA, setup.half, setup.half.has_value());
      loss = cross_entropy(net.forward(x), target);
    }
    loss.backward();
    optimizer->step();
    return loss;
  };
  {
    const Tensor x = rand(shape).to(device), target = randint(0, 10, {setup.batch}, kLong).to(device);
    for (int i = 0; i < 2; ++i)
      take_step(x, target);  // the first step has float32 gradients, because there are no half copies yet
    CHECK(peak_on_gpu([&] { take_step(x, target); }) - before == report.peak);
  }
  if (!setup.runs_static) return;
  training::StaticStep step(device, {optimizer.get()}, [&](const TensorList& tensors) -> TensorList {
    return {take_step(tensors[0], tensors[1])};
  });
  const TensorList tensors = {rand(shape).to(device), randint(0, 10, {setup.batch}, kLong).to(device)};
  for (int i = 0; i < 4; ++i) step(tensors);
  const int64_t allocations = cuda::memory_stats().allocations;
  CHECK(peak_on_gpu([&] { step(tensors); }) - before == report.static_peak + report.inputs);
  CHECK(cuda::memory_stats().allocations == allocations);
}

}  // namespace

TEST_CASE("a plan of a step's memory on a GPU is the allocator's peak, to the byte", "[plan]") {
  if (no_cuda_device()) return;
  for (const char* backend : {"cuda", "cudnn"}) {
    if (!has_backend(backend)) continue;
    const BackendGuard guard(backend);
    for (const benchmarks::Workload& workload : benchmarks::workloads())
      for (bool adamw : {false, true})
        for (int64_t batch : {1, 2, 5})
          check_plan_on_gpu(workload, {.batch = batch, .adamw = adamw, .runs_static = batch == 2});
  }
}

TEST_CASE("recomputed and mixed steps on a GPU take what their plans say, to the byte", "[plan]") {
  if (no_cuda_device()) return;
  const BackendGuard guard("cuda");
  for (const benchmarks::Workload& workload : benchmarks::workloads()) {
    for (Recompute recompute : {Recompute::selective, Recompute::full})
      check_plan_on_gpu(workload, {.batch = 4, .adamw = true, .recompute = recompute, .runs_static = true});
    check_plan_on_gpu(workload, {.batch = 4, .half = kBFloat16, .runs_static = true});
  }
}

TEST_CASE("arenas on a GPU, scratch memory and all, are no larger than what eager steps take", "[plan]") {
  if (no_cuda_device()) return;
  for (const char* backend : {"cuda", "cudnn"}) {
    if (!has_backend(backend)) continue;
    const BackendGuard guard(backend);
    for (const benchmarks::Workload& workload : benchmarks::workloads()) {
      const nn::AnyModule net = workload.make();
      net.ptr()->to(cuda_device());
      const auto optimizer = optimizer_on_gpu(true, net.ptr()->parameters());
      const MemoryReport report = plan(net, workload.input(workload.batches[0]), *optimizer,
                                       PlanOptions().batch_axis(batch_axis_of_net(workload)));
      const int64_t eager = report.peak - report.parameters - report.buffers - report.optimizer_state - report.inputs;
      INFO(backend << " " << workload.name << ": eager " << eager << ", arena " << report.static_arena
                   << ", lower bound " << report.static_lower_bound);
      CHECK(report.static_arena <= eager);
      CHECK(static_cast<double>(report.static_arena) <= 1.02 * static_cast<double>(report.static_lower_bound));
      // The workspace of cuDNN at the peak depends on the device.
      if (backend == std::string("cuda") && (workload.name == "stl10_net" || workload.name == "resnet18"))
        CHECK(static_cast<double>(report.static_arena) <= 0.9 * static_cast<double>(eager));
    }
  }
}

TEST_CASE("a static step on a GPU has element-wise calls in a row", "[static_step]") {
  if (no_cuda_device()) return;
  const Device device = cuda_device();
  const Tensor w = randn({300, 400}).to(device).requires_grad_();
  optim::SGD optimizer({w}, optim::SGDOptions(0.5));
  const auto gelu_by_formula = [](const Tensor& x) {
    return x * 0.5 * ((x + x * x * x * 0.044715) * 0.7978845608 + 0).tanh().add(1);
  };
  training::StaticStep step(device, {&optimizer}, [&](const TensorList& batch) -> TensorList {
    optimizer.zero_grad();
    const Tensor loss = gelu_by_formula(batch[0] * w).sum();
    loss.backward();
    optimizer.step();
    return {loss};
  });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = randn({300, 400}).to(device), copy = w.detach().clone().requires_grad_();
    const Tensor loss = gelu_by_formula(x * copy).sum();
    loss.backward();
    CHECK(step({x})[0].equal(loss.detach()));
    CHECK(w.detach().equal(copy.detach() - 0.5 * copy.grad()));
  }
}
