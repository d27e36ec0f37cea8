#include <gradus/examples/common/run_options.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include <gradus/core/parallel.h>
#include <gradus/core/random.h>
#include <gradus/core/registry.h>

using namespace gradus;

void add_run_options(CLI::App& app, RunOptions& options) {
  app.option_defaults()->always_capture_default();
  app.add_option("--device", options.device, "cpu or cuda");
  app.add_option("--backend", options.backend, "who computes: naive, openmp or cuda (default: the device's best)");
  app.add_option("--epochs", options.epochs, "times that every training image is seen")->check(CLI::Range(1, 1000000));
  app.add_option("--batch-size", options.batch_size, "images in a training step")->check(CLI::Range(1, 100000));
  app.add_option("--lr", options.lr, "learning rate of the first step")->check(CLI::Range(0.0, 1000.0));
  app.add_option("--images", options.images, "train on the first of them alone; 0 means all")
      ->check(CLI::Range(0, 1000000000));
  app.add_option("--workers", options.workers, "threads that prepare batches")->check(CLI::Range(0, 256));
  app.add_option("--threads", options.threads, "threads that compute; 0 means all cores")->check(CLI::Range(0, 1024));
  app.add_option("--seed", options.seed, "of weights, of the order of images and of augmentation");
  app.add_option("--data", options.data,
                 "folder of the data set (default: the first of $GRADUS_DATA, data, ../shared/data that has it)");
  app.add_option("--out", options.out, "folder for model.safetensors and log.jsonl");
  app.add_option("--checkpoint", options.checkpoint, "file to save the run in, after each epoch and at Ctrl-C");
  app.add_flag("--resume", options.resume, "go on from --checkpoint, if that file is there");
  app.add_flag("--profile", options.profile, "print where the time went; trace.json in --out shows it");
  app.add_flag("--quiet", options.quiet, "print nothing but errors");
}

bool parse_run_options(CLI::App& app, RunOptions& options, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) { GRADUS_FAIL(ValueError, error.what(), " (see --help)"); }
  for (int i = 0; i < argc; ++i) options.command += std::string(i ? " " : "") + argv[i];

  const Device device(options.device);
  if (options.backend.empty()) options.backend = current_backend(device.type).name();
  GRADUS_CHECK(backend(options.backend).device_type() == device.type, ValueError, "--backend ", options.backend,
               " computes on ", name(backend(options.backend).device_type()), ", but --device is ", options.device);
  GRADUS_CHECK(!options.resume || !options.checkpoint.empty(), ValueError,
               "--resume needs the file that an earlier run wrote: --checkpoint FILE");
  set_backend(options.backend);
  if (options.threads > 0) set_num_threads(options.threads);
  manual_seed(options.seed);
  return true;
}
