#include <gradus/examples/mnist/log.h>

#include <nlohmann/json.hpp>

#include <gradus/core/error.h>

Log::Log(const std::string& path, const Options& options) : path_(path), options_(options), file_(path) {
  GRADUS_CHECK(file_.is_open(), IoError, "cannot write '", path, "'");
}

void Log::write(const EpochResult& result) {
  const nlohmann::ordered_json line = {{"epoch", result.epoch},
                                       {"train_loss", result.train_loss},
                                       {"train_accuracy", result.train_accuracy},
                                       {"test_loss", result.test_loss},
                                       {"test_accuracy", result.test_accuracy},
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
