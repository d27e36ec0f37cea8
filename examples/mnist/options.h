// What the command line decides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

struct Options {
  std::string model = "lenet";
  std::string device = "cpu";
  std::string backend;  // empty: the device's best
  int epochs = 3;
  int batch_size = 64;
  double lr = 0;  // 0: the optimizer's usual rate
  std::string optimizer = "adam";
  std::string schedule = "cosine";
  std::string augment = "none";
  int workers = 1;
  int threads = 0;  // 0: all cores
  uint64_t seed = 1;
  std::string data;  // empty: where MNIST usually lies
  bool synthetic = false;
  int images = 0;  // of synthetic digits, to train on; 0: 30,000
  std::string out = "runs/mnist";
  bool graph = false;
  bool quiet = false;
  std::string checkpoint;        // empty: none
  int64_t checkpoint_every = 0;  // steps; 0: after each epoch alone
  bool resume = false;
  std::string tensorboard;  // folder; empty: none
  bool profile = false;
  std::string command;  // how the program was called
};

/// Reads and checks the command line. Nothing when it asked for help, which has been printed then; options that are
/// unknown or contradict each other are a ValueError.
std::optional<Options> parse_options(int argc, char** argv);
