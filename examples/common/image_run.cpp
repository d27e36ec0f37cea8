#include <gradus/examples/common/image_run.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <gradus/distributed/parallel/data_parallel.h>
#include <gradus/examples/common/model_file.h>
#include <gradus/inspect/lab/lab.h>
#include <gradus/inspect/profiler.h>
#include <gradus/layers/module/containers.h>
#include <gradus/onnx/export.h>

using namespace gradus;

namespace {

template <class Sampler>
auto make_loader(Images images, int batch_size, const RunOptions& options) {
  return data::make_data_loader<Sampler>(
      images.map(data::transforms::Stack<>()),
      options.ranks.loader_options(batch_size).workers(static_cast<size_t>(options.workers)));
}

auto make_test_loader(const Images& images, const RunOptions& options) {
  size_of(images);  // throws if there are no images
  return make_loader<data::samplers::SequentialSampler>(images, 100 * options.ranks.size, options);
}

std::optional<DType> half_type(const std::string& name) {
  if (name == "off") return std::nullopt;
  return name == "fp16" ? kHalf : kBFloat16;
}

/// A model that distributes the images of each batch over several devices.
struct OnDevices : nn::Module {
  OnDevices(nn::AnyModule model, Device device, int count) {
    register_module("net", net)->push_back(std::move(model));
    for (int i = 0; i < count; ++i) devices.push_back(device.is_cpu() ? device : Device(device.type(), i));
  }
  Tensor forward(const Tensor& images) { return nn::parallel::data_parallel(net, images, devices); }

  nn::Sequential net;
  std::vector<Device> devices;
};

long long as_long(int64_t number) { return number; }

}  // namespace

ImageRun::ImageRun(RunOptions options, const Images& train_set, const Images& test_set,
                   std::vector<std::string> class_names, nn::AnyModule model)
    : loss([](const Tensor& logits, const Tensor& labels) { return cross_entropy(logits, labels); }),
      options_(std::move(options)), device_(options_.device), class_names_(std::move(class_names)),
      model_(std::move(model)), train_images_(size_of(train_set)),
      steps_per_epoch_((train_images_ + options_.batch_size - 1) / options_.batch_size),
      batches_(loaded_batches(make_loader<data::samplers::RandomSampler>(train_set, options_.batch_size, options_),
                              device_)),
      test_loader_(make_test_loader(test_set, options_)), totals_(device_),
      scaler_(amp::GradScalerOptions().enabled(options_.amp == "fp16")), planned_epochs_(options_.epochs) {
  model_.ptr()->to(device_);
  if (!options_.onnx.empty()) image_ = Images(test_set).get(0).data.unsqueeze(0);
}

void ImageRun::train_on(data::DeviceImages images) {
  batches_ = resident_batches(std::move(images), train_images_, ranks_.loader_options(options_.batch_size));
}

void ImageRun::normalisation(const std::string& means, const std::string& deviations) {
  notes_["mean"] = means, notes_["deviation"] = deviations;
}

void ImageRun::stop_early(const Images& validation_set, int64_t patience) {
  validation_loader_ = make_test_loader(validation_set, options_);
  stopping_.emplace(model(), training::EarlyStoppingOptions().patience(patience));
}

int ImageRun::operator()() {
  load_model(model(), options_);
  describe_checkpoint();
  const bool resumed = options_.resume && checkpoint_.load_if_there(options_.checkpoint);
  if (schedule && planned_epochs_ != options_.epochs) schedule->set_step_count(at_.steps);
  planned_epochs_ = options_.epochs;
  begin_ranks();
  if (options_.evaluate) return show_test(), 0;
  if (options_.comparison) return show_steps(*options_.comparison), 0;
  if (options_.explain || !options_.lab.empty()) return explain_step(), 0;
  RunLog log(options_, settings_, at_.epoch - 1, at_.steps);
  if (options_.prints()) {
    std::printf("%lld parameters, on %s (%s); %lld images to train on\n", as_long(model().num_parameters()),
                options_.device.c_str(), options_.backend.c_str(), as_long(train_images_));
    for (const auto& [name, value] : settings_)
      std::printf("%s %s%s", name.c_str(), value.c_str(), name == settings_.back().first ? "\n" : ", ");
    if (resumed) std::printf("going on from %s, after step %lld\n", options_.checkpoint.c_str(), as_long(at_.steps));
  }

  std::optional<training::Profiler> profiler;
  if (options_.profile && ranks_.is_first()) profiler.emplace();
  const training::Interrupt interrupt;
  const bool ended = train(log, interrupt);
  ended ? finish() : stop();
  if (profiler) {
    profiler->stop();
    profiler->save_trace(options_.out + "/trace.json");
    std::printf("\n%s\nwrote %s/trace.json (for chrome://tracing or ui.perfetto.dev)\n", profiler->table().c_str(),
                options_.out.c_str());
  }
  if (ended) return 0;
  std::fflush(stdout);
  ranks_.barrier();  // otherwise a launcher ends the other ranks when the first rank ends
  return 128 + stop_signal_;
}

void ImageRun::begin_ranks() {
  // Rank 0 has the totals of all ranks for the resumed epoch; the other ranks begin with 0.
  totals_.images = at_.images;
  if (!ranks_.is_first()) totals_.reset();
  if (ranks_.size == 1) return;
  const auto steps = static_cast<double>(at_.steps);
  const std::vector<double> ends = ranks_.max({steps, -steps});
  GRADUS_CHECK(ends[0] == -ends[1], IoError, "--resume: ranks have checkpoints of different steps, ", -ends[1], " to ",
               ends[0], ": '", options_.checkpoint, "' must be a file that all of them share");
  ddp_.emplace(model(), ranks_.gradients,
               dist::DistributedDataParallelOptions().gradient_compression(half_type(options_.compress)));
  // Dropout and augmentation must differ between ranks. The order of the images does not depend on this generator,
  // because loaders have the seed of the options.
  Generator& generator = default_generator();
  generator.set_state(generator.seed() + static_cast<uint64_t>(ranks_.rank), generator.offset());
}

void ImageRun::describe_checkpoint() {
  checkpoint_.add("model", model()).add("optimizer", *optimizer).add("loader", *batches_);
  if (schedule) checkpoint_.add("schedule", *schedule);
  if (stopping_) checkpoint_.add("stopping", *stopping_);
  if (scaler_.is_enabled()) checkpoint_.add("scaler", scaler_);
  checkpoint_.add("generator", default_generator()).add("loss", totals_.loss).add("right", totals_.right);
  checkpoint_.value("epoch", at_.epoch).value("steps", at_.steps).value("images", at_.images).value("lr", at_.lr);
  checkpoint_.value("seconds", at_.seconds).value("stopped early", at_.stopped_early);
  if (schedule) checkpoint_.value("planned epochs", planned_epochs_);  // the schedule's length
  // A resumed run must have the same settings.
  checkpoint_.setting("backend", options_.backend).setting("seed", options_.seed).setting("lr", options_.lr);
  checkpoint_.setting("batch size", options_.batch_size).setting("training images", train_images_);
  checkpoint_.setting("amp", options_.amp).setting("compress", options_.compress);
  for (const auto& [name, value] : settings_) checkpoint_.setting(name, value);
}

void ImageRun::save_checkpoint() {
  if (options_.checkpoint.empty()) return;
  totals_.gather(ranks_);
  if (ranks_.is_first()) checkpoint_.save(options_.checkpoint);
}

bool ImageRun::stop_requested(const training::Interrupt& interrupt) {
  stop_signal_ = static_cast<int>(ranks_.max({static_cast<double>(interrupt.signal())})[0]);
  return stop_signal_ != 0;
}

TestResult ImageRun::test(TestLoader& loader) const {
  return evaluate(model_, loader, device_, class_names_.size(), ranks_);
}

StepParts ImageRun::step_parts(const nn::AnyModule& model) {
  const int64_t batch_size = std::min<int64_t>(options_.batch_size, train_images_);
  return {model, loss, *optimizer, scaler_, totals_, *batches_, half_type(options_.amp), batch_size, options_.graph};
}

void ImageRun::take_step(TrainingStep& step, const TensorList& batch) {
  const int64_t images = std::min<int64_t>(options_.batch_size, train_images_ - at_.images);  // of all ranks
  step(batch, images, ddp_ ? ddp_->loss_weight(batch[0].size(0), images) : 1);
  if (schedule) schedule->step();
  ++at_.steps;
  at_.images += images;
}

void ImageRun::show_steps(dist::TrainingComparison& comparison) {
  TrainingStep step(step_parts(model_));
  comparison.observe(model());
  const int64_t last = at_.steps + options_.verify;
  while (at_.steps < last) {
    batches_->each([&](const TensorList& batch) {
      totals_.reset();
      take_step(step, batch);
      comparison.observe(model(), totals_.mean_loss(), totals_.images);
      return at_.steps < last;
    });
    at_.images = 0;
  }
}

void ImageRun::explain_step() {
  TrainingStep step(step_parts(model_));
  batches_->each([&](const TensorList& loaded) {
    TensorList batch;  // on the step's device, because a captured step must not copy from the host
    for (const Tensor& tensor : loaded) batch.push_back(tensor.to(device_));
    const auto take = [&] { step(batch, std::min<int64_t>(options_.batch_size, train_images_), 1); };
    const auto on_device = training::ExplainOptions().device(device_);
    const std::string title = "A training step of " + options_.command;
    if (!options_.lab.empty()) {
      write_lab(training::record_lab(take, &model(), on_device), options_.lab, title);
      std::printf("wrote %s\n", options_.lab.c_str());
    }
    if (!options_.explain) return false;
    const training::Explanation explanation = explain(take, on_device);
    const std::string path = options_.out + "/explain.html";
    std::filesystem::create_directories(options_.out);
    explanation.save_html(path, title);
    std::printf("%s\nwrote %s\n", explanation.str().c_str(), path.c_str());
    return false;
  });
}

bool ImageRun::train(RunLog& log, const training::Interrupt& interrupt) {
  const bool shared = options_.data_parallel > 1;
  const nn::AnyModule model =
      shared ? nn::AnyModule(std::make_shared<OnDevices>(model_, device_, options_.data_parallel)) : model_;
  TrainingStep step(step_parts(model));
  while (!done() && !stop_requested(interrupt)) {
    Progress progress(at_.epoch, options_.epochs, train_images_, at_.seconds, !options_.prints());
    if (!train_epoch(step, progress, log, interrupt)) return false;
    finish_epoch(step, progress, log);
  }
  return done();
}

bool ImageRun::train_epoch(TrainingStep& step, Progress& progress, RunLog& log, const training::Interrupt& interrupt) {
  runtime(device_.type()).reset_peak_memory_stats(device_.index());
  if (at_.images == 0) {
    totals_.reset();
    at_.lr = lr();
  }
  return batches_->each([&](const TensorList& batch) {
    take_step(step, batch);
    at_.seconds = progress.seconds();
    if (at_.steps % ranks_.steps_between_questions() == 0 && stop_requested(interrupt)) return false;
    if (progress.due()) progress.show(at_.images, totals_.mean_loss());
    if (log.wants_point(at_.steps)) log.point(at_.steps, totals_.mean_loss(), lr());
    if (options_.checkpoint_every > 0 && at_.steps % options_.checkpoint_every == 0) save_checkpoint();
    return true;
  });
}

void ImageRun::finish_epoch(TrainingStep& step, Progress& progress, RunLog& log) {
  EpochResult result;
  result.epoch = at_.epoch;
  result.steps = at_.steps;
  result.lr = at_.lr;
  totals_.gather(ranks_);
  result.train_loss = totals_.mean_loss();
  result.train_accuracy = static_cast<double>(totals_.right.item<int64_t>()) / static_cast<double>(at_.images);
  result.seconds = progress.seconds();
  result.images_per_second = static_cast<double>(at_.images) / result.seconds;
  result.data_wait_seconds = batches_->wait_seconds();
  result.parts = step.take_seconds();
  const MemoryStats memory = runtime(device_.type()).memory_stats(device_.index());
  const std::vector<double> peaks =
      ranks_.max({static_cast<double>(memory.peak_allocated), static_cast<double>(memory.peak_reserved)});
  result.peak_allocated = static_cast<int64_t>(peaks[0]);
  result.peak_reserved = static_cast<int64_t>(peaks[1]);
  tested_ = test(*test_loader_);
  result.test = *tested_;
  result.test_seconds = progress.seconds() - result.seconds;
  result.total_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  progress.finish();
  log.epoch(result, model());

  if (stopping_) at_.stopped_early = stopping_->step(test(*validation_loader_).loss);
  ++at_.epoch;
  at_.images = 0, at_.seconds = 0;
  save_checkpoint();
  if (options_.save_every > 0 && result.epoch % options_.save_every == 0)
    save("model_" + std::to_string(result.epoch) + ".safetensors");
}

void ImageRun::save(const std::string& name) const {
  if (!ranks_.is_first()) return;
  io::Metadata notes = notes_;
  notes["program"] = std::filesystem::path(options_.command.substr(0, options_.command.find(' '))).filename();
  notes["classes"] = nlohmann::json(class_names_).dump();
  notes["epochs"] = std::to_string(at_.epoch - 1);
  if (tested_) notes["test_accuracy"] = training::detail::to_text(tested_->accuracy());
  for (const auto& [setting, value] : settings_) notes["setting:" + setting] = value;
  notes["setting:batch_size"] = std::to_string(options_.batch_size);
  notes["setting:lr"] = training::detail::to_text(options_.lr);
  notes["setting:seed"] = std::to_string(options_.seed);
  save_model(model(), notes, options_.out + "/" + name);
}

void ImageRun::show_test() {
  const TestResult result = test(*test_loader_);
  if (!options_.prints()) return;
  std::printf("test loss %.4f, ", result.loss);
  result.print_classes(class_names_);
}

void ImageRun::finish() {
  if (stopping_) {
    stopping_->restore_best();
    tested_.reset();
    if (options_.prints()) std::printf("back to the weights of epoch %lld\n", as_long(stopping_->best_epoch() + 1));
  }
  if (!tested_) tested_ = test(*test_loader_);
  if (!ranks_.is_first()) return;
  save("model.safetensors");
  tested_->save(options_.out, class_names_);
  if (!options_.onnx.empty()) {
    model().to(kCPU);
    export_onnx(model_, image_, options_.onnx);
  }
  if (options_.quiet) return;
  tested_->print_classes(class_names_);
  if (!options_.onnx.empty()) std::printf("wrote %s\n", options_.onnx.c_str());
  std::printf("wrote %s/model.safetensors and %s/log.jsonl\n", options_.out.c_str(), options_.out.c_str());
}

void ImageRun::stop() {
  save_checkpoint();
  if (!ranks_.is_first()) return;
  if (options_.checkpoint.empty()) {
    std::printf("\nstopped after step %lld; nothing is saved (--checkpoint FILE would have)\n", as_long(at_.steps));
    return;
  }
  std::printf("\nstopped after step %lld and saved; to go on%s:\n  %s%s\n", as_long(at_.steps),
              ranks_.size > 1 ? ", with any number of ranks" : "", options_.command.c_str(),
              options_.resume ? "" : " --resume");
}

int run_example(const char* name, const std::function<int()>& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}
