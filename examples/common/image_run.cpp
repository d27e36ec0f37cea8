#include <gradus/examples/common/image_run.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <nlohmann/json.hpp>

#include <gradus/examples/common/progress.h>

using namespace gradus;
namespace samplers = data::samplers;

namespace {

data::DataLoaderOptions loader_options(const RunOptions& options, int batch_size) {
  return data::DataLoaderOptions(static_cast<size_t>(batch_size)).workers(static_cast<size_t>(options.workers));
}

int64_t size_of(const Images& images) {
  const std::optional<size_t> size = images.size();
  GRADUS_CHECK(size && *size > 0, IoError, "there are no images to train on or to test with");
  return static_cast<int64_t>(*size);
}

std::string log_path(const RunOptions& options) { return options.out + "/log.jsonl"; }

/// Lines of epochs that a resumed run does again go.
void keep_lines(const std::string& path, int count) {
  std::ifstream file(path);
  std::string kept, line;
  for (int i = 0; i < count && std::getline(file, line); ++i) kept += line + "\n";
  file.close();
  std::ofstream(path) << kept;
}

long long as_long(int64_t number) { return number; }

}  // namespace

ImageRun::ImageRun(RunOptions options, Images train_set, Images test_set, std::vector<std::string> class_names,
                   nn::AnyModule model)
    : loss([](const Tensor& logits, const Tensor& labels) { return cross_entropy(logits, labels); }),
      options_(std::move(options)), device_(options_.device), class_names_(std::move(class_names)),
      model_(std::move(model)), train_images_(size_of(train_set)),
      steps_per_epoch_((train_images_ + options_.batch_size - 1) / options_.batch_size),
      loss_(zeros({}, dtype(kDouble).device(device_))), right_(zeros({}, dtype(kLong).device(device_))) {
  size_of(test_set);
  train_loader_ = data::make_data_loader<samplers::RandomSampler>(train_set.map(data::transforms::Stack<>()),
                                                                  loader_options(options_, options_.batch_size));
  test_loader_ = data::make_data_loader<samplers::SequentialSampler>(test_set.map(data::transforms::Stack<>()),
                                                                     loader_options(options_, 100));
  model_.ptr()->to(device_);
}

void ImageRun::stop_early(Images validation_set, int64_t patience) {
  size_of(validation_set);
  validation_loader_ = data::make_data_loader<samplers::SequentialSampler>(
      validation_set.map(data::transforms::Stack<>()), loader_options(options_, 100));
  stopping_.emplace(*model_.ptr(), training::EarlyStoppingOptions().patience(patience));
}

int ImageRun::operator()() {
  describe_checkpoint();
  const bool resumed = options_.resume && checkpoint_.load_if_there(options_.checkpoint);
  std::filesystem::create_directories(options_.out);
  keep_lines(log_path(options_), epoch_ - 1);
  if (!options_.quiet) {
    std::printf("%lld parameters, on %s (%s); %lld images to train on\n", as_long(model_.ptr()->num_parameters()),
                options_.device.c_str(), options_.backend.c_str(), as_long(train_images_));
    if (resumed) std::printf("going on from %s in epoch %d\n", options_.checkpoint.c_str(), epoch_);
  }
  std::optional<training::Profiler> profiler;
  if (options_.profile) profiler.emplace();

  const training::Interrupt interrupt;
  Result tested;
  bool done = false;
  while (epoch_ <= options_.epochs && !done) {
    const auto start = std::chrono::steady_clock::now();
    if (!train_epoch(interrupt)) return stop(interrupt.exit_code());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    tested = evaluate(*test_loader_);
    if (stopping_) done = stopping_->step(evaluate(*validation_loader_).loss);
    log(tested, seconds);
    ++epoch_, seen_ = 0;
    save_checkpoint();
  }
  if (stopping_) {
    stopping_->restore_best();
    tested = {};
    if (!options_.quiet) std::printf("back to the weights of epoch %lld\n", as_long(stopping_->best_epoch() + 1));
  }

  save(*model_.ptr(), options_.out + "/model.safetensors");
  if (profiler) {
    profiler->stop();
    profiler->save_trace(options_.out + "/trace.json");
    std::printf("\n%s\n", profiler->table().c_str());
  }
  if (options_.quiet) return 0;
  print_classes(tested.images ? tested : evaluate(*test_loader_));
  std::printf("wrote %s/model.safetensors and %s\n", options_.out.c_str(), log_path(options_).c_str());
  return 0;
}

void ImageRun::describe_checkpoint() {
  checkpoint_.add("model", *model_.ptr()).add("optimizer", *optimizer).add("loader", *train_loader_);
  if (schedule) checkpoint_.add("schedule", *schedule);
  if (stopping_) checkpoint_.add("stopping", *stopping_);
  checkpoint_.add("generator", default_generator()).add("loss", loss_).add("right", right_);
  checkpoint_.value("epoch", epoch_).value("seen", seen_);
  checkpoint_.setting("backend", options_.backend).setting("seed", options_.seed).setting("lr", options_.lr);
  checkpoint_.setting("batch size", options_.batch_size).setting("images", train_images_);
  if (schedule) checkpoint_.setting("epochs", options_.epochs);  // where the schedule ends
  for (const auto& [name, value] : settings_) checkpoint_.setting(name, value);
}

bool ImageRun::train_epoch(const training::Interrupt& interrupt) {
  Progress progress(epoch_, options_.epochs, train_images_, 0, options_.quiet);
  model_.ptr()->train();
  if (seen_ == 0) {
    loss_.zero_();
    right_.zero_();
  }
  for (auto& batch : *train_loader_) {
    const Tensor images = batch.data.to(device_), labels = batch.target.to(device_);
    optimizer->zero_grad();
    const Tensor logits = model_.forward(images);  // (N, classes)
    const Tensor batch_loss = loss(logits, labels);
    batch_loss.backward();
    optimizer->step();
    if (schedule) schedule->step();
    {
      const NoGradGuard no_grad;
      loss_ += batch_loss * batch.data.size(0);
      right_ += (logits.argmax(1) == labels).sum();
    }
    seen_ += batch.data.size(0);
    if (interrupt.requested()) return false;
    if (progress.due()) progress.show(seen_, loss_.item<double>() / static_cast<double>(seen_));
  }
  progress.finish();
  return true;
}

ImageRun::Result ImageRun::evaluate(TestLoader& loader) {
  const NoGradGuard no_grad;
  model_.ptr()->eval();
  Result result;
  result.images_of_class.resize(class_names_.size());
  result.right_of_class.resize(class_names_.size());
  for (auto& batch : loader) {
    const Tensor logits = model_.forward(batch.data.to(device_));
    result.loss += cross_entropy(logits, batch.target.to(device_), {}, Reduction::sum).template item<double>();
    const Tensor predicted = logits.argmax(1).cpu();
    for (int64_t i = 0; i < predicted.numel(); ++i) {
      const int64_t label = batch.target.template data_ptr<int64_t>()[i];
      const bool right = predicted.data_ptr<int64_t>()[i] == label;
      ++result.images_of_class[static_cast<size_t>(label)];
      result.right_of_class[static_cast<size_t>(label)] += right;
    }
  }
  const auto sum = [](const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  result.images = sum(result.images_of_class);
  result.right = sum(result.right_of_class);
  result.loss /= static_cast<double>(result.images);
  return result;
}

void ImageRun::log(const Result& tested, double seconds) {
  const double train_loss = loss_.item<double>() / static_cast<double>(seen_);
  const double train_accuracy = static_cast<double>(right_.item<int64_t>()) / static_cast<double>(seen_);
  nlohmann::ordered_json line = {{"epoch", epoch_},
                                 {"train_loss", train_loss},
                                 {"train_accuracy", train_accuracy},
                                 {"test_loss", tested.loss},
                                 {"test_accuracy", tested.accuracy()},
                                 {"test_images", tested.images},
                                 {"lr", optimizer->param_groups()[0].options().get_lr()},
                                 {"seconds", seconds},
                                 {"data_wait_seconds", train_loader_->wait_seconds()},
                                 {"device", options_.device},
                                 {"backend", options_.backend},
                                 {"batch_size", options_.batch_size},
                                 {"seed", options_.seed}};
  for (const auto& [name, value] : settings_) line[name] = value;
  std::ofstream file(log_path(options_), std::ios::app);
  file << line.dump() << std::endl;
  GRADUS_CHECK(file.good(), IoError, "cannot write '", log_path(options_), "'");
  if (options_.quiet) return;
  std::printf(
      "epoch %d/%d  train loss %.4f accuracy %.1f %%  test loss %.4f accuracy %.1f %% of %lld images  %.1f s, "
      "%.0f images/s\n",
      epoch_, options_.epochs, train_loss, 100 * train_accuracy, tested.loss, 100 * tested.accuracy(),
      as_long(tested.images), seconds, static_cast<double>(train_images_) / seconds);
  std::fflush(stdout);
}

int ImageRun::stop(int exit_code) const {
  save_checkpoint();
  if (options_.checkpoint.empty())
    std::printf("\nstopped in epoch %d; nothing is saved (--checkpoint FILE would have)\n", epoch_);
  else
    std::printf("\nstopped in epoch %d and saved; to go on:\n  %s%s\n", epoch_, options_.command.c_str(),
                options_.resume ? "" : " --resume");
  return exit_code;
}

void ImageRun::print_classes(const Result& tested) const {
  std::printf("accuracy by class, %.1f %% of all:\n", 100 * tested.accuracy());
  for (size_t i = 0; i < class_names_.size(); ++i)
    std::printf("  %-12s %3lld of %lld\n", class_names_[i].c_str(), as_long(tested.right_of_class[i]),
                as_long(tested.images_of_class[i]));
}

void ImageRun::save_checkpoint() const {
  if (!options_.checkpoint.empty()) checkpoint_.save(options_.checkpoint);
}

Images first(Images images, int count) {
  const size_t size = images.size().value_or(0);
  if (count == 0 || static_cast<size_t>(count) >= size) return images;
  std::vector<size_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), size_t{0});
  return data::datasets::Subset<Images>(std::move(images), std::move(indices));
}

int run_example(const char* name, const std::function<int()>& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}
