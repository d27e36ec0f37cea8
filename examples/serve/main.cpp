// Serves a net. Client threads ask which digit an image shows, and the server answers questions that come at about the
// same time with one batch. For several limits of the batch size, prints the answers per second and how long the
// clients waited: the median and the 99th percentile.
//
//   serve                                       a net with random weights, which takes the same time
//   serve --init runs/mnist/model.safetensors   the LeNet that scripts/mnist.sh trained
//   serve --clients 64 --batch 1 8 64 --patience 5
//
// A client asks the next question when it has an answer. Here clients call ask() directly; a network server would
// receive requests from connections and call ask() for them.
#include <gradus/gradus.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>

#include <gradus/examples/common/image_run.h>
#include <gradus/examples/common/model_file.h>
#include <gradus/examples/serve/batching_server.h>

using namespace gradus;

namespace {

struct Options : RunOptions {
  int64_t clients = 16, requests = 500;
  double patience = 2;
  std::vector<size_t> batch = {1, 2, 4, 8, 16};
};

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  CLI::App app("Serves a net to several clients, and measures how much batches save.");
  app.option_defaults()->always_capture_default();
  const CLI::Range counts(1, 1000000);
  app.add_option("--init", options.init,
                 "model file of a LeNet that the program mnist has trained (default: random weights)");
  app.add_option("--clients", options.clients, "number of clients; each is a thread")->check(CLI::Range(1, 4096));
  app.add_option("--requests", options.requests, "number of requests that each client sends for each limit of --batch")
      ->check(counts);
  app.add_option("--batch", options.batch, "limits to measure: the maximum number of requests in a batch")
      ->check(counts);
  app.add_option("--patience", options.patience, "maximum time in milliseconds that a request waits for other requests")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--device", options.device, "cpu or cuda");
  app.add_option("--threads", options.threads, "number of threads that compute; 0 means all cores");
  app.add_option("--seed", options.seed, "seed of the weights");
  if (!parse_run_options(app, options, argc, argv)) return std::nullopt;
  return options;
}

/// The net that the program mnist calls lenet. Its layers have the same names, so that its weights can be loaded.
nn::Sequential make_lenet() {
  return nn::Sequential({{"c1", nn::ConvReLU2d(nn::ConvReLU2dOptions(1, 6, 5).padding(2))},
                         {"p1", nn::MaxPool2d(2)},
                         {"c2", nn::ConvReLU2d(6, 16, 5)},
                         {"p2", nn::MaxPool2d(2)},
                         {"flat", nn::Flatten()},
                         {"f1", nn::Linear(400, 120)},
                         {"r1", nn::ReLU()},
                         {"f2", nn::Linear(120, 84)},
                         {"r2", nn::ReLU()},
                         {"f3", nn::Linear(84, 10)}});
}

/// Makes synthetic digits (1, 28, 28), normalised as in the program mnist, and their classes.
std::vector<data::Example<>> make_questions() {
  auto digits = data::datasets::SyntheticDigits(200, 0, data::datasets::MNIST::kTest)
                    .map(data::transforms::Normalize<>(0.1307, 0.3081));
  std::vector<data::Example<>> questions;
  for (size_t i = 0; i < *digits.size(); ++i) questions.push_back(digits.get(i));
  return questions;
}

/// The measurements of one client.
struct Client {
  std::vector<double> milliseconds;  // waiting time for each answer
  int64_t right = 0;
  double difference = 0;  // the greatest difference between an answer and the net's output for the same sample alone
};

class Run {
 public:
  explicit Run(const Options& options)
      : options_(options), device_(options.device), lenet_(make_lenet()), questions_(make_questions()) {
    load_model(*lenet_, options);
    lenet_->to(device_);
    lenet_->eval();
    const NoGradGuard no_grad;
    for (const auto& question : questions_)
      alone_.push_back(lenet_->forward(question.data.unsqueeze(0).to(device_)).cpu()[0]);
  }

  int operator()() {
    std::printf("%d clients, %d requests each; a request waits for others for at most %g ms\n",
                static_cast<int>(options_.clients), static_cast<int>(options_.requests), options_.patience);
    std::printf("%9s %9s %14s %9s %9s\n", "limit", "in batch", "answers / s", "p50 ms", "p99 ms");
    Client all;
    for (const size_t most : options_.batch) {
      Client limit = serve(most);
      all.right += limit.right;
      all.difference = std::max(all.difference, limit.difference);
    }
    const auto asked = static_cast<double>(options_.batch.size()) * static_cast<double>(answers());
    std::printf("right: %.1f %% of the digits; largest difference from answers one by one: %.2g\n",
                100 * static_cast<double>(all.right) / asked, all.difference);
    GRADUS_CHECK(all.difference < 1e-3, Error, "the answers of a batch differ from those of its samples one by one");
    return 0;
  }

 private:
  int64_t answers() const { return options_.clients * options_.requests; }

  /// Runs all clients with a server of this batch limit, and prints a line of the table.
  Client serve(size_t most) {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    BatchingServer server(nn::AnyModule(lenet_), device_, most,
                          std::chrono::duration_cast<BatchingServer::Clock::duration>(Milliseconds(options_.patience)));
    std::vector<Client> clients(static_cast<size_t>(options_.clients));
    const auto begin = BatchingServer::Clock::now();
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < clients.size(); ++i) threads.emplace_back([&, i] { clients[i] = ask(server, i); });
    }
    const Milliseconds took = BatchingServer::Clock::now() - begin;
    Client all;
    for (const Client& client : clients) {
      all.milliseconds.insert(all.milliseconds.end(), client.milliseconds.begin(), client.milliseconds.end());
      all.right += client.right;
      all.difference = std::max(all.difference, client.difference);
    }
    std::ranges::sort(all.milliseconds);
    const auto percentile = [&](size_t part) { return all.milliseconds[(all.milliseconds.size() - 1) * part / 100]; };
    std::printf("%9zu %9.1f %14.0f %9.2f %9.2f\n", most,
                static_cast<double>(answers()) / static_cast<double>(server.batches()),
                static_cast<double>(answers()) * 1000 / took.count(), percentile(50), percentile(99));
    return all;
  }

  Client ask(BatchingServer& server, size_t number) {
    Client client;
    const NoGradGuard no_grad;
    for (int64_t i = 0; i < options_.requests; ++i) {
      const size_t question = (number * 7 + static_cast<size_t>(i)) % questions_.size();
      const auto begin = BatchingServer::Clock::now();
      const Tensor answer = server.ask(questions_[question].data).get();  // (10)
      const std::chrono::duration<double, std::milli> waited = BatchingServer::Clock::now() - begin;
      client.milliseconds.push_back(waited.count());
      client.right += answer.argmax(0).item<int64_t>() == questions_[question].target.item<int64_t>() ? 1 : 0;
      client.difference = std::max(client.difference, (answer - alone_[question]).abs().max().item<double>());
    }
    return client;
  }

  const Options& options_;
  const Device device_;
  nn::Sequential lenet_;
  const std::vector<data::Example<>> questions_;
  std::vector<Tensor> alone_;  // the net's output for each question alone
};

}  // namespace

int main(int argc, char** argv) {
  return run_example("serve", [&] {
    auto options = parse_options(argc, argv);
    return options ? on_ranks(*options, [&] { return Run(*options)(); }) : 0;
  });
}
