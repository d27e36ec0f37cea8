// Trains a ResNet-18 on CIFAR-10, with an option for each of the usual methods against overfitting.
//
//   cifar10 --width 16 --epochs 10                              a narrow net, fast enough on a CPU
//   cifar10 --augment none --weight-decay 0 --no-batch-norm     without any of these methods
//   cifar10 --dropout 0.3 --label-smoothing 0.1 --early-stopping 5
//   cifar10 --device cuda --graph --device-data                 on a GPU: images in its memory, steps as a CUDA graph
//   cifar10 --checkpoint run.safetensors --resume               saves at Ctrl-C, and continues there next time
//   cifar10 --spawn 2 --sync-batch-norm                         two processes with the result of one process
//
// The data come from scripts/cifar10_data.sh. Writes model.safetensors and log.jsonl to --out; scripts/report.py draws
// the curves of several runs side by side.
#include <gradus/gradus.h>
#include <CLI/CLI.hpp>

#include <gradus/examples/common/image_run.h>
#include <gradus/examples/common/model_file.h>
#include <gradus/examples/common/predict.h>
#include <gradus/examples/common/resnet.h>

using namespace gradus;
using data::datasets::CIFAR10;
namespace transforms = data::transforms;

namespace {

struct Options : RunOptions {
  int width = 64;
  bool batch_norm = true, sync_batch_norm = false;
  double dropout = 0;
  double weight_decay = 5e-4;
  double label_smoothing = 0;
  std::string augment = "crop+flip";
  int early_stopping = 0;  // patience in epochs; 0: off
};

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  options.out = "runs/cifar10";
  options.batch_size = 128;
  options.lr = 0.05;
  CLI::App app("Trains a ResNet-18 on CIFAR-10 and tests it after every epoch.");
  add_run_options(app, options);
  app.add_option("--width", options.width, "channels of the first stage; 64 is the paper's")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--batch-norm,!--no-batch-norm", options.batch_norm, "normalise after each convolution");
  app.add_flag("--sync-batch-norm", options.sync_batch_norm,
               "normalise by the statistics of all ranks' images instead of each rank's");
  app.add_option("--dropout", options.dropout, "probability of dropout before the last layer")
      ->check(CLI::Range(0.0, 0.99));
  app.add_option("--weight-decay", options.weight_decay, "factor of weight decay")->check(CLI::Range(0.0, 1.0));
  app.add_option("--label-smoothing", options.label_smoothing,
                 "share of the label that is distributed over all classes")
      ->check(CLI::Range(0.0, 0.99));
  app.add_option("--augment", options.augment, "crop+flip shifts and mirrors each image at random")
      ->check(CLI::IsMember({"none", "crop+flip"}));
  app.add_option("--early-stopping", options.early_stopping,
                 "stop after this number of epochs without a better loss on a held-back tenth of the images; 0: off")
      ->check(CLI::Range(0, 1000000));
  if (!parse_run_options(app, options, argc, argv)) return std::nullopt;
  adopt_setting(app, options, "--width", "width");
  if (const auto stored = stored_setting(options, "batch_norm")) {
    GRADUS_CHECK(app.count("--batch-norm") == 0 || options.batch_norm == (*stored != "off"), ValueError, "'",
                 options.init, "' holds a net with batch_norm ", *stored,
                 ": leave out --batch-norm or --no-batch-norm");
    options.batch_norm = *stored != "off";
  }
  GRADUS_CHECK(options.batch_norm || !options.sync_batch_norm, ValueError,
               "--sync-batch-norm is a kind of batch norm: leave out --no-batch-norm");
  GRADUS_CHECK(!options.device_data || options.early_stopping == 0, ValueError,
               "--early-stopping holds images back on the host: leave out --device-data");
  return options;
}

// Means and deviations of the red, green and blue values of the training images.
const std::vector<double> kMeans = {0.4914, 0.4822, 0.4465}, kDeviations = {0.2470, 0.2435, 0.2616};
constexpr int64_t kPadding = 4;  // padding of a random crop, in pixels

Images normalised(Images images) { return images.map(transforms::Normalize<>(kMeans, kDeviations)); }

Tensor normalise(const Tensor& image) { return transforms::Normalize<>(kMeans, kDeviations)(image); }

Images augmented(const Images& images, const Options& options) {
  if (options.augment == "none") return images;
  return Images(images).map(transforms::RandomCrop(32).padding(kPadding)).map(transforms::RandomHorizontalFlip());
}

/// The same augmentation and normalisation on the device.
data::DeviceImages on_device(const CIFAR10& images, const Options& options) {
  data::DeviceImages there(images, options.device);
  if (options.augment != "none") there.random_crop(kPadding).random_horizontal_flip();
  return there.normalize(kMeans, kDeviations);
}

ResNet18 make_model(const Options& options) {
  return ResNet18(ResNet18Options().width(options.width).batch_norm(options.batch_norm).dropout(options.dropout));
}

int run(const Options& options) {
  if (!options.predict.empty())
    return predict(options, nn::AnyModule(make_model(options)), CIFAR10::class_names(),
                   {[](const Tensor& photograph) { return centre_square(photograph, 32); }, normalise});
  const std::string folder =
      data_folder(data::datasets::find_cifar10, options, "CIFAR-10", "or fetch it with scripts/cifar10_data.sh");
  const CIFAR10 photographs(folder, CIFAR10::kTrain);
  Images train_set = first(photographs, options.images);
  const Images test_set = normalised(first(CIFAR10(folder, CIFAR10::kTest), options.test_images));
  std::optional<Images> validation_set;
  if (options.early_stopping > 0) {
    const auto parts = data::datasets::random_split(train_set, {0.9, 0.1});
    train_set = parts[0];
    validation_set = normalised(parts[1]);
  }

  const ResNet18 model = make_model(options);
  if (options.sync_batch_norm && options.ranks.size > 1) nn::convert_sync_batchnorm(*model, options.ranks.gradients);
  ImageRun run(options, normalised(augmented(train_set, options)), test_set, CIFAR10::class_names(),
               nn::AnyModule(model));
  if (options.device_data) run.train_on(on_device(photographs, options));
  if (validation_set) run.stop_early(*validation_set, options.early_stopping);
  run.optimizer = std::make_unique<optim::SGD>(
      model->parameters(),
      optim::SGDOptions(options.lr).momentum(0.9).nesterov(true).weight_decay(options.weight_decay));
  run.schedule = std::make_unique<optim::CosineAnnealingLR>(*run.optimizer, run.steps());
  run.loss = [&](const Tensor& logits, const Tensor& labels) {
    return cross_entropy(logits, labels, {}, Reduction::mean, -100, options.label_smoothing);
  };
  run.normalisation("0.4914, 0.4822, 0.4465", "0.2470, 0.2435, 0.2616");
  run.setting("width", std::to_string(options.width));
  run.setting("batch_norm", options.sync_batch_norm ? "sync" : options.batch_norm ? "on" : "off");
  run.setting("dropout", std::to_string(options.dropout));
  run.setting("weight_decay", std::to_string(options.weight_decay));
  run.setting("label_smoothing", std::to_string(options.label_smoothing));
  run.setting("augment", options.augment);
  run.setting("early_stopping", std::to_string(options.early_stopping));
  return run();
}

}  // namespace

int main(int argc, char** argv) {
  return run_example("cifar10", [&] {
    auto options = parse_options(argc, argv);
    return options ? on_ranks(*options, [&] { return run(*options); }) : 0;
  });
}
