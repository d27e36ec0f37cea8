// A collective over NCCL in progress, represented by two events on the stream that it runs on.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <gradus/distributed/comm/nccl/nccl_group.h>

namespace gradus::dist {

class NcclGroup::NcclWork final : public Work {
 public:
  /// `captured`: the work runs when a graph is replayed, and the graph owns what it needs.
  NcclWork(const Collective& call, Milliseconds timeout, DeviceRuntime& runtime, Device device, bool captured)
      : call_(call.descriptor), peer_(call.peer), deadline_(timeout), runtime_(runtime), device_(device),
        captured_(captured), ready_(runtime.new_event(false)), done_(runtime.new_event(false)) {}

  uint64_t sequence() const override { return call_.sequence; }
  bool is_completed() const override {
    if (captured_) return true;
    const std::lock_guard lock(mutex_);
    return !failure_.ok() || (queued_ && done_->query());
  }
  CommStatus status() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  /// Makes the current stream wait. The host does not wait.
  void wait() const override {
    if (const CommStatus failure = status(); !failure.ok()) throw CollectiveError(failure);
    const Stream waiting = runtime_.current_stream(device_.index());
    block(waiting);
    release(waiting);
  }
  /// Makes the host wait, then the current stream.
  bool wait(Milliseconds timeout) const override {
    for (const Deadline end(timeout); !is_completed(); std::this_thread::sleep_for(std::chrono::microseconds(20)))
      if (end.passed()) return false;
    wait();
    return true;
  }

  const Descriptor& call() const { return call_; }
  bool is_message() const { return call_.kind == CollectiveKind::send; }
  /// The other rank of a message.
  int peer() const { return peer_; }
  const Deadline& deadline() const { return deadline_; }
  /// True once a warning about missing ranks is due.
  bool is_long() const { return patience_.passed(); }
  /// True once the device has reached this work.
  bool is_reached() const {
    const std::lock_guard lock(mutex_);
    return queued_ && ready_->query();
  }
  /// Marks the work as failed, unless it is done.
  void fail(const CommStatus& failure) {
    const std::lock_guard lock(mutex_);
    if (!queued_ || !done_->query()) failure_ = failure;
  }
  /// Makes `stream`, on which the work runs, wait for what is queued on `before`.
  void begin(const Stream& before, const Stream& stream) {
    before_ = before;
    stream_ = stream;
    ready_->record(before);
    if (!(stream == before)) ready_->block(stream);
  }
  /// Records the end of the work on `stream`.
  void end(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    done_->record(stream);
    queued_ = !captured_;  // events of a capture cannot be queried
  }
  /// Makes `stream` wait for this work.
  void block(const Stream& stream) const { done_->block(stream); }
  /// Keeps arrays alive until a caller has waited for this work.
  void keep(std::vector<Array> arrays) {
    const std::lock_guard lock(mutex_);
    kept_ = std::move(arrays);
  }

 private:
  /// Releases the arrays that were kept. The stream that they belong to may reuse their memory, since it now waits for
  /// this work. A captured work keeps them for its replays.
  void release(const Stream& waiting) const {
    const std::lock_guard lock(mutex_);
    if (captured_) return;
    if (!(waiting == before_))
      for (const Array& x : kept_) x.storage().record_stream(stream_);
    kept_.clear();
  }

  const Descriptor call_;
  const int peer_;
  const Deadline deadline_, patience_{kPatience};
  DeviceRuntime& runtime_;
  const Device device_;
  const bool captured_;
  const std::unique_ptr<Event> ready_, done_;
  mutable std::mutex mutex_;
  bool queued_ = false;
  CommStatus failure_;
  Stream before_, stream_;
  mutable std::vector<Array> kept_;
};

}  // namespace gradus::dist
