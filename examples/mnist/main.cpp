// Trains a small net on MNIST, tests it after every epoch, and saves it.
//
//   mnist --model lenet --epochs 3                 on the CPU, with all cores
//   mnist --device cuda --graph                    on a GPU, replaying a captured step
//   mnist --synthetic                              without MNIST, on digits that the library draws
//   mnist --backend naive --model pure_linear      by plain loops, to compare
//
// Writes model.safetensors and log.jsonl (its keys: log.h) to --out.
#include <gradus/gradus.h>

#include <cstdio>
#include <filesystem>

#include <gradus/examples/mnist/log.h>
#include <gradus/examples/mnist/models.h>
#include <gradus/examples/mnist/options.h>
#include <gradus/examples/mnist/progress.h>
#include <gradus/examples/mnist/training_step.h>

using namespace gradus;
using Digits = data::datasets::ImageDataset;

namespace {

/// The training or the test set: MNIST, or digits that the library draws.
Digits load_digits(const Options& options, Digits::Mode mode) {
  if (options.synthetic) return data::datasets::SyntheticDigits(mode == Digits::kTrain ? 30000 : 5000, 0, mode);
  const std::string root = data::datasets::find_mnist(options.data);
  const std::string places = options.data.empty() ? "$GRADUS_DATA, data or ../shared/data" : options.data;
  GRADUS_CHECK(!root.empty(), IoError, "no MNIST in ", places,
               ": give its folder with --data, fetch it with scripts/mnist.sh, or train with --synthetic");
  return data::datasets::MNIST(root, mode);
}

/// Digits in batches, with mean 0 and deviation 1.
template <class Sampler>
auto make_loader(Digits digits, size_t batch_size, const Options& options) {
  auto dataset = digits.map(data::transforms::Normalize<>(0.1307, 0.3081)).map(data::transforms::Stack<>());
  return data::make_data_loader<Sampler>(
      dataset, data::DataLoaderOptions().batch_size(batch_size).workers(static_cast<size_t>(options.workers)));
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Options& options, const std::vector<Tensor>& parameters) {
  if (options.optimizer == "adam") return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(options.lr));
  return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(options.lr).momentum(0.9));
}

/// What a net makes of the test set.
struct TestResult {
  double loss = 0, accuracy = 0;
  int64_t images[10] = {}, correct[10] = {};  // by class
};

template <class Loader>
TestResult test(Classifier& model, Loader& loader, Device device) {
  const NoGradGuard no_grad;
  model.eval();
  TestResult result;
  int64_t images = 0, correct = 0;
  for (auto& batch : loader) {
    const Tensor logits = model.forward(batch.data.to(device));  // (N, 10)
    result.loss += cross_entropy(logits, batch.target.to(device), {}, Reduction::sum).template item<double>();
    const Tensor predicted = logits.argmax(1).cpu();
    for (int64_t i = 0; i < predicted.numel(); ++i) {
      const int64_t label = batch.target.template data_ptr<int64_t>()[i];
      const bool right = predicted.data_ptr<int64_t>()[i] == label;
      ++images, ++result.images[label];
      correct += right, result.correct[label] += right;
    }
  }
  model.train();
  result.loss /= static_cast<double>(images);
  result.accuracy = static_cast<double>(correct) / static_cast<double>(images);
  return result;
}

void print_epoch(const EpochResult& result, int epochs) {
  std::printf(
      "epoch %d/%d  train loss %.4f accuracy %.2f %%  test loss %.4f accuracy %.2f %%  %.1f s, %.0f images/s, "
      "%.2f s waiting for data\n",
      result.epoch, epochs, result.train_loss, 100 * result.train_accuracy, result.test_loss,
      100 * result.test_accuracy, result.seconds, result.images_per_second, result.data_wait_seconds);
  std::fflush(stdout);
}

void print_classes(const TestResult& result) {
  std::printf("accuracy by class:\n");
  for (int label = 0; label < 10; ++label)
    std::printf("  %d  %6.2f %%  (%lld of %lld)\n", label,
                result.images[label]
                    ? 100.0 * static_cast<double>(result.correct[label]) / static_cast<double>(result.images[label])
                    : 0.0,
                static_cast<long long>(result.correct[label]), static_cast<long long>(result.images[label]));
}

void train(const Options& options) {
  const Device device(options.device);
  set_backend(options.backend);
  if (options.threads > 0) set_num_threads(options.threads);
  manual_seed(options.seed);

  const Digits train_set = load_digits(options, Digits::kTrain), test_set = load_digits(options, Digits::kTest);
  GRADUS_CHECK(*train_set.size() > 0 && *test_set.size() > 0, IoError,
               "there are no images to train on or to test with");
  auto train_loader =
      make_loader<data::samplers::RandomSampler>(train_set, static_cast<size_t>(options.batch_size), options);
  auto test_loader = make_loader<data::samplers::SequentialSampler>(test_set, 1000, options);
  const int64_t images = static_cast<int64_t>(*train_set.size());
  const int64_t steps_per_epoch = (images + options.batch_size - 1) / options.batch_size;

  const std::shared_ptr<Classifier> model = make_model(options.model);
  model->to(device);
  const auto optimizer = make_optimizer(options, model->parameters());
  std::unique_ptr<optim::LRScheduler> scheduler;
  if (options.schedule == "cosine")
    scheduler = std::make_unique<optim::CosineAnnealingLR>(*optimizer, options.epochs * steps_per_epoch);
  TrainingStep step(*model, *optimizer, device, options.batch_size, options.graph);

  std::filesystem::create_directories(options.out);
  Log log(options.out + "/log.jsonl", options);
  if (!options.quiet)
    std::printf("%s, %lld parameters, on %s (%s); %lld images to train on, %zu to test with\n", options.model.c_str(),
                static_cast<long long>(model->num_parameters()), options.device.c_str(), options.backend.c_str(),
                static_cast<long long>(images), *test_set.size());

  TestResult tested;
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    EpochResult result;
    result.epoch = epoch;
    result.lr = optimizer->param_groups()[0].options().get_lr();
    Progress progress(epoch, options.epochs, images, options.quiet);
    step.totals().reset();
    int64_t done = 0;
    for (auto& batch : *train_loader) {
      step(batch.data, batch.target);
      if (scheduler) scheduler->step();
      done += batch.data.size(0);
      if (progress.due()) progress.show(done, step.totals().loss_sum() / static_cast<double>(done));
    }
    result.train_loss = step.totals().loss_sum() / static_cast<double>(images);
    result.train_accuracy = static_cast<double>(step.totals().correct()) / static_cast<double>(images);
    result.seconds = progress.seconds();
    result.images_per_second = static_cast<double>(images) / result.seconds;
    result.data_wait_seconds = train_loader->wait_seconds();

    tested = test(*model, *test_loader, device);
    result.test_loss = tested.loss;
    result.test_accuracy = tested.accuracy;
    result.test_seconds = progress.seconds() - result.seconds;
    progress.finish();
    log.write(result);
    if (!options.quiet) print_epoch(result, options.epochs);
  }

  save(model, options.out + "/model.safetensors");
  if (options.quiet) return;
  print_classes(tested);
  std::printf("wrote %s/model.safetensors and %s/log.jsonl\n", options.out.c_str(), options.out.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (const auto options = parse_options(argc, argv)) train(*options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 1;
  }
}
