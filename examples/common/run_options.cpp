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
                 "folder of the data set (default: the first of $GRADUS_DATA, data, ../shared/data that has it)");
  app.add_option("--images", options.images, "train on the first of them alone; 0 means all")
      ->check(CLI::Range(0, 1000000000));
  app.add_option("--test-images", options.test_images, "test with the first of them alone; 0 means all")
      ->check(CLI::Range(0, 1000000000));
  app.add_option("--workers", options.workers, "threads that prepare batches")->check(CLI::Range(0, 256));
  app.add_flag("--device-data", options.device_data,
               "keep the training images on the device, and gather, augment and normalise them there");

  group("Training");
  app.add_option("--epochs", options.epochs, "times that every training image is seen")->check(CLI::Range(1, 1000000));
  app.add_option("--batch-size", options.batch_size, "images in a training step, of all ranks together")
      ->check(CLI::Range(1, 100000));
  app.add_option("--lr", options.lr, "learning rate of the first step")->check(CLI::Range(0.0, 1000.0));
  app.add_option("--seed", options.seed, "of weights, of the order of images and of augmentation");
  app.add_option("--amp", options.amp, "train in mixed precision: products in this type, the rest in float32")
      ->check(CLI::IsMember({"off", "fp16", "bf16"}));
  app.add_flag("--graph", options.graph, "capture the training step once and replay it (cuda)");

  group("Device");
  app.add_option("--device", options.device, "cpu or cuda");
  app.add_option("--backend", options.backend, "who computes: naive, openmp or cuda (default: the device's best)");
  app.add_option("--threads", options.threads, "threads that compute; 0 means all cores, which ranks share")
      ->check(CLI::Range(0, 1024));
  app.add_flag("--cudnn-small", options.cudnn_small,
               "cuDNN computes the convolutions of few channels too, which our kernels do otherwise (cudnn)");

  group("Files");
  app.add_option("--out", options.out, "folder for model.safetensors and log.jsonl");
  app.add_option("--init", options.init, "model file whose weights and settings of the net to begin with");
  app.add_option("--save-every", options.save_every, "keep the model of every so many epochs, as model_<epoch>")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--checkpoint", options.checkpoint, "file to save the run in, after each epoch and at Ctrl-C");
  app.add_option("--checkpoint-every", options.checkpoint_every, "save it after so many steps too")
      ->check(CLI::Range(0, 1000000000));
  app.add_flag("--resume", options.resume, "go on from --checkpoint, if that file is there");
  app.add_option("--export", options.onnx, "file to write the trained net to, as an ONNX model for other runtimes");

  group("Instead of training");
  app.add_flag("--evaluate", options.evaluate,
               "test the net of --init (default: model.safetensors in --out), and train nothing");
  app.add_option("--predict", options.predict,
                 "PNG or JPEG files to classify with it; predictions.html in --out shows what the net saw");
  app.add_flag("--explain", options.explain,
               "say what a training step does, kernel by kernel, and what would save time and memory; nothing is saved "
               "but explain.html in --out");
  app.add_option("--lab", options.lab,
                 "page to write of a training step: the net, and each call with its numbers, memory and time");
  app.add_option("--verify", options.verify,
                 "make so many steps on the ranks and in one process, and say where they differ; nothing is saved")
      ->check(CLI::Range(0, 1000000));

  group("What is shown");
  app.add_flag("--quiet", options.quiet, "print nothing but errors");
  app.add_option("--tensorboard", options.tensorboard, "folder for TensorBoard's curves, histograms and pictures");
  app.add_flag("--profile", options.profile, "print where the time went; trace.json in --out shows it");

  group("Several devices, processes or machines");
  app.add_option("--data-parallel", options.data_parallel,
                 "one process shares each batch out among so many GPUs, or threads on the CPU")
      ->check(CLI::Range(1, 1024));
  app.add_option("--spawn", options.spawn, "train with so many processes (or start them with gradus-run)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--comm", options.comm, "how they send gradients; auto: nccl with a GPU for each, else shm or tcp")
      ->check(CLI::IsMember({"auto", "nccl", "tcp", "shm", "mpi"}));
  app.add_option("--compress", options.compress, "send gradients between ranks in this type")
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
               "--predict is for a single process, and for nothing else: leave out --evaluate and --spawn");
  GRADUS_CHECK(options.data_parallel == 1 || alone, ValueError,
               "--data-parallel is for a single process: leave it out where there are several");
  GRADUS_CHECK((!options.explain && options.lab.empty()) || (options.data_parallel == 1 && alone), ValueError,
               options.explain ? "--explain" : "--lab",
               " watches one thread of one process: leave out --data-parallel and --spawn");
  GRADUS_CHECK(options.data_parallel == 1 || !options.graph, ValueError,
               "--data-parallel computes in threads, which --graph cannot capture: leave out one of them");
  GRADUS_CHECK(options.spawn == 1 || dist::job_environment().world_size == 1, ValueError,
               "this is one of the ranks of a job already: leave out --spawn");
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
