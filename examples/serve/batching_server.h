// Answers requests of several threads with one net: those that come at about the same time become one batch, because a
// batch costs less than its samples one by one.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/layers/module/containers.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

class BatchingServer {
 public:
  using Clock = std::chrono::steady_clock;

  /// A batch is begun once `most` requests wait, or the first of them has waited for `patience`. The net, in evaluation
  /// mode and on `device`, is called by a thread of the server alone.
  BatchingServer(gradus::nn::AnyModule net, gradus::Device device, size_t most, Clock::duration patience);
  /// Answers what still waits.
  ~BatchingServer();

  /// A sample (…) without the dimension of the batch, on the CPU; all requests are of one shape. The future holds the
  /// net's answer to it, on the CPU, or what the net threw. From any thread.
  std::future<gradus::Tensor> ask(gradus::Tensor sample);
  /// How many batches have been computed.
  int64_t batches() const { return batches_; }

 private:
  struct Request {
    gradus::Tensor sample;
    Clock::time_point came;
    std::promise<gradus::Tensor> answer;
  };

  void serve();
  /// Those of the next batch, in the order in which they came; none once the server ends.
  std::vector<Request> next_batch();
  void answer(std::vector<Request>& batch);

  const gradus::nn::AnyModule net_;
  const gradus::Device device_;
  const size_t most_;
  const Clock::duration patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> waiting_;
  bool ends_ = false;
  std::atomic<int64_t> batches_ = 0;
  std::thread thread_;  // the last member: it uses the others
};
