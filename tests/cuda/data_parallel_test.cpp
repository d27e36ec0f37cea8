// data_parallel on GPUs: the same results and gradients as on one GPU, and as with threads on the CPU.
#include <gradus/distributed/parallel/data_parallel.h>
#include <gradus/gradus.h>
#include <gradus/tests/cuda/support.h>

using namespace gradus;
using namespace gradus::nn::parallel;
using namespace gradus::test;

namespace {

using Devices = std::vector<Device>;

/// The first GPU twice and, on a machine with two GPUs, the first two.
std::vector<Devices> pairs_of_gpus() {
  std::vector<Devices> pairs = {{"cuda:0", "cuda:0"}};
  if (cuda::device_count() > 1) pairs.push_back({"cuda:0", "cuda:1"});
  return pairs;
}

template <class Check>
void on_every_backend(Check check) {
  for (const std::string& name : backend_names()) {
    if (backend(name).device_type() != DeviceType::cuda) continue;
    CAPTURE(name);
    const BackendGuard guard(name);
    check();
  }
}

nn::Sequential make_net() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)), nn::ReLU(), nn::GroupNorm(2, 4),
                        nn::MaxPool2d(2), nn::Flatten(), nn::Linear(16, 6));
}

/// The result, and the gradients of the input and of all parameters.
template <class Forward>
TensorList run(const nn::Sequential& net, const Tensor& x, const Forward& forward) {
  net->zero_grad();
  const Tensor input = x.detach().requires_grad_(), y = forward(input);
  y.square().sum().backward();
  TensorList results = {y.detach(), input.grad()};
  for (const Tensor& parameter : net->parameters()) results.push_back(parameter.grad().clone());
  return results;
}

void check_against_one_gpu(const Devices& devices) {
  CAPTURE(devices.back().str());
  on_every_backend([&] {
    manual_seed(1);
    nn::Sequential net = make_net();
    net->to(kDouble);
    const Tensor x = randn({7, 2, 4, 4}, kDouble).to(devices[0]);
    const Device last = devices.back();
    // data_parallel() moves the net to the first device.
    const TensorList actual =
        run(net, x, [&](const Tensor& input) { return data_parallel(net, input, devices, last); });
    CHECK(actual[0].device() == last);
    const TensorList expected = run(net, x, [&](const Tensor& input) { return net(input); });
    REQUIRE(actual.size() == expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      CAPTURE(i);
      if (i > 0) CHECK(actual[i].device() == devices[0]);
      CHECK(difference(actual[i].cpu(), expected[i].cpu(), 1e-12) == "");
    }
    // The bits are the same on other current streams.
    const StreamGuard first(cuda_runtime().new_stream(devices[0].index())),
        second(cuda_runtime().new_stream(last.index()));
    cuda::synchronize(devices[0].index()), cuda::synchronize(last.index());
    const TensorList again = run(net, x, [&](const Tensor& input) { return data_parallel(net, input, devices, last); });
    for (size_t i = 0; i < actual.size(); ++i) CHECK(again[i].cpu().equal(actual[i].cpu()));
    cuda::synchronize(devices[0].index()), cuda::synchronize(last.index());
  });
}

}  // namespace

TEST_CASE("data_parallel on one GPU named twice") {
  if (no_cuda_device()) return;
  check_against_one_gpu({"cuda:0", "cuda:0"});
}

TEST_CASE("data_parallel on two GPUs") {
  if (no_cuda_device()) return;
  if (cuda::device_count() < 2 && skip("2 CUDA devices")) return;
  check_against_one_gpu({"cuda:0", "cuda:1"});
  CHECK(cuda::current_device() == 0);

  // A net on another device moves to the first device of the list.
  nn::Linear linear(3, 2);
  linear->to("cuda:0");
  const Tensor x = randn({4, 3}), expected = linear(x.to("cuda:0")).cpu();
  CHECK(difference(data_parallel(linear, x, Devices{"cuda:1", "cuda:0"}).cpu(), expected, 1e-5) == "");
  CHECK(linear->weight.device() == Device("cuda:1"));
  // Without a list all GPUs are used; a list may name only one.
  CHECK(difference(data_parallel(linear, randn({0, 3}).to("cuda:1")), zeros({0, 2}), 0) == "");
  CHECK(data_parallel(linear, x, Devices{"cuda:1"}).device() == Device("cuda:1"));
}

TEST_CASE("replicas on GPUs draw as those on the cpu do, share buffers and follow autocast") {
  if (no_cuda_device()) return;
  for (const Devices& devices : pairs_of_gpus()) {
    CAPTURE(devices[1].str());
    manual_seed(2);
    nn::Dropout dropout(0.5);
    const Tensor x = ones({6, 50});
    const Tensor drawn = data_parallel(dropout, x, Devices{kCPU, kCPU});
    manual_seed(2);
    CHECK(data_parallel(dropout, x, devices).cpu().equal(drawn));

    nn::BatchNorm1d norm(50), first_half(50);
    const Tensor noise = randn({8, 50});
    data_parallel(norm, noise, devices);
    first_half(noise.slice(0, 0, 4));
    CHECK(norm->running_mean.device() == devices[0]);
    CHECK(difference(norm->running_mean.cpu(), first_half->running_mean, 1e-5) == "");
    CHECK(norm->num_batches_tracked.item<int64_t>() == 1);

    nn::Linear linear(50, 3);
    const amp::Autocast autocast(kCUDA);
    const Tensor y = data_parallel(linear, noise, devices);
    CHECK(y.dtype() == kHalf);
    y.sum().backward();
    CHECK(difference(linear->bias.grad().cpu(), full({3}, 8.0), 0) == "");
    CHECK(linear->weight.grad().dtype() == kFloat);
  }
}

TEST_CASE("an exception of a replica names its GPU") {
  if (no_cuda_device()) return;
  for (const Devices& devices : pairs_of_gpus()) {
    const std::vector<nn::Linear> modules = {nn::Linear(3, 2), nn::Linear(4, 2)};
    for (size_t i = 0; i < 2; ++i) modules[i]->to(devices[i]);
    CHECK_THROWS_WITH(parallel_apply(modules, {ones({2, 3}), ones({2, 3})}, devices),
                      contains("replica 1 on " + devices[1].str() + ": "));
  }
}
