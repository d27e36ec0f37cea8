// Transfer learning: a ResNet-18 that was trained with PyTorch gets a new last layer, which learns other classes from
// few images.
//
//   transfer --weights resnet18.safetensors --folder photos    photos/cat/*.jpg, photos/dog/*.jpg, …
//   transfer --weights resnet18.safetensors                    5000 images of CIFAR-10
//
// The other layers are frozen, so their output for an image never changes. The program computes these features once,
// and then trains the last layer on them, which takes seconds. It writes the whole net to --out under torchvision's
// names, and prints the accuracy on test images.
#include <gradus/gradus.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <gradus/core/io/safetensors.h>
#include <gradus/examples/common/image_run.h>
#include <gradus/examples/common/model_file.h>
#include <gradus/examples/common/resnet.h>

using namespace gradus;
namespace transforms = data::transforms;

namespace {

constexpr const char* kHowToExport =
    "name a file of weights, --weights FILE. Python with PyTorch, torchvision and safetensors writes one:\n"
    "  import torchvision, safetensors.torch\n"
    "  net = torchvision.models.resnet18(weights=\"DEFAULT\")\n"
    "  safetensors.torch.save_file(net.state_dict(), \"resnet18.safetensors\")";

struct Options : RunOptions {
  std::string weights, folder;
  int64_t size = 0;
  double weight_decay = 1e-2;
};

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  options.epochs = 50;
  options.batch_size = 64;
  options.images = 5000;
  options.test_images = 1000;
  options.out = "runs/transfer";
  CLI::App app("Replaces the last layer of a ResNet-18 from PyTorch, and trains the new layer.");
  app.option_defaults()->always_capture_default();
  const CLI::Range counts(1, 1000000);
  app.add_option("--weights", options.weights, "safetensors file of a ResNet-18, with torchvision's names");
  app.add_option("--folder", options.folder,
                 "folder with a folder of images for each class; a fifth of the images is used for testing");
  app.add_option("--data", options.data, "folder of CIFAR-10, which is used without --folder");
  app.add_option("--size", options.size,
                 "height and width to which images are resized; 0: 112, or 32 if the first convolution is 3 x 3")
      ->check(CLI::Range(0, 1024));
  app.add_option("--images", options.images, "number of training images of CIFAR-10 to use")->check(counts);
  app.add_option("--test-images", options.test_images, "number of test images of CIFAR-10 to use")->check(counts);
  app.add_option("--epochs", options.epochs, "number of epochs")->check(counts);
  app.add_option("--batch-size", options.batch_size, "number of images of a step")->check(counts);
  app.add_option("--lr", options.lr, "learning rate")->check(CLI::Range(0.0, 10.0));
  app.add_option("--weight-decay", options.weight_decay, "weight decay of AdamW")->check(CLI::Range(0.0, 10.0));
  app.add_option("--workers", options.workers, "number of threads that read images")->check(CLI::Range(0, 256));
  app.add_option("--seed", options.seed,
                 "seed of the choice of test images, of the last layer and of the order of images");
  app.add_option("--out", options.out, "folder for model.safetensors");
  app.add_option("--device", options.device, "cpu or cuda");
  app.add_option("--threads", options.threads, "number of threads that compute; 0 means all cores");
  if (!parse_run_options(app, options, argc, argv)) return std::nullopt;
  GRADUS_CHECK(!options.weights.empty(), ValueError, kHowToExport);
  return options;
}

/// Means and deviations of the images with which torchvision's weights were trained.
const std::vector<double> kMeans = {0.485, 0.456, 0.406}, kDeviations = {0.229, 0.224, 0.225};

/// Loads the weights of a file, without those of the last layer.
nn::StateDict load_trunk(const std::string& file) {
  nn::StateDict trunk;
  for (auto& [name, array] : io::load_safetensors(file))
    if (name.rfind("fc.", 0) != 0) trunk.insert(name, Tensor(array));
  const Tensor* const stem = trunk.find("conv1.weight");  // (width, 3, k, k)
  GRADUS_CHECK(stem && stem->dim() == 4, ValueError, "'", file, "' has no 'conv1.weight' of four dimensions: is it a ",
               "ResNet-18 with torchvision's names?");
  return trunk;
}

bool has_imagenet_stem(const nn::StateDict& trunk) { return trunk["conv1.weight"].size(2) == 7; }

/// Makes a net with these weights and a new last layer.
ResNet18 net_with_trunk(const nn::StateDict& trunk, size_t classes, const std::string& file) {
  ResNet18 net(ResNet18Options()
                   .classes(static_cast<int64_t>(classes))
                   .width(trunk["conv1.weight"].size(0))
                   .imagenet_stem(has_imagenet_stem(trunk)));
  const nn::IncompatibleKeys keys = net->load_state_dict(trunk, /*strict=*/false);
  for (const std::string& name : keys.missing_keys)
    GRADUS_CHECK(name.rfind("fc.", 0) == 0, ValueError, "'", file, "' has no '", name, "', which a ResNet-18 has");
  GRADUS_CHECK(keys.unexpected_keys.empty(), ValueError, "'", file, "' has '", keys.unexpected_keys[0],
               "', which a ResNet-18 has not");
  return net;
}

struct Task {
  Images train, test;
  std::vector<std::string> classes;
};

Task load_task(const Options& options, transforms::ImageSize size) {
  using data::datasets::CIFAR10;
  const auto prepared = [&](Images images) {
    return images.map(transforms::Resize(size)).map(transforms::Normalize<>(kMeans, kDeviations));
  };
  if (!options.folder.empty()) {
    const data::datasets::ImageFolder photographs(options.folder);
    const auto parts = data::datasets::random_split(photographs, {0.8, 0.2});
    return {prepared(parts[0]), prepared(parts[1]), photographs.classes()};
  }
  const std::string folder = data_folder(data::datasets::find_cifar10, options, "CIFAR-10",
                                         "fetch it with scripts/cifar10_data.sh, or give images with --folder");
  return {prepared(first(CIFAR10(folder, CIFAR10::kTrain), options.images)),
          prepared(first(CIFAR10(folder, CIFAR10::kTest), options.test_images)), CIFAR10::class_names()};
}

/// The features (N, 8 width) that the frozen layers compute for all images, and the classes (N) of the images.
struct Features {
  Tensor values, labels;
};

Features features_of(const ResNet18& net, const Images& images, const Options& options) {
  const NoGradGuard no_grad;
  const Device device(options.device);
  auto loader = data::make_data_loader<data::samplers::SequentialSampler>(
      Images(images).map(transforms::Stack<>()),
      data::DataLoaderOptions().batch_size(64).workers(static_cast<size_t>(options.workers)));
  TensorList values, labels;
  for (auto& batch : *loader) {  // data (64, 3, size, size), target (64)
    values.push_back(net->features(batch.data.to(device)));
    labels.push_back(batch.target.to(device));
  }
  GRADUS_CHECK(!values.empty(), ValueError, "no images are left to train or to test with: give more");
  return {cat(values), cat(labels)};
}

/// Returns how many images the last layer classifies correctly.
int64_t right_of(const ResNet18& net, const Features& features) {
  const NoGradGuard no_grad;
  return (net->fc(features.values).argmax(1) == features.labels).sum().item<int64_t>();
}

int run(const Options& options) {
  const nn::StateDict trunk = load_trunk(options.weights);
  const int64_t size = options.size > 0 ? options.size : has_imagenet_stem(trunk) ? 112 : 32;
  const Task task = load_task(options, {size, size});
  const ResNet18 net = net_with_trunk(trunk, task.classes.size(), options.weights);
  net->to(Device(options.device));
  for (const Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
  net->eval();  // batch norm uses the statistics from the file of weights
  for (const Tensor& parameter : net->fc->parameters()) parameter.requires_grad_(true);

  const Features train = features_of(net, task.train, options), test = features_of(net, task.test, options);
  const int64_t count = train.labels.size(0), tested = test.labels.size(0);
  std::printf("%d classes; %d images of %d x %d to train on, %d to test with\n", static_cast<int>(task.classes.size()),
              static_cast<int>(count), static_cast<int>(size), static_cast<int>(size), static_cast<int>(tested));

  optim::AdamW adam(net->fc->parameters(), optim::AdamWOptions(options.lr).weight_decay(options.weight_decay));
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const Tensor order = randperm(count, kLong).to(train.values.device());
    for (int64_t begin = 0; begin < count; begin += options.batch_size) {
      const Tensor rows = order.narrow(0, begin, std::min<int64_t>(options.batch_size, count - begin));
      adam.zero_grad();
      cross_entropy(net->fc(train.values.index_select(0, rows)), train.labels.index_select(0, rows)).backward();
      adam.step();
    }
  }

  const int64_t right = right_of(net, test);
  const double accuracy = static_cast<double>(right) / static_cast<double>(tested);
  std::printf("right: %d of %d images to train on, %d of %d to test with: %.1f %%; by chance it would be %.1f %%\n",
              static_cast<int>(right_of(net, train)), static_cast<int>(count), static_cast<int>(right),
              static_cast<int>(tested), 100 * accuracy, 100.0 / static_cast<double>(task.classes.size()));
  std::filesystem::create_directories(options.out);
  const io::Metadata notes = {{"program", "transfer"},
                              {"classes", nlohmann::json(task.classes).dump()},
                              {"mean", "0.485, 0.456, 0.406"},
                              {"deviation", "0.229, 0.224, 0.225"},
                              {"setting:size", std::to_string(size)},
                              {"test_accuracy", std::to_string(accuracy)}};
  save_model(*net, notes, options.out + "/model.safetensors");
  std::printf("wrote %s/model.safetensors\n", options.out.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_example("transfer", [&] {
    auto options = parse_options(argc, argv);
    return options ? on_ranks(*options, [&] { return run(*options); }) : 0;
  });
}
