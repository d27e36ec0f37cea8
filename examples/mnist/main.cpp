// Trains a small net on MNIST, tests it after every epoch, and saves it.
//
//   mnist --model lenet --epochs 3                 on the CPU, with all cores
//   mnist --device cuda --graph                    on a GPU, replaying a captured step
//   mnist --synthetic                              without MNIST, on digits that the library draws
//   mnist --backend naive --model pure_linear      by plain loops, to compare
//   mnist --checkpoint run.safetensors --resume    stops at Ctrl-C, and goes on where it stopped
//   mnist --profile --tensorboard runs/mnist/tb    where the time goes, and curves
//
// Writes model.safetensors and log.jsonl (its keys: log.h) to --out.
#include <gradus/gradus.h>

#include <cstdio>

#include <gradus/examples/mnist/options.h>
#include <gradus/examples/mnist/training_run.h>

using namespace gradus;
using Digits = data::datasets::ImageDataset;
using Pipeline = data::datasets::AnyDataset<>;

namespace {

/// The training or the test set: MNIST, or digits that the library draws.
Digits load_digits(const Options& options, Digits::Mode mode) {
  const size_t drawn = options.images > 0 ? static_cast<size_t>(options.images) : 30000;
  if (options.synthetic)
    return data::datasets::SyntheticDigits(mode == Digits::kTrain ? drawn : drawn / 6 + 1, 0, mode);
  const std::string root = data::datasets::find_mnist(options.data);
  const std::string places = options.data.empty() ? "$GRADUS_DATA, data or ../shared/data" : options.data;
  GRADUS_CHECK(!root.empty(), IoError, "no MNIST in ", places,
               ": give its folder with --data, fetch it with scripts/mnist.sh, or train with --synthetic");
  return data::datasets::MNIST(root, mode);
}

/// Each image a little turned, moved, scaled and sheared, anew in each epoch.
Pipeline augmented(const Digits& digits) {
  data::transforms::RandomAffine affine(10);
  affine.translate(0.1, 0.1).scale(0.9, 1.1).shear(5).interpolation(data::transforms::Interpolation::kBilinear);
  return digits.map(affine);
}

/// Batches of digits with mean 0 and deviation 1.
template <class Sampler>
auto make_loader(Pipeline digits, size_t batch_size, const Options& options) {
  auto dataset = digits.map(data::transforms::Normalize<>(0.1307, 0.3081)).map(data::transforms::Stack<>());
  return data::make_data_loader<Sampler>(
      dataset, data::DataLoaderOptions().batch_size(batch_size).workers(static_cast<size_t>(options.workers)));
}

int run(const Options& options) {
  set_backend(options.backend);
  if (options.threads > 0) set_num_threads(options.threads);
  manual_seed(options.seed);

  const Digits train_set = load_digits(options, Digits::kTrain), test_set = load_digits(options, Digits::kTest);
  GRADUS_CHECK(*train_set.size() > 0 && *test_set.size() > 0, IoError,
               "there are no images to train on or to test with");
  const int64_t images = static_cast<int64_t>(*train_set.size());
  const auto train_loader = make_loader<data::samplers::RandomSampler>(
      options.augment == "affine" ? augmented(train_set) : train_set, static_cast<size_t>(options.batch_size), options);
  const auto test_loader = make_loader<data::samplers::SequentialSampler>(test_set, 1000, options);

  std::optional<training::Profiler> profiler;
  if (options.profile) profiler.emplace();
  const int exit_code = TrainingRun(options, *train_loader, *test_loader, images)();
  if (!profiler) return exit_code;
  profiler->stop();
  profiler->save_trace(options.out + "/trace.json");
  std::printf("\n%s\nwrote %s/trace.json (for chrome://tracing or ui.perfetto.dev)\n", profiler->table().c_str(),
              options.out.c_str());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto options = parse_options(argc, argv);
    return options ? run(*options) : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 1;
  }
}
