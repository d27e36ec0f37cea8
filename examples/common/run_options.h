// The part of the command line that the image examples share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gradus/examples/common/ranks.h>

namespace CLI {
class App;
}

struct RunOptions {
  std::string device = "cpu";
  std::string backend;  // empty: the device's best
  int epochs = 10;
  int batch_size = 32;  // of all ranks together
  double lr = 1e-3;
  int images = 0;       // of the training set that are used; 0: all
  int test_images = 0;  // of the test set
  int workers = 1;
  bool device_data = false;
  int threads = 0;  // 0: all cores, or this rank's share of them
  uint64_t seed = 1;
  std::string data;  // empty: where data usually lies
  std::string out;
  std::string checkpoint;        // empty: none
  int64_t checkpoint_every = 0;  // steps; 0: after each epoch alone
  bool resume = false;
  std::string tensorboard;           // folder; empty: none
  std::string onnx;                  // file to export the trained net to; empty: none
  std::string init;                  // model file whose weights are the first; empty: random ones
  int save_every = 0;                // epochs after which the model is kept; 0: the last one alone
  bool evaluate = false;             // test the net of `init`, and train nothing
  std::vector<std::string> predict;  // image files to classify with it instead
  bool profile = false;
  bool explain = false;
  std::string lab;  // page to write of a training step, instead of training; empty: none
  bool graph = false;
  bool cudnn_small = false;
  std::string compress = "off";  // the half type in which gradients travel between ranks
  std::string amp = "off";       // or the half type of training steps: fp16, bf16
  bool quiet = false;
  int data_parallel = 1;      // devices that share each batch within a process
  int spawn = 1;              // ranks to start
  std::string comm = "auto";  // how ranks talk to each other
  int64_t verify = 0;         // steps to compare with those of one process, instead of the run
  std::string command;        // how the program was called
  Ranks ranks;                // that the program is run by
  gradus::dist::TrainingComparison* comparison = nullptr;  // of --verify

  /// Whether this process prints what it does.
  bool prints() const { return !quiet && ranks.is_first(); }
};

/// Adds these options to those that the program has of its own; what `options` holds are the defaults.
void add_run_options(CLI::App& app, RunOptions& options);
/// Reads the command line and checks it. False when it asked for help, which has been printed then; options that are
/// unknown or contradict each other are a ValueError.
bool parse_run_options(CLI::App& app, RunOptions& options, int argc, char** argv);
/// Calls `run` in all ranks that the options ask for, or in the one that this process is. There device, backend and
/// ranks are settled, and backend, threads and seed are what the options say. Returns the program's exit code. Nothing
/// may have used tensors before.
int on_ranks(RunOptions& options, const std::function<int()>& run);
/// Where `find` (data::datasets::find_…) finds the data set. Nowhere is an IoError that says where it looked, and what
/// helps.
std::string data_folder(std::string (*find)(const std::string&), const RunOptions& options, const char* data_set,
                        const char* remedy);
