// Trains a small net on MNIST, tests it after every epoch, and saves it.
//
//   mnist --model lenet --epochs 3                 on the CPU, with all cores
//   mnist --device cuda --graph --device-data      on a GPU: images in its memory, steps as a CUDA graph
//   mnist --synthetic                              without MNIST, on digits that the library draws
//   mnist --backend naive --model pure_linear      with the backend of plain loops, for comparison
//   mnist --model conv2_c32 --batch-size 128       two convolutions of 32 channels
//   mnist --checkpoint run.safetensors --resume    saves at Ctrl-C, and continues there next time
//   mnist --profile --tensorboard runs/mnist/tb    shows where the time goes, and writes curves
//   mnist --predict seven.jpg                      classifies a photograph of a digit
//
// Writes model.safetensors and log.jsonl (its keys: ../common/run_log.h) to --out.
#include <gradus/gradus.h>
#include <CLI/CLI.hpp>

#include <cinttypes>
#include <cstdio>

#include <gradus/examples/common/image_run.h>
#include <gradus/examples/common/model_file.h>
#include <gradus/examples/common/predict.h>
#include <gradus/examples/mnist/digit_photograph.h>

using namespace gradus;

namespace {

// ---- Nets: images (N, 1, 28, 28) in, logits (N, 10) out. Parameters have the names that they have in PyTorch. ----

/// Two linear layers, which do not know which pixels are neighbours.
struct PureLinear : nn::Module {
  nn::Linear f1 = register_module("f1", nn::Linear(784, 100));
  nn::Linear f2 = register_module("f2", nn::Linear(100, 10));

  Tensor forward(const Tensor& images) {
    Tensor x = images.flatten(1);  // (N, 784)
    x = relu(f1(x));               // (N, 100)
    return f2(x);                  // (N, 10)
  }
};

/// One convolution and two linear layers.
struct SimpleConv : nn::Module {
  nn::ConvReLU2d c1 = register_module("c1", nn::ConvReLU2d(1, 16, 5));
  nn::Linear f1 = register_module("f1", nn::Linear(16 * 12 * 12, 64));
  nn::Linear f2 = register_module("f2", nn::Linear(64, 10));

  Tensor forward(const Tensor& images) {
    Tensor x = max_pool2d(c1(images), 2);  // (N, 16, 12, 12)
    x = relu(f1(x.flatten(1)));            // (N, 64)
    return f2(x);                          // (N, 10)
  }
};

/// LeNet-5 (LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998), with ReLU
/// and max pooling, as it is taught today.
struct LeNet : nn::Cloneable<LeNet> {  // Cloneable, because --data-parallel needs copies of the net
  LeNet() { LeNet::reset(); }

  void reset() override {
    c1 = register_module("c1", nn::ConvReLU2d(nn::ConvReLU2dOptions(1, 6, 5).padding(2)));
    c2 = register_module("c2", nn::ConvReLU2d(6, 16, 5));
    f1 = register_module("f1", nn::Linear(400, 120));
    f2 = register_module("f2", nn::Linear(120, 84));
    f3 = register_module("f3", nn::Linear(84, 10));
  }

  Tensor forward(const Tensor& images) {
    Tensor x = max_pool2d(c1(images), 2);  // (N, 6, 14, 14)
    x = max_pool2d(c2(x), 2);              // (N, 16, 5, 5)
    x = relu(f1(x.flatten(1)));            // (N, 120)
    x = relu(f2(x));                       // (N, 84)
    return f3(x);                          // (N, 10)
  }

  nn::ConvReLU2d c1{nullptr}, c2{nullptr};
  nn::Linear f1{nullptr}, f2{nullptr}, f3{nullptr};
};

/// Convolutions of 3x3 with ReLU that keep the image size, and a linear layer. Its time depends mostly on the
/// convolution kernels.
struct ConvNet : nn::Module {
  /// If `fused`, convolution, bias and ReLU are one operator.
  ConvNet(int64_t depth, int64_t channels, bool fused) : fused(fused), fc(channels * 28 * 28, 10) {
    for (int64_t i = 0; i < depth; ++i)
      convolutions.push_back(register_module(
          "c" + std::to_string(i + 1), nn::Conv2d(nn::Conv2dOptions(i == 0 ? 1 : channels, channels, 3).padding(1))));
    register_module("fc", fc);
  }

  Tensor forward(const Tensor& images) {
    Tensor x = images;
    for (nn::Conv2d& c : convolutions) x = fused ? conv2d_relu(x, c->weight, c->bias, 1, 1) : relu(c(x));
    return fc(x.flatten(1));  // x (N, channels, 28, 28)
  }

  const bool fused;
  std::vector<nn::Conv2d> convolutions;
  nn::Linear fc;
};

// ---- Options of the command line, in addition to those of all image examples (../common/run_options.h) ----

struct Options : RunOptions {
  std::string model = "lenet", optimizer = "adam", schedule = "cosine", augment = "none";
  bool synthetic = false, unfused = false;
};

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  options.epochs = 3;
  options.batch_size = 64;
  options.lr = 0;
  options.out = "runs/mnist";
  CLI::App app("Trains a small net on MNIST and tests it after every epoch.");
  add_run_options(app, options);
  app.add_option("--model", options.model, "the net; conv10_c32, for example, has ten convolutions with 32 channels")
      ->check(
          CLI::IsMember({"pure_linear", "simple_conv", "lenet", "conv2_c1", "conv10_c1", "conv2_c32", "conv10_c32"}));
  app.add_flag("--unfused", options.unfused, "compute convolution and ReLU by two operators (nets conv…)");
  app.add_option("--optimizer", options.optimizer, "sgd has momentum 0.9; --lr 0 means 2e-3 for adam, 5e-2 for sgd")
      ->check(CLI::IsMember({"sgd", "adam"}));
  app.add_option("--schedule", options.schedule, "cosine lowers the learning rate to 0")
      ->check(CLI::IsMember({"none", "cosine"}));
  app.add_option("--augment", options.augment,
                 "affine rotates, shifts, scales and shears each training image at random")
      ->check(CLI::IsMember({"none", "affine"}));
  app.add_flag("--synthetic", options.synthetic,
               "train on digits that the library draws: as many as --images says, by default 30000");
  if (!parse_run_options(app, options, argc, argv)) return std::nullopt;
  adopt_setting(app, options, "--model", "model");
  GRADUS_CHECK(!options.synthetic || options.data.empty(), ValueError,
               "--synthetic draws its own digits: leave out --data");
  GRADUS_CHECK(!options.device_data || options.augment == "none", ValueError,
               "--augment affine maps images on the host: leave out --device-data");
  if (options.lr == 0) options.lr = options.optimizer == "adam" ? 2e-3 : 5e-2;
  return options;
}

// ---- Data: images (1, 28, 28) with values from 0 to 1, and their classes ----

using data::datasets::ImageDataset;
using data::datasets::MNIST;
using data::datasets::SyntheticDigits;

struct Digits {
  ImageDataset train, test;
};

Digits load_digits(const Options& options) {
  if (options.synthetic) {
    const size_t count = options.images > 0 ? static_cast<size_t>(options.images) : 30000;
    return {SyntheticDigits(count, 0, MNIST::kTrain), SyntheticDigits(count / 6 + 1, 0, MNIST::kTest)};
  }
  const std::string folder = data_folder(data::datasets::find_mnist, options, "MNIST",
                                         "fetch it with scripts/mnist.sh, or train with --synthetic");
  return {MNIST(folder, MNIST::kTrain), MNIST(folder, MNIST::kTest)};
}

/// Rotates, moves, scales and shears each image a little, differently in each epoch.
Images augmented(Images digits) {
  data::transforms::RandomAffine affine(10);
  affine.translate(0.1, 0.1).scale(0.9, 1.1).shear(5).interpolation(data::transforms::Interpolation::kBilinear);
  return digits.map(affine);
}

/// Mean and deviation of the training images. Normalised with them, values have mean 0 and deviation 1.
constexpr double kMean = 0.1307, kDeviation = 0.3081;

Images normalised(Images digits) { return digits.map(data::transforms::Normalize<>(kMean, kDeviation)); }

Tensor normalise(const Tensor& digit) { return data::transforms::Normalize<>(kMean, kDeviation)(digit); }

// ---- The run ----

const std::vector<std::string> kNames = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

nn::AnyModule make_model(const std::string& name, bool fused) {
  int64_t depth, channels;
  if (std::sscanf(name.c_str(), "conv%" SCNd64 "_c%" SCNd64, &depth, &channels) == 2)
    return nn::AnyModule(std::make_shared<ConvNet>(depth, channels, fused));
  if (name == "pure_linear") return nn::AnyModule(std::make_shared<PureLinear>());
  if (name == "simple_conv") return nn::AnyModule(std::make_shared<SimpleConv>());
  return nn::AnyModule(std::make_shared<LeNet>());
}

int run(const Options& options) {
  const nn::AnyModule model = make_model(options.model, !options.unfused);
  if (!options.predict.empty()) return predict(options, model, kNames, {digit_of, normalise});
  const Digits digits = load_digits(options);
  const Images train_set = first(digits.train, options.images);
  ImageRun run(options, normalised(options.augment == "affine" ? augmented(train_set) : train_set),
               normalised(first(digits.test, options.test_images)), kNames, model);
  run.normalisation(std::to_string(kMean), std::to_string(kDeviation));
  if (options.device_data) {
    data::DeviceImages images(digits.train, options.device);
    run.train_on(images.normalize({kMean}, {kDeviation}));
  }

  const std::vector<Tensor> parameters = model.ptr()->parameters();
  if (options.optimizer == "adam")
    run.optimizer = std::make_unique<optim::Adam>(parameters, optim::AdamOptions(options.lr));
  else run.optimizer = std::make_unique<optim::SGD>(parameters, optim::SGDOptions(options.lr).momentum(0.9));
  if (options.schedule == "cosine")
    run.schedule = std::make_unique<optim::CosineAnnealingLR>(*run.optimizer, run.steps());

  run.setting("model", options.model);
  run.setting("optimizer", options.optimizer);
  run.setting("schedule", options.schedule);
  run.setting("augment", options.augment);
  run.setting("fused", options.unfused ? "no" : "yes");
  run.setting("data", options.synthetic ? "synthetic" : "mnist");
  return run();
}

}  // namespace

int main(int argc, char** argv) {
  return run_example("mnist", [&] {
    auto options = parse_options(argc, argv);
    return options ? on_ranks(*options, [&] { return run(*options); }) : 0;
  });
}
