// RunLog writes the results of a run: log.jsonl, curves for TensorBoard, and a line for each epoch on the terminal.
//
// log.jsonl has a line for each epoch, with a JSON object:
//   epoch               1, 2, …
//   train_loss          mean over the epoch's training images, as the net saw them
//   train_accuracy      share of them, 0 to 1, that was classified right; train_error is the rest
//   test_loss, test_accuracy, test_error   the same over all test images after the epoch
//   test_images         how many these are
//   class_accuracy      test_accuracy of each class
//   lr                  learning rate of the epoch's first step
//   seconds             duration of the training, without the test
//   images_per_second   training images of all ranks by these seconds
//   data_wait_seconds   of them, spent waiting for batches (in a resumed epoch: since then)
//   forward_seconds, backward_seconds, optimizer_seconds   of them, what the parts of the steps took, on a GPU by its
//                       own clock (in a resumed epoch: since then); null with --graph, where a step is one piece
//   test_seconds        duration of the test
//   total_seconds       since the program began its run, with tests and files
//   peak_allocated_bytes, peak_reserved_bytes   the most that tensors held on the device in the epoch's training, and
//                       that the allocator had taken from the system: the greatest of the ranks' figures
//   ranks, comm         processes that trained together, and how they sent gradients ("none": there was one)
//   compress            the half type in which they sent them, or "off"
//   data_parallel       devices that shared each batch within a process
//   device_name, libraries   what computed
//   tf32                whether convolutions round what they multiply to 10 bits (cudnn does, unless told not to)
//   device, backend, graph, amp, device_data, cudnn_small, batch_size, seed, workers, threads and the settings of the
//                       program   what the run was asked for
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
