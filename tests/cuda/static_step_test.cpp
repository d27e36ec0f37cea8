// Static steps on a GPU give the same bits as eager steps on both backends, and lockstep works across devices.
#include <gradus/benchmarks/nets.h>
#include <gradus/gradus.h>
#include <gradus/graph/executor.h>
#include <gradus/graph/recorder.h>
#include <gradus/inspect/lockstep.h>
#include <gradus/tests/changed_results.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::test;
using training::StaticStep;
using training::StaticStepOptions;

namespace {

struct StaticSetup {
  std::optional<DType> half = std::nullopt;
  bool scaled = false, clipped = false;
};

/// Trains on batches of two, and on some batches of three in between. Returns the losses, then parameters, buffers, the
/// scale if it is used, and random numbers.
TensorList train_on_gpu(const benchmarks::Workload& workload, const StaticSetup& setup, bool recorded) {
  manual_seed(11);
  const Device device = cuda_device();
  const nn::AnyModule net = workload.make();
  net.ptr()->to(device);
  const TensorList parameters = net.ptr()->parameters();
  optim::AdamW optimizer(parameters, optim::AdamWOptions(1e-3));
  amp::GradScaler scaler(amp::GradScalerOptions().growth_interval(3).enabled(setup.scaled));
  StaticStep step(
      device, {&optimizer},
      [&](const TensorList& batch) -> TensorList {
        optimizer.zero_grad();
        Tensor loss;
        {
          const amp::Autocast autocast(kCUDA, setup.half, setup.half.has_value());
          loss = cross_entropy(net.forward(batch[0]), batch[1]);
        }
        scaler.scale(loss).backward();
        if (setup.clipped) {
          scaler.unscale_(optimizer);
          nn::utils::clip_grad_norm_on_device_(parameters, 0.5);
        }
        scaler.step(optimizer);
        scaler.update();
        return {loss};
      },
      StaticStepOptions().enabled(recorded));
  TensorList results;
  for (int i = 0; i < 8; ++i) {
    const int64_t size = i == 3 || i == 5 ? 3 : 2;
    const Tensor x = randn(workload.input(size)), target = randint(0, 10, {size}, kLong);
    if (i == 6) optimizer.set_lr(0.005);
    results.push_back(step({x, target})[0].detach().clone());
  }
  CHECK((step.executor() != nullptr) == recorded);
  if (recorded) {
    const graph::MemoryPlan& plan = step.executor()->plan();
    CHECK(static_cast<double>(plan.bytes) <= 1.02 * static_cast<double>(plan.lower_bound));
  }
  for (const Tensor& tensor : parameters) results.push_back(tensor.detach());
  for (const Tensor& tensor : net.ptr()->buffers()) results.push_back(tensor);
  if (setup.scaled) results.push_back(full({}, scaler.get_scale(), kDouble));
  results.push_back(rand({2}));  // the generator is in the same state as after eager steps
  return results;
}

void check_static_bits(const benchmarks::Workload& workload, const StaticSetup& setup = {}) {
  const TensorList eager = train_on_gpu(workload, setup, false), recorded = train_on_gpu(workload, setup, true);
  REQUIRE(recorded.size() == eager.size());
  for (size_t i = 0; i < eager.size(); ++i) {
    INFO(workload.name << ", result " << i);
    CHECK(recorded[i].equal(eager[i]));
  }
}

benchmarks::Workload workload_named(std::string_view name) {
  for (const benchmarks::Workload& workload : benchmarks::workloads())
    if (workload.name == name) return workload;
  throw ValueError("no such net");
}

}  // namespace

TEST_CASE("static steps of all nets have the bits of eager ones on a GPU", "[static_step]") {
  if (no_cuda_device()) return;
  for (const char* backend : {"cuda", "cudnn"}) {
    if (!has_backend(backend)) continue;
    const BackendGuard guard(backend);
    for (const benchmarks::Workload& workload : benchmarks::workloads()) {
      INFO(backend);
      check_static_bits(workload);
    }
  }
}

TEST_CASE("static steps in mixed precision have the bits of eager ones on a GPU", "[static_step]") {
  if (no_cuda_device()) return;
  check_static_bits(workload_named("stl10_net"), {.half = kBFloat16});
  check_static_bits(workload_named("lenet"), {.half = kHalf, .scaled = true, .clipped = true});
}

TEST_CASE("static steps on a GPU whose kernels take over ReLUs agree with eager ones up to rounding", "[static_step]") {
  if (no_cuda_device()) return;
  const Device device = cuda_device();
  const CudnnSwitches as_they_were;
  cudnn::set_allow_tf32(false);
  for (const char* name : {"cuda", "cudnn"}) {
    if (!has_backend(name)) continue;
    INFO(name);
    const BackendGuard guard(name);
    const auto train = [&](bool recorded) {
      manual_seed(6);
      nn::Sequential net(nn::Conv2d(3, 32, 3), nn::ReLU(), nn::Conv2d(32, 32, 3), nn::BatchNorm2d(32), nn::ReLU(),
                         nn::Flatten(), nn::Linear(32 * 16, 10));
      net->to(device);
      optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
      StaticStep step(
          device, {&optimizer},
          [&](const TensorList& batch) -> TensorList {
            optimizer.zero_grad();
            const Tensor loss = cross_entropy(net->forward(batch[0]), batch[1]);
            loss.backward();
            optimizer.step();
            return {loss};
          },
          StaticStepOptions().enabled(recorded).fuse_relu(true));
      TensorList results;
      for (int i = 0; i < 5; ++i)
        results.push_back(step({randn({5, 3, 8, 8}), randint(0, 10, {5}, kLong)})[0].cpu().clone());
      for (const Tensor& parameter : net->parameters()) results.push_back(parameter.detach().cpu());
      if (recorded)
        for (const auto& call : step.executor()->graph().calls()) CHECK(std::string_view(call->name) != "unary");
      return results;
    };
    const TensorList eager = train(false), fused = train(true);
    for (size_t i = 0; i < eager.size(); ++i) CHECK(fused[i].allclose(eager[i], 1e-3, 1e-4));
  }
}

TEST_CASE("a recorded step on a GPU keeps values from the host, and errors name the operator", "[static_step]") {
  if (no_cuda_device()) return;
  const Device device = cuda_device();
  const Tensor w = ones({4}).to(device).requires_grad_(), before = zeros({4}).to(device);
  optim::SGD optimizer({w}, optim::SGDOptions(0.5));
  const auto step_of = [&](auto loss) {
    return std::make_unique<StaticStep>(device, std::vector<optim::Optimizer*>{&optimizer},
                                        [&optimizer, loss](const TensorList& batch) -> TensorList {
                                          optimizer.zero_grad();
                                          const Tensor value = loss(batch[0]), constant = tensor({7.0f}).to(kCUDA);
                                          value.backward();
                                          optimizer.step();
                                          return {value, constant};
                                        });
  };
  const auto with_numbers = step_of([&](const Tensor& x) {
    const Tensor numbers = tensor({1.0f, 2.0f, 3.0f, 4.0f});
    CHECK(numbers[1].item<float>() == 2);  // numbers on the host can be read during the recording
    return (x * (numbers + 1).to(device) * w).sum();
  });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = randn({4}), factors = x * tensor({2.0f, 3.0f, 4.0f, 5.0f});
    const Tensor expected = (factors.to(device) * w.detach()).sum(), w_after = w.detach() - 0.5 * factors.to(device);
    const TensorList results = (*with_numbers)({x});
    CHECK(results[0].equal(expected));
    CHECK(results[1].item<float>() == 7);
    CHECK(w.detach().equal(w_after));
  }
  const auto message_of = [&](auto loss) -> std::string {
    const auto step = step_of(loss);
    (*step)({ones({4})});
    try {
      (*step)({ones({4})});
    } catch (const Error& error) {
      CHECK_FALSE(w.grad().defined());
      CHECK_FALSE(cuda_runtime().capturing());
      return error.what();
    }
    return "";
  };
  CHECK_THAT(message_of([&](const Tensor& x) {
               const Tensor loss = (x * w).sum();
               return loss.item<float>() > 0 ? loss : -loss;
             }),
             contains("[item]") && contains("static_step_test.cpp") && contains("reading a number"));
  CHECK_THAT(message_of([&](const Tensor& x) { return (x * w).cpu().sum().to(device); }), contains("between devices"));
  CHECK_THAT(message_of([&](const Tensor& x) {
               before.copy_(ones({4}));
               return (x * w + before).sum();
             }),
             contains("values from the host"));
  Tensor kept;
  CHECK_THAT(message_of([&](const Tensor& x) {
               kept = tensor({1.0f, 2.0f}).to(device);
               return (x * w).sum();
             }),
             contains("kept beyond the step"));
}

TEST_CASE("the recording on a GPU knows the peak of the eager step to the byte", "[static_step]") {
  if (no_cuda_device()) return;
  const BackendGuard guard("cuda");
  const Device device = cuda_device();
  const Tensor w = randn({301, 10}).to(device).requires_grad_(), x = randn({301, 10}).to(device);
  const auto step = [&] { (w * x + 1).tanh().backward(x); };  // its kernels use no scratch memory
  graph::Recorder recorder(device);
  step();
  const graph::Graph graph = recorder.finish();
  CHECK(graph.device() == device);
  w.mutable_grad() = Tensor();  // the recording did not compute it
  const int64_t held = cuda::memory_allocated();
  cuda::reset_peak_memory_stats();
  step();
  CHECK(graph.eager_peak() == cuda::max_memory_allocated() - held);
}

TEST_CASE("lockstep crosses devices and finds the wrong operation on a GPU", "[lockstep]") {
  if (no_cuda_device()) return;
  const CudnnSwitches as_they_were;
  cudnn::set_allow_tf32(false);
  ChangedResults wrong(backend("cuda"), [](std::string_view operation, const MutableView& y) {
    if (operation == "unary") backend("cuda").fill(y, Scalar(0.5));
  });
  for (const char* a : {"openmp", "cuda"}) {
    const BackendGuard guard(a);
    const Device device = settled(backend(a).device_type());
    for (const char* name : {"pure_linear", "lenet", "lstm", "attention", "stl10_net"}) {
      INFO(a << " " << name);
      const benchmarks::Workload workload = workload_named(name);
      manual_seed(4);
      const nn::AnyModule net = workload.make();
      net.ptr()->to(device);
      const Tensor x = randn(workload.input(2)).to(device), target = randint(0, 10, {2}, kLong).to(device);
      graph::Recorder recorder(device);
      cross_entropy(net.forward(x), target).backward();
      graph::Executor executor(recorder.finish());
      net.ptr()->zero_grad();
      for (const char* b : {"cuda", "cudnn", "openmp"}) {
        if (!has_backend(b)) continue;
        INFO(b);
        const auto agreed = graph::lockstep(executor, backend(a), backend(b));
        CHECK((agreed ? agreed->str() : "") == "");
      }
      if (workload.name != "lenet" && workload.name != "pure_linear") continue;  // only these have a separate ReLU
      const auto found = graph::lockstep(executor, backend(a), wrong);
      REQUIRE(found);
      CHECK_THAT(found->str(), contains("unary (relu of ") && contains("allowed: 1e-05"));
      CHECK(found->inputs.size() == 2);
    }
  }
}
