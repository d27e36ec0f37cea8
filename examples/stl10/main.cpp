// Trains a small convolutional net on STL-10: 96 x 96 colour photographs of ten kinds of things, 5,000 with labels.
//
//   stl10 --epochs 10                                      Adam at 1e-3, batches of 32
//   stl10 --images 1000 --epochs 2                         a first impression
//   stl10 --checkpoint run.safetensors --resume            stops at Ctrl-C, and goes on where it stopped
//
// The data come from scripts/stl10_data.sh. Writes model.safetensors and log.jsonl to --out.
#include <gradus/gradus.h>
#include <CLI/CLI.hpp>

#include <gradus/examples/common/image_run.h>

using namespace gradus;
using data::datasets::STL10;

namespace {

nn::Sequential make_model(double dropout) {
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

/// With values between -1 and 1.
Images normalised(Images images) { return images.map(data::transforms::Normalize<>(0.5, 0.5)); }

struct Options : RunOptions {
  double dropout = 0.5;
};

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  options.out = "runs/stl10";
  CLI::App app("Trains a small convolutional net on STL-10 and tests it after every epoch.");
  add_run_options(app, options);
  app.add_option("--dropout", options.dropout, "probability before the last layer")->check(CLI::Range(0.0, 0.99));
  if (!parse_run_options(app, options, argc, argv)) return std::nullopt;
  return options;
}

int run(const Options& options) {
  const std::string folder =
      data_folder(data::datasets::find_stl10, options, "STL-10", "or fetch it with scripts/stl10_data.sh");
  const STL10 photographs(folder, STL10::kTrain);
  const nn::Sequential model = make_model(options.dropout);
  ImageRun run(options, normalised(first(photographs, options.images)),
               normalised(first(STL10(folder, STL10::kTest), options.test_images)), STL10::class_names(),
               nn::AnyModule(model));
  if (options.device_data) {
    data::DeviceImages images(photographs, options.device);
    run.train_on(images.normalize({0.5}, {0.5}));
  }
  run.optimizer = std::make_unique<optim::Adam>(model->parameters(), optim::AdamOptions(options.lr));
  run.setting("dropout", std::to_string(options.dropout));
  return run();
}

}  // namespace

int main(int argc, char** argv) {
  return run_example("stl10", [&] {
    auto options = parse_options(argc, argv);
    return options ? on_ranks(*options, [&] { return run(*options); }) : 0;
  });
}
