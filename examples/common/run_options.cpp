#include <gradus/examples/common/run_options.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <gradus/core/parallel/parallel.h>
#include <gradus/core/registry.h>
#include <gradus/core/runtime/cuda.h>
#include <gradus/core/runtime/random.h>

using namespace gradus;

namespace {

// Determines the options that depend on the machine and on the other ranks. Options that contradict each other are an
// error.
void settle(RunOptions& options) {
  Device device(options.device);
  const int devices = runtime(device.type()).device_count();  // throws a DeviceError if there is no such device
  GRADUS_CHECK(device.index() < devices, DeviceError, "--device ", options.device, ": this machine has ", devices,
               devices == 1 ? " CUDA device" : " CUDA devices", "; run with --device cuda:0");
  if (options.backend.empty()) options.backend = current_backend(device.type()).name();
  const DeviceType computes_on = backend(options.backend).device_type();
  GRADUS_CHECK(computes_on == device.type(), ValueError, "--backend ", options.backend, " computes on ",
               name(computes_on), ", but --device is ", options.device, ": add --device ", name(computes_on));
  GRADUS_CHECK(!options.graph || device.is_cuda(), ValueError,
               "--graph captures CUDA work: it needs --device cuda, not ", options.device);
  if (options.threads > 0) set_num_threads(options.threads);
  else if (std::getenv("OMP_NUM_THREADS") == nullptr)
    set_num_threads(std::max(1, num_threads() / dist::job_environment().local_world_size));
  options.ranks = join_ranks(options.comm, device);
  options.device = device.str();
  GRADUS_CHECK(!options.graph || options.ranks.size == 1 || options.ranks.comm() == "nccl", ValueError,
               "--graph captures the sums over ranks too, which only NCCL can do, not ", options.ranks.comm(),
               ": start as many ranks as there are GPUs, with --comm nccl");

  set_backend(options.backend);
  cudnn::set_small_convolutions(options.cudnn_small);
  manual_seed(options.seed);
}

/// Calls run() on all ranks, then on rank 0 alone, and compares the steps. The other ranks return 0: with another exit
/// code, a launcher would end rank 0 before it prints the report.
int verified(RunOptions& options, const std::function<int()>& run) {
  GRADUS_CHECK(options.ranks.size > 1, ValueError,
               "--verify compares several ranks with one process: add --spawn N, or start it by gradus-run");
  dist::TrainingComparison comparison(options.ranks.gradients);
  options.comparison = &comparison;
  run();
  if (!comparison.alone()) return 0;
  options.ranks = {};
  manual_seed(options.seed);
  run();
  const dist::VerifyReport report = comparison.report();
  std::cout << report.str();
  return report.ok() ? 0 : 1;
}

}  // namespace

void add_run_options(CLI::App& app, RunOptions& options) {
  app.option_defaults()->always_capture_default();
  const auto group = [&](const char* name) { app.option_defaults()->group(name); };

  group("Data");
  app.add_option("--data", options.data,
                 "folder of the data set (default: searched in $GRADUS_DATA, data and ../shared/data, in this order)");
  app.add_option("--images", options.images, "number of training images to use, from the first one on; 0 means all")
      ->check(CLI::Range(0, 1000000000));
  app.add_option("--test-images", options.test_images,
                 "number of test images to use, from the first one on; 0 means all")
      ->check(CLI::Range(0, 1000000000));
  app.add_option("--workers", options.workers, "number of threads that prepare batches")->check(CLI::Range(0, 256));
  app.add_flag("--device-data", options.device_data,
               "keep the training images on the device, and gather, augment and normalise them there");

  group("Training");
  app.add_option("--epochs", options.epochs, "number of passes over the training images")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--batch-size", options.batch_size, "number of images of a training step, over all ranks")
      ->check(CLI::Range(1, 100000));
  app.add_option("--lr", options.lr, "learning rate of the first step")->check(CLI::Range(0.0, 1000.0));
  app.add_option("--seed", options.seed, "seed of the weights, of the order of images and of augmentation");
  app.add_option("--amp", options.amp, "train in mixed precision, with products in this type and the rest in float32")
      ->check(CLI::IsMember({"off", "fp16", "bf16"}));
  app.add_flag("--graph", options.graph, "capture the training step once and replay it (cuda)");

  group("Device");
  app.add_option("--device", options.device, "cpu or cuda");
  app.add_option("--backend", options.backend,
                 "backend that computes: naive, openmp, cuda or cudnn (default: the fastest of the device)");
  app.add_option("--threads", options.threads,
                 "number of threads that compute; 0 means all cores, divided among the ranks of a machine")
      ->check(CLI::Range(0, 1024));
  app.add_flag("--cudnn-small", options.cudnn_small,
               "let cuDNN run every convolution that it supports (backend cudnn)");

  group("Files");
  app.add_option("--out", options.out, "folder for model.safetensors and log.jsonl");
  app.add_option("--init", options.init, "model file with the initial weights and the settings of the net");
  app.add_option("--save-every", options.save_every,
                 "number of epochs after which the model is saved as model_<epoch>; 0 means never")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--checkpoint", options.checkpoint, "file in which the run is saved after each epoch and at Ctrl-C");
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "number of steps after which the run is also saved; 0 means only after epochs")
      ->check(CLI::Range(0, 1000000000));
  app.add_flag("--resume", options.resume, "continue the run that --checkpoint has saved, if that file exists");
  app.add_option("--export", options.onnx, "file to which the trained net is exported as an ONNX model");

  group("Instead of training");
  app.add_flag("--evaluate", options.evaluate, "only test the net of --init (default: model.safetensors in --out)");
  app.add_option("--predict", options.predict,
                 "PNG or JPEG files to classify with the net of --init; predictions.html in --out shows them");
  app.add_flag("--explain", options.explain,
               "list the kernels of a training step and what would save time and memory; saves only explain.html in "
               "--out");
  app.add_option("--lab", options.lab,
                 "HTML file for a page about a training step: the net, and each call with its values, memory and time");
  app.add_option("--verify", options.verify,
                 "number of steps to make both on the ranks and in one process, to report differences; saves nothing")
      ->check(CLI::Range(0, 1000000));

  group("What is shown");
  app.add_flag("--quiet", options.quiet, "print only errors");
  app.add_option("--tensorboard", options.tensorboard, "folder for TensorBoard's curves, histograms and pictures");
  app.add_flag("--profile", options.profile, "print where the time went; trace.json in --out shows it");

  group("Several devices, processes or machines");
  app.add_option("--data-parallel", options.data_parallel,
                 "number of GPUs (on the CPU: threads) among which one process divides each batch")
      ->check(CLI::Range(1, 1024));
  app.add_option("--spawn", options.spawn,
                 "number of processes that train together (alternatively, start them with gradus-run)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--comm", options.comm,
                 "how ranks exchange gradients; auto: nccl if each rank has a GPU, otherwise shm or tcp")
      ->check(CLI::IsMember({"auto", "nccl", "tcp", "shm", "mpi"}));
  app.add_option("--compress", options.compress, "type in which ranks exchange gradients")
      ->check(CLI::IsMember({"off", "fp16", "bf16"}));

  group("Net, optimizer and augmentation");  // options that the program adds
}

bool parse_run_options(CLI::App& app, RunOptions& options, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) { GRADUS_FAIL(ValueError, error.what(), " (see --help)"); }
  for (int i = 0; i < argc; ++i) options.command += std::string(i ? " " : "") + argv[i];

  GRADUS_CHECK(!options.checkpoint.empty() || (!options.resume && options.checkpoint_every == 0), ValueError,
               options.resume ? "--resume" : "--checkpoint-every", " needs the name of a file: add --checkpoint FILE");
  const bool trains = !options.evaluate && options.predict.empty();
  if (!trains && options.init.empty()) options.init = options.out + "/model.safetensors";
  GRADUS_CHECK(options.init.empty() || std::filesystem::exists(options.init), IoError, "there is no model '",
               options.init, "': train one, or name another with --init");
  GRADUS_CHECK(trains || options.checkpoint.empty(), ValueError, options.evaluate ? "--evaluate" : "--predict",
               " trains nothing: leave out --checkpoint");
  const bool alone = options.spawn == 1 && dist::job_environment().world_size == 1;
  GRADUS_CHECK(options.predict.empty() || (!options.evaluate && alone), ValueError,
               "--predict needs a single process and excludes --evaluate: leave out --evaluate and --spawn");
  GRADUS_CHECK(options.data_parallel == 1 || alone, ValueError,
               "--data-parallel needs a single process: leave it out if there are several");
  GRADUS_CHECK((!options.explain && options.lab.empty()) || (options.data_parallel == 1 && alone), ValueError,
               options.explain ? "--explain" : "--lab",
               " watches one thread of one process: leave out --data-parallel and --spawn");
  GRADUS_CHECK(options.data_parallel == 1 || !options.graph, ValueError,
               "--data-parallel uses several threads, which --graph cannot capture: leave out one of them");
  GRADUS_CHECK(options.spawn == 1 || dist::job_environment().world_size == 1, ValueError,
               "this process is already a rank of a job: leave out --spawn");
  return true;
}

int on_ranks(RunOptions& options, const std::function<int()>& run) {
  const auto run_rank = [&] {
    settle(options);
    const int code = options.verify > 0 ? verified(options, run) : run();
    options.ranks = {};  // a process of spawn_ranks() exits without calling destructors
    return code;
  };
  return options.spawn == 1 ? run_rank() : spawn_ranks(run_rank, options.spawn);
}

std::string data_folder(std::string (*find)(const std::string&), const RunOptions& options, const char* data_set,
                        const char* remedy) {
  const std::string folder = find(options.data);
  GRADUS_CHECK(!folder.empty(), IoError, "no ", data_set, " in ",
               options.data.empty() ? "$GRADUS_DATA, data or ../shared/data" : options.data,
               ": give its folder with --data, ", remedy);
  return folder;
}
