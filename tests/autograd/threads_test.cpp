// Threads with independent graphs, and with graphs that share parameters that no thread writes.
#include <thread>

#include <gradus/autograd/autograd.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

constexpr int kThreads = 4;

void in_threads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

Tensor loss_of(const Tensor& x, const Tensor& w) { return (linear(x, w).tanh() * 2).log_softmax(1).mean(); }

}  // namespace

TEST_CASE("threads run separate graphs") {
  std::vector<TensorList> results(kThreads);
  in_threads([&](int i) {
    const Tensor x = linspace(-1, 1, 60).reshape({4, 15});
    const Tensor w(linspace(1, -1, 90).reshape({6, 15}).array(), true);
    for (int step = 0; step < 20; ++step) {
      loss_of(x, w).backward();
      const NoGradGuard no_grad;
      w.sub_(w.grad());
      w.zero_grad();
    }
    results[static_cast<size_t>(i)] = {w.detach()};
  });
  for (const TensorList& result : results) CHECK(result[0].equal(results[0][0]));
}

TEST_CASE("threads share parameters that none of them writes") {
  const Tensor w(linspace(1, -1, 90).reshape({6, 15}).array(), true);
  const Tensor base(linspace(0, 1, 60).array(), true);
  std::vector<TensorList> results(kThreads);
  in_threads([&](int i) {
    for (int step = 0; step < 20; ++step)
      results[static_cast<size_t>(i)] = autograd::grad({loss_of(base.view({4, 15}), w)}, {w, base});
  });
  for (const TensorList& result : results) {
    CHECK(result[0].equal(results[0][0]));
    CHECK(result[1].equal(results[0][1]));
  }
  CHECK(!w.grad().defined());
}

TEST_CASE("threads read one view of a result after its base was written") {
  const Tensor x(linspace(0, 1, 8).array(), true);
  const Tensor base = x * 1;
  const Tensor view = base.slice(0, 2, 6);
  base.mul_(3);  // the view's history is renewed on first use: by all threads at once
  std::vector<Tensor> results(kThreads);
  in_threads([&](int i) { results[static_cast<size_t>(i)] = autograd::grad({(view * view).sum()}, {view})[0]; });
  for (const Tensor& result : results) CHECK(result.equal(results[0]));
}

TEST_CASE("grad mode and anomaly mode are settings of a thread") {
  const Tensor x(ones({2}).array(), true);
  const NoGradGuard no_grad;
  const AnomalyGuard anomaly;
  bool recorded = false, anomalous = true;
  std::thread([&] {
    recorded = (x * 2).requires_grad();
    anomalous = AnomalyGuard::is_enabled();
  }).join();
  CHECK(recorded);
  CHECK(!anomalous);
  CHECK(!(x * 2).requires_grad());
}
