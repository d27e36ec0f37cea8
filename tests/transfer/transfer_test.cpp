// Models made by PyTorch (make_models.py) load here and compute what they computed there; transfer_test.py goes the
// other way with the models that the last case writes.
#include <cstdlib>

#include <gradus/core/io/safetensors.h>
#include <gradus/core/registry.h>
#include <gradus/examples/common/resnet.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

using namespace gradus;

namespace {

constexpr int64_t kWidth = 6;  // of the ResNet in make_models.py

struct LeNetImpl : nn::Module {
  nn::Conv2d conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 6, 5).padding(2)));
  nn::Conv2d conv2 = register_module("conv2", nn::Conv2d(6, 16, 5));
  nn::Linear fc1 = register_module("fc1", nn::Linear(400, 120));
  nn::Linear fc2 = register_module("fc2", nn::Linear(120, 84));
  nn::Linear fc3 = register_module("fc3", nn::Linear(84, 10));

  Tensor forward(Tensor x) {
    x = max_pool2d(relu(conv1(x)), 2);
    x = max_pool2d(relu(conv2(x)), 2);
    return fc3(relu(fc2(relu(fc1(x.flatten(1))))));
  }
};
GRADUS_MODULE(LeNet);

std::string file(const std::string& name) { return test::source_path("tests/transfer/" + name + ".safetensors"); }

template <class Model>
void check_logits(Model model, const std::string& name) {
  load(model, file(name));  // strict
  auto results = io::load_safetensors(file(name + "_results"));
  const Tensor images(results.at("images"));
  for (const std::string& backend_name : backend_names()) {
    if (backend(backend_name).device_type() != DeviceType::cpu) continue;
    INFO(backend_name);
    const BackendGuard guard(backend_name);
    const NoGradGuard no_grad;
    model->eval();
    CHECK(test::error(model(images), Tensor(results.at("logits"))) <= test::tolerance_of(kFloat));
  }
  model->train();
  CHECK(test::error(model(images), Tensor(results.at("logits_in_training"))) <= test::tolerance_of(kFloat));
}

/// A model a few steps from its start, its images and its logits, in files.
template <class Model>
void write(Model model, const Shape& size, const std::string& folder, const std::string& name) {
  optim::SGD sgd(model->parameters(), 0.05);
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    cross_entropy(model(randn(size) + 0.5), randint(10, {size[0]})).backward();
    sgd.step();
  }
  save(model, folder + "/" + name + ".safetensors");
  model->eval();
  const Tensor images = randn(size), logits = model(images);
  io::save_safetensors(folder + "/" + name + "_results.safetensors",
                       {{"images", images.array()}, {"logits", logits.array()}});
}

}  // namespace

TEST_CASE("a LeNet made by PyTorch gives the same logits") { check_logits(LeNet(), "lenet"); }

TEST_CASE("a ResNet-18 made by PyTorch gives the same logits") {
  check_logits(ResNet18(ResNet18Options().width(kWidth)), "resnet18");
}

TEST_CASE("a ResNet-18 of the paper's width has its parameters") {
  // torchvision's resnet18 has 11,689,512 for 1000 classes and a first kernel of 7 x 7.
  CHECK(ResNet18()->num_parameters() == 11689512 - 64 * 3 * (49 - 9) - 990 * 513);
  CHECK(ResNet18(ResNet18Options().width(8).batch_norm(false))(zeros({2, 3, 16, 16})).sizes() == Shape{2, 10});
}

TEST_CASE("models for PyTorch", "[.]") {
  const char* folder = std::getenv("GRADUS_TRANSFER_FOLDER");
  REQUIRE(folder);
  manual_seed(3);
  write(LeNet(), {8, 1, 28, 28}, folder, "lenet");
  write(ResNet18(ResNet18Options().width(kWidth)), {8, 3, 32, 32}, folder, "resnet18");
}
