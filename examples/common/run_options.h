// Options of the command line that all image examples have.
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
  std::string backend;  // empty: the fastest backend of the device
  int epochs = 10;
  int batch_size = 32;  // of all ranks together
  double lr = 1e-3;
  int images = 0;       // number of images of the training set that are used; 0: all
  int test_images = 0;  // of the test set
  int workers = 1;
  bool device_data = false;
  int threads = 0;  // 0: all cores, divided among the ranks of this machine
  uint64_t seed = 1;
  std::string data;  // empty: searches the usual folders
  std::string out;
  std::string checkpoint;        // empty: none
  int64_t checkpoint_every = 0;  // number of steps; 0: only after each epoch
  bool resume = false;
  std::string tensorboard;           // folder; empty: none
  std::string onnx;                  // file to which the trained net is exported; empty: none
  std::string init;                  // model file with the initial weights; empty: random weights
  int save_every = 0;                // number of epochs after which the model is saved; 0: only after the last epoch
  bool evaluate = false;             // only tests the net of `init`
  std::vector<std::string> predict;  // image files that the net of `init` classifies, instead of training
  bool profile = false;
  bool explain = false;
  std::string lab;  // web page about a training step, written instead of training; empty: none
  bool graph = false;
  bool cudnn_small = false;
  std::string compress = "off";  // the half type in which ranks send gradients
  std::string amp = "off";       // "off", or the half type of training steps: fp16, bf16
  bool quiet = false;
  int data_parallel = 1;      // number of devices that share each batch within a process
  int spawn = 1;              // number of ranks to start
  std::string comm = "auto";  // the backend of the ranks' collectives
  int64_t verify = 0;         // number of steps to compare with those of a single process, instead of the run
  std::string command;        // the command line
  Ranks ranks;                // the ranks that run the program
  gradus::dist::TrainingComparison* comparison = nullptr;  // of --verify

  /// True if this process prints messages.
  bool prints() const { return !quiet && ranks.is_first(); }
};

/// Adds these options to the program's command line. Their defaults are the values in `options`.
void add_run_options(CLI::App& app, RunOptions& options);
/// Parses and checks the command line. Returns false if it contains --help, and then prints the help. Unknown options,
/// and options that contradict each other, are a ValueError.
bool parse_run_options(CLI::App& app, RunOptions& options, int argc, char** argv);
/// Calls `run` in all ranks that the options ask for, or in the rank that this process is. Before that, determines
/// device, backend and ranks, and sets backend, threads and seed as the options say. Returns the program's exit code.
/// Call it before this process uses any tensor.
int on_ranks(RunOptions& options, const std::function<int()>& run);
/// Returns the folder where `find` (data::datasets::find_…) finds the dataset. If there is none, throws an IoError that
/// says where it searched and how to get the files.
std::string data_folder(std::string (*find)(const std::string&), const RunOptions& options, const char* data_set,
                        const char* remedy);
