#include <gradus/examples/mnist/log.h>

#include <nlohmann/json.hpp>

#include <gradus/core/error.h>
#include <gradus/core/io/file.h>

namespace {

/// The first lines of a log. Those of an epoch that a killed run had begun again are not among them.
std::string first_lines(const std::string& path, int count) {
  std::ifstream file(path);
  std::string lines, line;
  for (int i = 0; i < count && std::getline(file, line); ++i) lines += line + "\n";
  return lines;
}

}  // namespace

Log::Log(const std::string& path, const Options& options, int epochs_done) : path_(path), options_(options) {
  if (epochs_done > 0) gradus::io::write_file(path, first_lines(path, epochs_done));
  file_.open(path, epochs_done > 0 ? std::ios::app : std::ios::trunc);
  GRADUS_CHECK(file_.is_open(), IoError, "cannot write '", path, "'");
}

void Log::write(const EpochResult& result) {
  const nlohmann::ordered_json line = {{"epoch", result.epoch},
                                       {"train_loss", result.train_loss},
                                       {"train_accuracy", result.train_accuracy},
                                       {"train_error", 1 - result.train_accuracy},
                                       {"test_loss", result.test.loss},
                                       {"test_accuracy", result.test.accuracy},
                                       {"test_error", 1 - result.test.accuracy},
                                       {"class_accuracy", result.test.class_accuracy()},
                                       {"lr", result.lr},
                                       {"seconds", result.seconds},
                                       {"images_per_second", result.images_per_second},
                                       {"data_wait_seconds", result.data_wait_seconds},
                                       {"test_seconds", result.test_seconds},
                                       {"model", options_.model},
                                       {"device", options_.device},
                                       {"backend", options_.backend},
                                       {"graph", options_.graph},
                                       {"optimizer", options_.optimizer},
                                       {"schedule", options_.schedule},
                                       {"batch_size", options_.batch_size},
                                       {"seed", options_.seed},
                                       {"data", options_.synthetic ? "synthetic" : "mnist"}};
  file_ << line.dump() << std::endl;
  GRADUS_CHECK(file_.good(), IoError, "cannot write '", path_, "'");
}
