// LibTorch's torch::save and torch::load, as programs call them: of tensors, modules and optimizers, to files, to
// another device, through streams.
#include <gradus/torch.h>

#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

using gradus::test::contains;

namespace {

torch::nn::Sequential small_net(uint64_t seed) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::ReLU(), torch::nn::Linear(4, 2));
}

}  // namespace

TEST_CASE("torch::load with a device: tensors, modules and optimizers lie there", "[torch]") {
  const gradus::test::TemporaryDirectory directory;
  const std::string path = directory.file("saved");
  const torch::Device device = torch::kCPU;

  torch::save(torch::arange(6), path);
  torch::Tensor x;
  torch::load(x, path, device);
  CHECK(torch::equal(x, torch::arange(6)));
  CHECK(x.device() == torch::kCPU);

  torch::save(std::vector<torch::Tensor>{torch::ones({2}), torch::zeros({3})}, path);
  std::vector<torch::Tensor> tensors;
  torch::load(tensors, path, torch::kCPU);
  REQUIRE(tensors.size() == 2);
  CHECK(torch::equal(tensors[1], torch::zeros({3})));

  auto net = small_net(1), other = small_net(2);
  torch::save(net, path);
  const torch::Tensor input = torch::ones({1, 3});
  CHECK_FALSE(torch::allclose(net->forward(input), other->forward(input)));
  torch::load(other, path, device);
  CHECK(torch::equal(net->forward(input), other->forward(input)));

  torch::optim::Adam adam(net->parameters(), 1e-2), again(other->parameters(), 1e-2);
  net->forward(input).sum().backward();
  adam.step();
  torch::save(adam, path);
  torch::load(again, path, device);
  CHECK(again.state_dict().size() == adam.state_dict().size());
}

TEST_CASE("torch::save and torch::load through streams", "[torch]") {
  std::stringstream stream;
  torch::save(torch::arange(6).reshape({2, 3}), stream);
  torch::Tensor x;
  torch::load(x, stream);
  CHECK(torch::equal(x, torch::arange(6).reshape({2, 3})));

  auto net = small_net(1), other = small_net(2);
  std::stringstream weights;
  torch::save(net, weights);
  torch::load(other, weights, torch::Device(torch::kCPU));
  const torch::Tensor input = torch::ones({1, 3});
  CHECK(torch::equal(net->forward(input), other->forward(input)));

  std::stringstream broken("no file at all");
  CHECK_THROWS_WITH(torch::load(x, broken), contains("the stream"));
  std::stringstream of_a_net;
  torch::save(net, of_a_net);
  CHECK_THROWS_WITH(torch::load(x, of_a_net), contains("holds no tensor by the name 'tensor'"));
}

TEST_CASE("torch::allclose and torch::equal; cat without its namespace", "[torch]") {
  const torch::Tensor a = torch::tensor({1.0, 2.0}), b = torch::tensor({1.0, 2.001});
  CHECK_FALSE(torch::allclose(a, b));
  CHECK(torch::allclose(a, b, /*rtol=*/0, /*atol=*/0.01));
  CHECK_FALSE(torch::equal(a, b));
  using namespace torch;
  const std::vector<torch::Tensor> parts = {a, b};
  CHECK(torch::equal(cat(parts, 0), torch::tensor({1.0, 2.0, 1.0, 2.001})));
}
