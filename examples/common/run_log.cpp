#include <gradus/examples/common/run_log.h>

#include <cstdio>
#include <filesystem>

#include <nlohmann/json.hpp>

#include <gradus/autograd/autograd.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/platform/file.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/data/images/image_file.h>

using namespace gradus;

namespace {

/// Returns the first `count` lines of a log: those of the epochs that the resumed run has completed. Later lines are of
/// epochs that the run repeats.
std::string first_lines(const std::string& path, int count) {
  std::ifstream file(path);
  std::string lines, line;
  for (int i = 0; i < count && std::getline(file, line); ++i) lines += line + "\n";
  return lines;
}

}  // namespace

RunLog::RunLog(const RunOptions& options, Settings settings, int epochs_done, int64_t steps_done)
    : options_(options), settings_(std::move(settings)), path_(options.out + "/log.jsonl") {
  if (!options.ranks.is_first()) return;
  std::filesystem::create_directories(options.out);
  if (epochs_done > 0) io::write_file(path_, first_lines(path_, epochs_done));
  file_.open(path_, epochs_done > 0 ? std::ios::app : std::ios::trunc);
  GRADUS_CHECK(file_.is_open(), IoError, "cannot write '", path_, "'");

  if (options.tensorboard.empty()) return;
  training::SummaryWriterOptions writer_options;
  if (steps_done > 0) writer_options.purge_step = steps_done + 1;  // removes later points
  curves_ = std::make_unique<training::SummaryWriter>(options.tensorboard, writer_options);
  if (steps_done == 0) curves_->add_text("command", "    " + options.command, 0);
}

void RunLog::point(int64_t step, double mean_loss, double lr) {
  curves_->add_scalar("step/mean loss of the epoch so far", mean_loss, step);
  curves_->add_scalar("step/learning rate", lr, step);
}

void RunLog::epoch(const EpochResult& result, const nn::Module& model) {
  if (!options_.ranks.is_first()) return;
  write_line(result);
  if (curves_) draw(result, model);
  if (options_.prints()) print(result);
}

void RunLog::write_line(const EpochResult& result) {
  const Device device(options_.device);
  nlohmann::ordered_json line = {{"epoch", result.epoch},
                                 {"train_loss", result.train_loss},
                                 {"train_accuracy", result.train_accuracy},
                                 {"train_error", 1 - result.train_accuracy},
                                 {"test_loss", result.test.loss},
                                 {"test_accuracy", result.test.accuracy()},
                                 {"test_error", 1 - result.test.accuracy()},
                                 {"test_images", result.test.images()},
                                 {"class_accuracy", result.test.class_accuracy()},
                                 {"lr", result.lr},
                                 {"seconds", result.seconds},
                                 {"images_per_second", result.images_per_second},
                                 {"data_wait_seconds", result.data_wait_seconds},
                                 {"forward_seconds", nullptr},
                                 {"backward_seconds", nullptr},
                                 {"optimizer_seconds", nullptr},
                                 {"test_seconds", result.test_seconds},
                                 {"total_seconds", result.total_seconds},
                                 {"peak_allocated_bytes", result.peak_allocated},
                                 {"peak_reserved_bytes", result.peak_reserved},
                                 {"device_name", runtime(device.type()).description(device.index())},
                                 {"libraries", backend(options_.backend).libraries()},
                                 {"ranks", options_.ranks.size},
                                 {"comm", options_.ranks.comm()},
                                 {"compress", options_.compress},
                                 {"data_parallel", options_.data_parallel},
                                 {"device", options_.device},
                                 {"backend", options_.backend},
                                 {"graph", options_.graph},
                                 {"amp", options_.amp},
                                 {"device_data", options_.device_data},
                                 {"cudnn_small", options_.cudnn_small},
                                 {"tf32", device.is_cuda() && options_.backend == "cudnn" && cudnn::allow_tf32()},
                                 {"batch_size", options_.batch_size},
                                 {"seed", options_.seed},
                                 {"workers", options_.workers},
                                 {"threads", num_threads()}};
  if (result.parts) {
    line["forward_seconds"] = result.parts->forward;
    line["backward_seconds"] = result.parts->backward;
    line["optimizer_seconds"] = result.parts->optimizer;
  }
  for (const auto& [name, value] : settings_) line[name] = value;
  file_ << line.dump() << std::endl;
  GRADUS_CHECK(file_.good(), IoError, "cannot write '", path_, "'");
}

void RunLog::draw(const EpochResult& result, const nn::Module& model) {
  const int64_t step = result.steps;
  curves_->add_scalar("loss/train", result.train_loss, step);
  curves_->add_scalar("loss/test", result.test.loss, step);
  curves_->add_scalar("error/train", 1 - result.train_accuracy, step);
  curves_->add_scalar("error/test", 1 - result.test.accuracy(), step);
  curves_->add_scalar("speed/images per second", result.images_per_second, step);
  for (const auto& parameter : model.named_parameters()) curves_->add_histogram(parameter.key(), *parameter, step);
  if (!result.test.mistakes.empty())
    curves_->add_image("mistakes", data::make_grid(result.test.mistake_pictures(), 16, 0), step);
  curves_->flush();
}

void RunLog::print(const EpochResult& result) const {
  std::printf(
      "epoch %d/%d  train loss %.4f error %.2f %%  test loss %.4f error %.2f %%  %.1f s, %.0f images/s, "
      "%.2f s waiting for data\n",
      result.epoch, options_.epochs, result.train_loss, 100 - 100 * result.train_accuracy, result.test.loss,
      100 - 100 * result.test.accuracy(), result.seconds, result.images_per_second, result.data_wait_seconds);
  std::fflush(stdout);
}
