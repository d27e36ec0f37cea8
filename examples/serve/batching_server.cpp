#include <gradus/examples/serve/batching_server.h>

#include <gradus/autograd/autograd.h>

using namespace gradus;

BatchingServer::BatchingServer(nn::AnyModule net, Device device, size_t most, Clock::duration patience)
    : net_(std::move(net)), device_(device), most_(most), patience_(patience), thread_([this] { serve(); }) {}

BatchingServer::~BatchingServer() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::future<Tensor> BatchingServer::ask(Tensor sample) {
  Request request{std::move(sample), Clock::now(), {}};
  std::future<Tensor> answer = request.answer.get_future();
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(request));
  }
  changed_.notify_one();
  return answer;
}

void BatchingServer::serve() {
  const NoGradGuard no_grad;  // applies to this thread
  for (std::vector<Request> batch = next_batch(); !batch.empty(); batch = next_batch()) answer(batch);
}

std::vector<BatchingServer::Request> BatchingServer::next_batch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
  if (waiting_.empty()) return {};
  changed_.wait_until(lock, waiting_.front().came + patience_, [&] { return ends_ || waiting_.size() >= most_; });
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(most_, waiting_.size()));
  std::vector<Request> batch(std::move_iterator(waiting_.begin()), std::move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return batch;
}

void BatchingServer::answer(std::vector<Request>& batch) {
  try {
    TensorList samples;
    for (const Request& request : batch) samples.push_back(request.sample);
    const Tensor answers = net_.forward(stack(samples).to(device_)).cpu();  // (N, …)
    ++batches_;
    for (size_t i = 0; i < batch.size(); ++i) batch[i].answer.set_value(answers[static_cast<int64_t>(i)]);
  } catch (...) {
    for (Request& request : batch) request.answer.set_exception(std::current_exception());
  }
}
