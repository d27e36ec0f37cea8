// A device made of host memory and threads. Each stream is a thread that does its work late, so that a test fails if a
// copy does not wait for the right event.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <gradus/core/registry.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::test {

class FakeStream {
 public:
  FakeStream() : thread_([this] { work_off(); }) {}
  ~FakeStream() {
    push({});
    thread_.join();
  }
  /// False for tests that only need the device, and many kernels on it.
  static std::atomic<bool>& is_late() {
    static std::atomic<bool> late = true;
    return late;
  }
  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }

 private:
  void work_off() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty(); });
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      if (!work) return;
      lock.unlock();
      if (is_late()) std::this_thread::sleep_for(std::chrono::microseconds(50));
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;
};

class FakeEvent final : public Event {
 public:
  void record(const Stream& stream) override {
    const std::lock_guard lock(state_->mutex);
    const int64_t turn = ++state_->recorded;
    static_cast<FakeStream*>(stream.handle)->push([state = state_, turn] {
      const std::lock_guard lock(state->mutex);
      state->done = turn;
      state->changed.notify_all();
    });
  }
  void block(const Stream& stream) const override {
    static_cast<FakeStream*>(stream.handle)->push([state = state_, turn = recorded()] { state->wait(turn); });
  }
  void synchronize() const override { state_->wait(recorded()); }
  bool query() const override {
    const std::lock_guard lock(state_->mutex);
    return state_->done >= state_->recorded;
  }
  double elapsed_ms(const Event&) const override { return 0; }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int64_t recorded = 0, done = 0;
    void wait(int64_t turn) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return done >= turn; });
    }
  };
  int64_t recorded() const {
    const std::lock_guard lock(state_->mutex);
    return state_->recorded;
  }
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Counts its replays instead of running anything.
class FakeGraph final : public CapturedGraph {
 public:
  void replay() override { ++replays; }
  static inline int replays = 0;  // of all graphs
};

/// Two devices, "cuda:0" and "cuda:1".
class FakeRuntime final : public DeviceRuntime {
 public:
  DeviceType type() const override { return DeviceType::cuda; }
  int device_count() const override { return 2; }
  int current_device() const override { return 0; }
  void set_current_device(int) override {}
  std::string description(int) const override { return "fake"; }
  void* allocate(size_t bytes, const Stream& stream) override {
    void* data = std::malloc(bytes);
    const std::lock_guard lock(mutex_);
    owners_[data] = stream;
    return data;
  }
  void free(void* data) noexcept override {
    bool recorded;
    Stream owner;
    {
      const std::lock_guard lock(mutex_);
      recorded = recorded_.erase(data) > 0;
      owner = owners_.extract(data).mapped();
    }
    if (recorded) drain();
    static_cast<FakeStream*>(owner.handle)->push([data] { std::free(data); });  // queued work may still use the memory
  }
  void record_stream(void* data, const Stream&) override {
    const std::lock_guard lock(mutex_);
    recorded_.insert(data);
  }
  /// Whether this memory stays, after it is freed, until all streams have done their work.
  bool is_recorded(void* data) {
    const std::lock_guard lock(mutex_);
    return recorded_.contains(data);
  }
  void empty_cache() override {}
  MemoryStats memory_stats(int) const override { return {}; }
  void reset_peak_memory_stats(int) override {}
  void set_memory_limit(int, int64_t) override {}
  void* allocate_pinned(size_t bytes) override { return std::malloc(bytes); }
  void free_pinned(void* data) noexcept override {
    drain();
    std::free(data);
  }
  void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes,
            bool non_blocking) override {
    if (record_copy(to, to_device, from, from_device, bytes)) return;
    const int index = to_device.is_cuda() ? to_device.index() : from_device.index();
    static_cast<FakeStream*>(current_stream(index).handle)->push([=] { std::memcpy(to, from, bytes); });
    if (!non_blocking) synchronize(index);
  }
  Stream current_stream(int index) override {
    Stream& stream = current()[index];
    if (stream.handle == nullptr) stream = new_stream(index);
    return stream;
  }
  void set_current_stream(const Stream& stream) override { current()[stream.device.index()] = stream; }
  Stream new_stream(int index) override {
    const std::lock_guard lock(mutex_);
    streams_.push_back(std::make_unique<FakeStream>());
    Stream stream;
    stream.device = Device(DeviceType::cuda, index);
    stream.handle = streams_.back().get();
    return stream;
  }
  std::unique_ptr<Event> new_event(bool) override { return std::make_unique<FakeEvent>(); }
  void synchronize(int index) override {
    FakeEvent event;
    event.record(current_stream(index));
    event.synchronize();
  }
  void begin_capture() override { is_capturing() = true; }
  std::unique_ptr<CapturedGraph> end_capture() override {
    is_capturing() = false;
    return std::make_unique<FakeGraph>();
  }
  bool capturing() const override { return is_capturing() || is_recording(DeviceType::cuda); }
  /// Whether this thread is between begin_capture() and end_capture().
  static bool& is_capturing() {
    thread_local bool capturing = false;
    return capturing;
  }

 private:
  /// Waits for all work that is queued on any stream.
  void drain() {
    std::vector<Stream> streams;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& stream : streams_) streams.push_back({Device(DeviceType::cuda, 0), stream.get()});
    }
    for (const Stream& stream : streams) {
      FakeEvent event;
      event.record(stream);
      event.synchronize();
    }
  }
  static std::map<int, Stream>& current() {
    thread_local std::map<int, Stream> streams;
    return streams;
  }
  std::mutex mutex_;
  std::vector<std::unique_ptr<FakeStream>> streams_;
  std::map<void*, Stream> owners_;
  std::set<void*> recorded_;  // memory that other streams may still use when it is freed
};

/// Makes the fake the runtime of CUDA devices. Returns false if there is a real one.
inline bool use_fake_device() {
  static const bool used = [] {
    if (find_runtime(DeviceType::cuda) != nullptr) return false;
    register_runtime(std::make_unique<FakeRuntime>());
    return true;
  }();
  return used;
}

}  // namespace gradus::test
