// BatchingServer answers the requests of several threads with one net. It combines requests that come at about the same
// time to a batch, because a batch takes less time than its samples separately.
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

  /// The server starts a batch when `most` requests are waiting, or when the oldest request has waited for `patience`.
  /// Only the server's thread calls the net, in evaluation mode and on `device`.
  BatchingServer(gradus::nn::AnyModule net, gradus::Device device, size_t most, Clock::duration patience);
  /// Answers the requests that are still waiting.
  ~BatchingServer();

  /// Takes a sample (…) without a batch dimension, on the CPU; all samples must have the same shape. Returns a future
  /// with the net's output for it, on the CPU, or with the exception that the net threw. May be called from any thread.
  std::future<gradus::Tensor> ask(gradus::Tensor sample);
  /// Number of batches that the net has computed.
  int64_t batches() const { return batches_; }

 private:
  struct Request {
    gradus::Tensor sample;
    Clock::time_point came;
    std::promise<gradus::Tensor> answer;
  };

  void serve();
  /// Waits for the requests of the next batch and returns them in the order of their arrival. Returns none when the
  /// server ends.
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
  std::thread thread_;  // the last member, because the thread uses the others
};
