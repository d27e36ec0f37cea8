// RunLog writes the results of a run: log.jsonl, curves for TensorBoard, and a line for each epoch on the terminal.
//
// log.jsonl has a line for each epoch, with a JSON object:
//   epoch               1, 2, …
//   train_loss          mean over the epoch's training images, as the net saw them
//   train_accuracy      share of these images, 0 to 1, that was classified correctly; train_error is 1 minus this
//   test_loss, test_accuracy, test_error   the same over all test images after the epoch
//   test_images         number of test images
//   class_accuracy      test_accuracy of each class
//   lr                  learning rate of the epoch's first step
//   seconds             duration of the training, without the test
//   images_per_second   training images of all ranks divided by `seconds`
//   data_wait_seconds   part of `seconds` spent waiting for batches; in a resumed epoch, since it was resumed
//   forward_seconds, backward_seconds, optimizer_seconds   parts of `seconds` spent in these parts of the steps, on a
//                       GPU by its own clock; in a resumed epoch, since it was resumed; null with --graph
//   test_seconds        duration of the test
//   total_seconds       time since the program began its run, including tests and writing files
//   peak_allocated_bytes, peak_reserved_bytes   peaks of the bytes that tensors held on the device during the epoch's
//                       training, and of those that the allocator obtained from the system; the maximum over the ranks
//   ranks, comm         number of processes that trained together, and how they sent gradients; "none" for one process
//   compress            the half type in which ranks sent gradients, or "off"
//   data_parallel       number of devices that shared each batch within a process
//   device_name, libraries   the device that computed, and the libraries that were used
//   tf32                whether convolutions round their factors to 10 bits, as cudnn does by default
//   device, backend, graph, amp, device_data, cudnn_small, batch_size, seed, workers, threads and the settings of the
//                       program   the options of the run
#pragma once

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradus/examples/common/images.h>
#include <gradus/examples/common/run_options.h>
#include <gradus/examples/common/step_clock.h>
#include <gradus/inspect/tensorboard.h>

struct EpochResult {
  int epoch = 0;
  int64_t steps = 0;  // of the whole run so far
  double lr = 0;
  double train_loss = 0, train_accuracy = 0;
  TestResult test;
  double seconds = 0, images_per_second = 0, data_wait_seconds = 0, test_seconds = 0, total_seconds = 0;
  std::optional<StepClock::Seconds> parts;
  int64_t peak_allocated = 0, peak_reserved = 0;
};

class RunLog {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;

  /// Starts a new log, or continues a log after this number of epochs and steps. A file that cannot be written is an
  /// IoError, here and below. Ranks other than the first write nothing.
  RunLog(const RunOptions& options, Settings settings, int epochs_done, int64_t steps_done);
  /// True if point() should be called after this step.
  bool wants_point(int64_t step) const { return curves_ && step % 50 == 0; }
  /// Adds a point to the curves: the mean loss of the epoch so far, over this rank's images.
  void point(int64_t step, double mean_loss, double lr);
  /// Writes the line of an epoch to the file at once, so that an interrupted run leaves a complete log. Also adds to
  /// TensorBoard the weights of `model` and some images that it classified wrongly.
  void epoch(const EpochResult& result, const gradus::nn::Module& model);

 private:
  void write_line(const EpochResult& result);
  void draw(const EpochResult& result, const gradus::nn::Module& model);
  void print(const EpochResult& result) const;

  const RunOptions& options_;
  const Settings settings_;
  const std::string path_;
  std::ofstream file_;
  std::unique_ptr<gradus::training::SummaryWriter> curves_;
};
