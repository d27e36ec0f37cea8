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
  CHECK_THROWS_WITH(torch::load(x, broken), contains("the archive"));
  std::stringstream of_a_net;
  torch::save(net, of_a_net);
  CHECK_THROWS_WITH(torch::load(x, of_a_net), contains("contains no tensor 'tensor'"));
}

TEST_CASE("archives: tensors and modules under names, to files, streams and functions", "[torch]") {
  const gradus::test::TemporaryDirectory directory;
  const std::string path = directory.file("archive");
  auto net = small_net(1), other = small_net(2);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  torch::serialize::OutputArchive archive, of_net, of_sgd;
  net->save(of_net);
  sgd.save(of_sgd);
  archive.write("epoch", torch::tensor(7));
  archive.write("net", of_net);
  archive.write("sgd", of_sgd);
  archive.save_to(path);

  torch::serialize::InputArchive stored, part;
  stored.load_from(path, torch::kCPU);
  CHECK(stored.keys() == std::vector<std::string>{"epoch", "net", "sgd"});
  torch::Tensor epoch;
  stored.read("epoch", epoch);
  CHECK(epoch.item<int>() == 7);
  CHECK_FALSE(stored.try_read("episode", epoch));
  CHECK_THROWS_WITH(stored.read("episode", epoch), contains("'episode'"));
  CHECK_FALSE(stored.try_read("nets", part));
  stored.read("net", part);
  other->load(part);
  const torch::Tensor input = torch::ones({1, 3});
  CHECK(torch::equal(net->forward(input), other->forward(input)));
  torch::Tensor weight = torch::zeros({4, 3}, torch::requires_grad());
  const torch::Tensor same = weight;
  part.read("0.weight", weight);
  CHECK(torch::equal(same, other->parameters()[0]));  // it stays the tensor that it was
  CHECK(same.requires_grad());
  torch::optim::SGD again(other->parameters(), 0.1);
  stored.read("sgd", part);
  again.load(part);
  CHECK(again.param_groups()[0].options().get_lr() == 0.5);

  std::string bytes;
  torch::save(input, [&](const void* data, size_t count) {
    bytes.append(static_cast<const char*>(data), count);
    return count;
  });
  torch::Tensor x, y;
  torch::load(x, bytes.data(), bytes.size());
  torch::load(
      y, [&](uint64_t at, void* data, size_t count) { return bytes.copy(static_cast<char*>(data), count, at); },
      [&] { return bytes.size(); });
  CHECK(torch::equal(x, input));
  CHECK(torch::equal(y, input));
  CHECK_THROWS_WITH(torch::save(input, [](const void*, size_t) { return size_t{3}; }), contains("3 were written"));
  CHECK_THROWS_WITH(torch::load(x, bytes.data(), size_t{5}), contains("the archive"));

  std::stringstream stream;
  torch::save(std::vector<torch::Tensor>{torch::ones({2}), torch::zeros({3})}, stream);
  std::vector<torch::Tensor> tensors;
  torch::load(tensors, stream);
  REQUIRE(tensors.size() == 2);
  CHECK(torch::equal(tensors[1], torch::zeros({3})));
}

TEST_CASE("samplers are saved in the middle of an epoch and go on there", "[torch]") {
  torch::data::samplers::RandomSampler through(10), resumed(10);
  const auto first = through.next(3);
  CHECK(through.index() == 3);
  std::stringstream stream;
  torch::save(through, stream);
  torch::load(resumed, stream);
  CHECK(resumed.index() == 3);
  CHECK(resumed.next(10) == through.next(10));
  CHECK_FALSE(resumed.next(1));
  torch::data::samplers::RandomSampler smaller(9);
  stream.clear(), stream.seekg(0);
  CHECK_THROWS_AS(torch::load(smaller, stream), torch::Error);

  torch::data::samplers::DistributedSequentialSampler part(10, 2, 1), other(10, 2, 1);
  part.set_epoch(4);
  part.next(2);
  std::stringstream of_part;
  torch::save(part, of_part);
  torch::load(other, of_part);
  CHECK(other.epoch() == 4);
  CHECK(other.next(2) == std::vector<size_t>{5, 7});

  torch::data::samplers::SequentialSampler in_order(5);
  in_order.next(4);
  std::stringstream of_order;
  torch::save(in_order, of_order);
  in_order.reset(7);
  CHECK(in_order.next(100)->size() == 7);
  torch::load(in_order, of_order);
  CHECK(in_order.index() == 4);
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
