#include <gradus/examples/mnist/options.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include <gradus/core/cuda.h>
#include <gradus/core/registry.h>

namespace {

// Settles what depends on other options and refuses what contradicts itself.
void complete(Options& options) {
  const gradus::Device device(options.device);
  if (device.is_cuda())
    GRADUS_CHECK(device.index < gradus::cuda::device_count(), DeviceError, "--device ", options.device,
                 ": this machine has ", gradus::cuda::device_count(),
                 " CUDA devices that this build can use; run with --device cpu");
  if (options.backend.empty()) options.backend = gradus::current_backend(device.type).name();
  const gradus::Backend& backend = gradus::backend(options.backend);
  GRADUS_CHECK(backend.device_type() == device.type, ValueError, "--backend ", options.backend, " computes on ",
               gradus::name(backend.device_type()), ", but --device is ", options.device, ": add --device ",
               gradus::name(backend.device_type()));
  GRADUS_CHECK(!options.graph || device.is_cuda(), ValueError,
               "--graph captures CUDA work: it needs --device cuda, not ", options.device);
  GRADUS_CHECK(!options.synthetic || options.data.empty(), ValueError,
               "--synthetic draws its own digits: leave out --data");
  GRADUS_CHECK(!options.checkpoint.empty() || (!options.resume && options.checkpoint_every == 0), ValueError,
               options.resume ? "--resume" : "--checkpoint-every", " needs the name of a file: add --checkpoint FILE");
  GRADUS_CHECK(options.synthetic || options.images == 0, ValueError,
               "--images counts synthetic digits: add --synthetic");
  if (options.lr == 0) options.lr = options.optimizer == "adam" ? 2e-3 : 5e-2;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small net on MNIST and tests it after every epoch.");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", options.model, "the net")->check(CLI::IsMember({"pure_linear", "simple_conv", "lenet"}));
  app.add_option("--device", options.device, "cpu or cuda");
  app.add_option("--backend", options.backend, "who computes: naive, openmp or cuda (default: the device's best)");
  app.add_option("--epochs", options.epochs, "times that every training image is seen")->check(CLI::Range(1, 1000000));
  app.add_option("--batch-size", options.batch_size, "images in a training step")->check(CLI::Range(1, 60000));
  app.add_option("--lr", options.lr, "learning rate; 0 means 2e-3 for adam, 5e-2 for sgd")
      ->check(CLI::Range(0.0, 1000.0));
  app.add_option("--optimizer", options.optimizer, "sgd has momentum 0.9")->check(CLI::IsMember({"sgd", "adam"}));
  app.add_option("--schedule", options.schedule, "cosine lets the learning rate fall to 0")
      ->check(CLI::IsMember({"none", "cosine"}));
  app.add_option("--augment", options.augment, "affine turns, moves, scales and shears each training image at random")
      ->check(CLI::IsMember({"none", "affine"}));
  app.add_option("--workers", options.workers, "threads that prepare batches")->check(CLI::Range(0, 256));
  app.add_option("--threads", options.threads, "threads that compute; 0 means all cores")->check(CLI::Range(0, 1024));
  app.add_option("--seed", options.seed, "of weights and of the order of images");
  app.add_option("--data", options.data,
                 "folder of the MNIST files (default: the first of $GRADUS_DATA, data, ../shared/data that has them)");
  app.add_flag("--synthetic", options.synthetic, "train on digits that the library draws itself");
  app.add_option("--images", options.images, "how many of them; 0 means 30000")->check(CLI::Range(0, 1000000));
  app.add_option("--out", options.out, "folder for model.safetensors and log.jsonl");
  app.add_option("--checkpoint", options.checkpoint, "file to go on from: written after each epoch and on Ctrl-C");
  app.add_option("--checkpoint-every", options.checkpoint_every, "write it after so many steps too")
      ->check(CLI::Range(0, 1000000000));
  app.add_flag("--resume", options.resume, "go on from --checkpoint, if that file is there");
  app.add_option("--tensorboard", options.tensorboard, "folder for TensorBoard's curves, histograms and pictures");
  app.add_flag("--profile", options.profile, "print where the time went; trace.json in --out shows it");
  app.add_flag("--graph", options.graph, "capture the training step once and replay it (cuda)");
  app.add_flag("--quiet", options.quiet, "print nothing but errors");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) { GRADUS_FAIL(ValueError, error.what(), " (see --help)"); }
  complete(options);
  for (int i = 0; i < argc; ++i) options.command += std::string(i ? " " : "") + argv[i];
  return options;
}
