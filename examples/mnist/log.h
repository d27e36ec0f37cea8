// log.jsonl: what a run did, one JSON object a line and an epoch.
//
//   epoch               1, 2, …
//   train_loss          mean over the epoch's training images, as they were met
//   train_accuracy      share of them, 0 to 1, that was classified right; train_error is the rest
//   test_loss, test_accuracy, test_error   the same over all test images after the epoch
//   class_accuracy      test_accuracy of the classes 0 to 9
//   lr                  learning rate of the epoch's first step
//   seconds             duration of the training, without the test
//   images_per_second   training images by these seconds
//   data_wait_seconds   of them, spent waiting for batches (in a resumed epoch: since then)
//   test_seconds        duration of the test
//   model, device, backend, graph, optimizer, schedule, batch_size, seed, data   what the run was asked for
#pragma once

#include <fstream>
#include <string>

#include <gradus/examples/mnist/evaluate.h>
#include <gradus/examples/mnist/options.h>

struct EpochResult {
  int epoch = 0;
  double train_loss = 0, train_accuracy = 0;
  TestResult test;
  double lr = 0, seconds = 0, images_per_second = 0, data_wait_seconds = 0, test_seconds = 0;
};

class Log {
 public:
  /// Starts a new file, or goes on with one after the lines of `epochs_done` epochs. IoError when it cannot be written.
  Log(const std::string& path, const Options& options, int epochs_done);
  /// Writes a line through to the file, so that an interrupted run leaves what it did.
  void write(const EpochResult& result);

 private:
  std::string path_;
  Options options_;
  std::ofstream file_;
};
