// Trains a convolutional net on STL-10: colour photographs of 96 x 96 pixels in ten classes, 5,000 of them with labels.
//
//   stl10 --epochs 10                                      Adam at 1e-3, batches of 32
//   stl10 --images 1000 --epochs 2                         a quick try
//   stl10 --model resnet --dropout 0 --optimizer sgd --lr 0.1 --weight-decay 5e-4 --schedule one-cycle --batch-size 64
//         --epochs 100 --augment crop+flip+cutout --label-smoothing 0.1 --device cuda --device-data --graph --amp bf16
//                                                          a ResNet-18 with all methods that improve it
//   stl10 --checkpoint run.safetensors --resume            saves at Ctrl-C, and continues there next time
//
// The data come from scripts/stl10_data.sh. Writes model.safetensors and log.jsonl to --out.
#include <gradus/gradus.h>
#include <CLI/CLI.hpp>

#include <gradus/examples/common/image_run.h>
#include <gradus/examples/common/model_file.h>
#include <gradus/examples/common/predict.h>
#include <gradus/examples/common/resnet.h>

using namespace gradus;
using data::datasets::STL10;
namespace transforms = data::transforms;

namespace {

struct Options : RunOptions {
  std::string model = "plain", optimizer = "adam", schedule = "none", augment = "none";
  int width = 64;
  double dropout = 0.5;
  double weight_decay = 0;
  double label_smoothing = 0;
};

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  options.out = "runs/stl10";
  CLI::App app("Trains a convolutional net on STL-10 and tests it after every epoch.");
  add_run_options(app, options);
  app.add_option("--model", options.model, "plain: three convolutions, two linear layers; resnet: a ResNet-18")
      ->check(CLI::IsMember({"plain", "resnet"}));
  app.add_option("--width", options.width, "channels of the ResNet's first stage; 64 is the paper's")
      ->check(CLI::Range(1, 1024));
  app.add_option("--dropout", options.dropout, "probability of dropout before the last layer")
      ->check(CLI::Range(0.0, 0.99));
  app.add_option("--optimizer", options.optimizer, "sgd uses Nesterov's momentum of 0.9")
      ->check(CLI::IsMember({"sgd", "adam"}));
  app.add_option("--schedule", options.schedule,
                 "cosine lowers the learning rate from --lr to 0; one-cycle first raises it to --lr")
      ->check(CLI::IsMember({"none", "cosine", "one-cycle"}));
  app.add_option("--weight-decay", options.weight_decay, "factor of weight decay")->check(CLI::Range(0.0, 1.0));
  app.add_option("--label-smoothing", options.label_smoothing,
                 "share of the label that is distributed over all classes")
      ->check(CLI::Range(0.0, 0.99));
  app.add_option("--augment", options.augment,
                 "crop+flip shifts and mirrors each image at random; cutout covers a random square of the image")
      ->check(CLI::IsMember({"none", "crop+flip", "crop+flip+cutout"}));
  if (!parse_run_options(app, options, argc, argv)) return std::nullopt;
  adopt_setting(app, options, "--model", "model");
  adopt_setting(app, options, "--width", "width");
  return options;
}

// ---- Nets: images (N, 3, 96, 96) in, logits (N, 10) out ----

nn::Sequential plain_net(double dropout) {
  nn::Sequential net;
  for (const auto& [in, out] : {std::pair(3, 32), {32, 64}, {64, 128}}) {
    net->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    net->push_back(nn::ReLU());
    net->push_back(nn::MaxPool2d(2));  // (N, out, …), half as high and wide
  }
  net->push_back(nn::Flatten());  // (N, 128 · 12 · 12)
  net->push_back(nn::Linear(128 * 12 * 12, 512));
  net->push_back(nn::ReLU());
  net->push_back(nn::Dropout(dropout));
  net->push_back(nn::Linear(512, 10));
  return net;
}

nn::AnyModule make_model(const Options& options) {
  if (options.model == "plain") return nn::AnyModule(plain_net(options.dropout));
  return nn::AnyModule(ResNet18(ResNet18Options().width(options.width).stem_stride(2).dropout(options.dropout)));
}

// ---- Data ----

constexpr int64_t kPadding = 12, kHole = 32;  // padding of a random crop and side of a cutout, in pixels

/// Normalises values to between -1 and 1.
Images normalised(Images images) { return images.map(transforms::Normalize<>(0.5, 0.5)); }

Tensor normalise(const Tensor& image) { return transforms::Normalize<>(0.5, 0.5)(image); }

/// Augments and normalises images.
Images prepared(Images images, const std::string& augment) {
  if (augment == "none") return normalised(std::move(images));
  images = images.map(transforms::RandomCrop(96).padding(kPadding)).map(transforms::RandomHorizontalFlip());
  images = normalised(std::move(images));
  return augment == "crop+flip" ? images : Images(images.map(transforms::Cutout(kHole)));
}

/// The same augmentation and normalisation on the device.
data::DeviceImages on_device(const STL10& images, const Options& options) {
  data::DeviceImages there(images, options.device);
  if (options.augment != "none") there.random_crop(kPadding).random_horizontal_flip();
  if (options.augment == "crop+flip+cutout") there.cutout(kHole);
  return there.normalize({0.5}, {0.5});
}

// ---- The run ----

std::unique_ptr<optim::Optimizer> make_optimizer(const std::vector<Tensor>& parameters, const Options& options) {
  if (options.optimizer == "adam")
    return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(options.lr).weight_decay(options.weight_decay));
  return std::make_unique<optim::SGD>(
      parameters, optim::SGDOptions(options.lr).momentum(0.9).nesterov(true).weight_decay(options.weight_decay));
}

std::unique_ptr<optim::LRScheduler> make_schedule(optim::Optimizer& optimizer, int64_t steps, const Options& options) {
  if (options.schedule == "cosine") return std::make_unique<optim::CosineAnnealingLR>(optimizer, steps);
  if (options.schedule == "one-cycle")
    return std::make_unique<optim::OneCycleLR>(
        optimizer, optim::OneCycleLROptions(options.lr, steps).pct_start(0.2).cycle_momentum(false));
  return nullptr;
}

int run(const Options& options) {
  const nn::AnyModule model = make_model(options);
  if (!options.predict.empty())
    return predict(options, model, STL10::class_names(),
                   {[](const Tensor& photograph) { return centre_square(photograph, 96); }, normalise});
  const std::string folder =
      data_folder(data::datasets::find_stl10, options, "STL-10", "or fetch it with scripts/stl10_data.sh");
  const STL10 photographs(folder, STL10::kTrain);
  ImageRun run(options, prepared(first(photographs, options.images), options.augment),
               normalised(first(STL10(folder, STL10::kTest), options.test_images)), STL10::class_names(), model);
  if (options.device_data) run.train_on(on_device(photographs, options));
  run.optimizer = make_optimizer(model.ptr()->parameters(), options);
  run.schedule = make_schedule(*run.optimizer, run.steps(), options);
  run.loss = [&](const Tensor& logits, const Tensor& labels) {
    return cross_entropy(logits, labels, {}, Reduction::mean, -100, options.label_smoothing);
  };
  run.normalisation("0.5", "0.5");
  run.setting("model", options.model);
  run.setting("width", std::to_string(options.width));
  run.setting("dropout", std::to_string(options.dropout));
  run.setting("optimizer", options.optimizer);
  run.setting("schedule", options.schedule);
  run.setting("weight_decay", std::to_string(options.weight_decay));
  run.setting("label_smoothing", std::to_string(options.label_smoothing));
  run.setting("augment", options.augment);
  return run();
}

}  // namespace

int main(int argc, char** argv) {
  return run_example("stl10", [&] {
    auto options = parse_options(argc, argv);
    return options ? on_ranks(*options, [&] { return run(*options); }) : 0;
  });
}
