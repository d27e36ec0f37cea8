// Trains a small GPT: a transformer that predicts the next character of a text. One process or several processes
// together train it. At the end it writes some text.
//
//   language                                  random sentences that the program makes; takes half a minute
//   language --text book.txt                  any file; takes a few seconds and learns how frequent letters are
//   language --text book.txt --width 128 --blocks 3 --steps 1500 --temperature 0.7 --top-k 10 --prompt "It was "
//                                             takes a minute on two cores and learns words: about 2.2 bits/character
//   language --text book.txt --context 128 --width 128 --blocks 4 --steps 2000
//   language --spawn 2 --parallel zero3       or under gradus-run; ddp, zero1, zero2, tensor: docs/sharding.md
//   language --checkpoint run --resume        saves at Ctrl-C, and continues there next time
//
// Writes log.jsonl to --out, with a line for each test: step; train_loss (mean since the last test) and test_loss, both
// in nats per character; bits_per_character of the test text; entropy, the lowest possible loss, in nats (null:
// unknown); lr; characters_per_second of training; peak_allocated_bytes (maximum over the ranks); ranks, comm and
// parallel.
#include <gradus/gradus.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include <gradus/core/platform/file.h>
#include <gradus/examples/common/image_run.h>
#include <gradus/examples/language/model.h>
#include <gradus/examples/language/sharded_trainer.h>
#include <gradus/examples/language/text.h>

using namespace gradus;

namespace {

struct Options : RunOptions {
  std::string text, parallel = "none", prompt;
  int64_t steps = 1000, test_every = 100;
  LanguageModelOptions model;
  Sampling sampling;
};

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  options.batch_size = 16;
  options.lr = 3e-3;
  options.out = "runs/language";
  CLI::App app("Trains a small transformer to predict the next character of a text.");
  app.option_defaults()->always_capture_default();
  app.add_option("--text", options.text,
                 "file with the training text (default: random sentences that the program makes)");
  app.add_option("--parallel", options.parallel,
                 "what is divided among ranks. ddp: batches; zero1: also the optimizer's state; zero2: also gradients; "
                 "zero3: also parameters; tensor: layers")
      ->check(CLI::IsMember({"none", "ddp", "zero1", "zero2", "zero3", "tensor"}));
  const CLI::Range counts(1, 1000000);
  app.add_option("--steps", options.steps, "number of training steps; during the first tenth the learning rate rises")
      ->check(counts);
  app.add_option("--batch-size", options.batch_size, "number of windows of a step, over all ranks")->check(counts);
  app.add_option("--context", options.model.context, "number of characters of a window")->check(counts);
  app.add_option("--width", options.model.width, "width of the model")->check(counts);
  app.add_option("--heads", options.model.heads, "number of heads of attention")->check(counts);
  app.add_option("--blocks", options.model.blocks, "number of transformer blocks")->check(counts);
  app.add_option("--lr", options.lr, "highest learning rate")->check(CLI::Range(0.0, 10.0));
  app.add_option("--test-every", options.test_every, "number of steps between tests")->check(counts);
  app.add_option("--generate", options.sampling.count, "number of characters to generate after training")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--prompt", options.prompt,
                 "text that the generated characters continue (default: the first character of the text)");
  app.add_option("--temperature", options.sampling.temperature,
                 "values below 1 prefer likely characters; 0 always takes the likeliest character")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-k", options.sampling.top_k, "number of likeliest characters from which to draw; 0 means all")
      ->check(CLI::Range(0, 256));
  app.add_option("--seed", options.seed, "seed of the weights, the windows and the generated characters");
  app.add_option("--out", options.out, "folder for log.jsonl");
  app.add_option("--checkpoint", options.checkpoint,
                 "file (zero2, zero3 and tensor: folder) in which the run is saved at tests and at Ctrl-C");
  app.add_flag("--resume", options.resume, "continue the run that --checkpoint has saved, if it exists");
  app.add_option("--device", options.device, "cpu or cuda");
  app.add_option("--threads", options.threads,
                 "number of threads that compute; 0 means all cores, divided among the ranks of a machine");
  app.add_flag("--quiet", options.quiet, "print only errors");
  app.add_option("--spawn", options.spawn,
                 "number of processes that train together (alternatively, start them with gradus-run)");
  app.add_option("--comm", options.comm, "how ranks communicate: auto, nccl, tcp, shm or mpi");
  if (!parse_run_options(app, options, argc, argv)) return std::nullopt;
  options.sampling.seed = options.seed;
  return options;
}

class Run {
 public:
  explicit Run(const Options& options)
      : options_(options), text_(learned_text(), options.model.context),
        model_(of_text(options.model), options.parallel == "tensor" ? ranks_.gradients : nullptr),
        prompt_(text_.encode(options.prompt)) {
    if (prompt_.empty()) prompt_.push_back(text_.tokens()[0]);
    GRADUS_CHECK(options.batch_size % parts_ == 0, ValueError, "--batch-size ", options.batch_size,
                 " windows cannot be shared equally by ", parts_, " ranks");
    model_->to(device_);
    trainer_.emplace(*model_, options.parallel, ranks_.gradients, [&](std::vector<Tensor> parameters) {
      return std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamWOptions(options.lr));
    });
    optim::Optimizer& optimizer = trainer_->optimizer();
    const int64_t warmup = std::max<int64_t>(options.steps / 10, 1), others = std::max(options.steps - warmup, warmup);
    std::vector<std::shared_ptr<optim::LRScheduler>> parts;
    parts.push_back(std::make_shared<optim::LinearLR>(optimizer, 0.05, 1, warmup));
    parts.push_back(std::make_shared<optim::CosineAnnealingLR>(optimizer, others));
    schedule_.emplace(optimizer, parts, std::vector{warmup});
    checkpoint_.value("step", step_).setting("seed", options.seed).setting("batch size", options.batch_size);
    checkpoint_.setting("steps", options.steps).setting("lr", options.lr);
  }

  /// Runs the program and returns its exit code.
  int operator()() {
    const bool resumed = options_.resume && trainer_->load(options_.checkpoint, checkpoint_);
    if (resumed) schedule_->set_step_count(step_);
    if (options_.prints()) {
      std::printf("%d characters; %d parameters on each rank; %s, parallel: %s\n",
                  static_cast<int>(text_.tokens().size()), static_cast<int>(model_->num_parameters()),
                  options_.device.c_str(), options_.parallel.c_str());
      if (entropy_) std::printf("no model's loss is below %.3f, %.2f bits a character\n", *entropy_, bits(*entropy_));
      if (resumed) std::printf("going on from %s, after step %d\n", options_.checkpoint.c_str(), step_);
    }
    if (ranks_.is_first()) {
      std::filesystem::create_directories(options_.out);
      log_.open(options_.out + "/log.jsonl", resumed ? std::ios::app : std::ios::trunc);
    }
    const training::Interrupt interrupt;
    begin_part();
    while (step_ < options_.steps) {
      train_step();
      if (step_ % options_.test_every == 0 || step_ == options_.steps) finish_part();
      if (step_ % ranks_.steps_between_questions() != 0) continue;
      if (const double signal = ranks_.max({static_cast<double>(interrupt.signal())})[0]; signal != 0) {
        save();
        if (options_.prints()) std::printf("\nstopped after step %d\n", step_);
        return 128 + static_cast<int>(signal);
      }
    }
    const std::vector<int64_t> all = generate(model_, prompt_, options_.sampling);
    if (options_.prints()) std::printf("\n%s\n", text_.decode(all).c_str());
    return 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double bits(double nats) { return nats / std::log(2.0); }

  std::string learned_text() {
    if (!options_.text.empty()) {
      const io::Bytes bytes = io::read_file(options_.text);
      return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    const Sentences sentences = make_sentences(5000, 0);
    entropy_ = sentences.entropy;
    return sentences.text;
  }

  LanguageModelOptions of_text(LanguageModelOptions options) {
    options.vocabulary = text_.vocabulary();
    return options;
  }

  void save() {
    if (!options_.checkpoint.empty()) trainer_->save(options_.checkpoint, checkpoint_);
  }

  /// Begins a part of the run. A part is the steps between two tests.
  void begin_part() {
    losses_ = zeros({}, dtype(kDouble).device(device_));
    first_step_ = step_;
    runtime(device_.type()).reset_peak_memory_stats(device_.index());
    begin_ = Clock::now();
  }

  void finish_part() {
    const double steps = step_ - first_step_;
    const double train_loss = ranks_.sum({losses_.item<double>()})[0] / (ranks_.size * steps);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const auto peak = static_cast<double>(runtime(device_.type()).memory_stats(device_.index()).peak_allocated);
    const double test_loss = [&] {
      const NoGradGuard no_grad;
      return loss_of(text_.test(64)).item<double>();  // all ranks call it
    }();
    const nlohmann::ordered_json line = {
        {"step", step_},
        {"train_loss", train_loss},
        {"test_loss", test_loss},
        {"bits_per_character", bits(test_loss)},
        {"entropy", entropy_ ? nlohmann::ordered_json(*entropy_) : nullptr},
        {"lr", schedule_->get_last_lr()[0]},
        {"characters_per_second", steps * static_cast<double>(options_.batch_size * options_.model.context) / seconds},
        {"peak_allocated_bytes", static_cast<int64_t>(ranks_.max({peak})[0])},
        {"ranks", ranks_.size},
        {"comm", ranks_.comm()},
        {"parallel", options_.parallel}};
    if (ranks_.is_first()) {
      log_ << line << std::endl;
      GRADUS_CHECK(log_.good(), IoError, "cannot write '", options_.out, "/log.jsonl'");
    }
    if (options_.prints())
      std::printf("step %5d  train loss %.3f  test loss %.3f, %.2f bits a character  %.1f s\n", step_, train_loss,
                  test_loss, bits(test_loss), seconds);
    save();
    begin_part();
  }

  Tensor loss_of(const Text::Batch& batch) {
    return model_->loss(model_(batch.tokens.to(device_)), batch.targets.to(device_));
  }

  /// Makes a training step. In a data-parallel run, each rank has a part of the step's windows.
  void train_step() {
    const int64_t share = options_.batch_size / parts_, first = parts_ == 1 ? 0 : ranks_.rank * share;
    const Tensor loss = loss_of(text_.training(options_.seed, step_++, first, first + share));
    trainer_->step(loss);
    schedule_->step();
    losses_ += loss.detach();
  }

  const Options& options_;
  const Ranks& ranks_ = options_.ranks;
  const Device device_ = Device(options_.device);
  const int parts_ = options_.parallel == "tensor" ? 1 : ranks_.size;  // number of ranks that divide a batch
  std::optional<double> entropy_;                                      // of random sentences
  const Text text_;
  const LanguageModel model_;
  std::vector<int64_t> prompt_;
  std::optional<ShardedTrainer> trainer_;
  std::optional<optim::SequentialLR> schedule_;
  training::Checkpoint checkpoint_;
  std::ofstream log_;
  int step_ = 0, first_step_ = 0;  // number of steps so far, and at the begin of the part
  Tensor losses_;                  // sum of the losses of the part
  Clock::time_point begin_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_example("language", [&] {
    auto options = parse_options(argc, argv);
    return options ? on_ranks(*options, [&] { return Run(*options)(); }) : 0;
  });
}
