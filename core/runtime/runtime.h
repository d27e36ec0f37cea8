// Memory is not compute: one DeviceRuntime per device type owns memory, streams, events and captured graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include <gradus/core/runtime/device.h>

namespace gradus {

/// An ordered queue of work on a device. The CPU has one, whose work is done when the call returns.
struct Stream {
  Device device;
  void* handle = nullptr;  ///< cudaStream_t on cuda
  friend bool operator==(const Stream& a, const Stream& b) { return a.device == b.device && a.handle == b.handle; }
};

/// A point in a stream's work that others can wait for.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(const Stream& stream) = 0;
  /// Makes later work of `stream` wait for the recorded point, without blocking the host.
  virtual void block(const Stream& stream) const = 0;
  virtual void synchronize() const = 0;
  virtual bool query() const = 0;
  /// Milliseconds between two recorded events, both complete.
  virtual double elapsed_ms(const Event& start) const = 0;
};

/// Work recorded once by begin_capture / end_capture and replayed many times, with the memory it uses.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  /// Enqueues the recorded work on the current stream.
  virtual void replay() = 0;
};

/// Bytes and counts of a device's allocator. `allocated` is what tensors asked for (on cuda in steps of 512 bytes),
/// `reserved` what the system gave.
struct MemoryStats {
  int64_t allocated = 0, peak_allocated = 0;
  int64_t reserved = 0, peak_reserved = 0;
  int64_t allocations = 0;         ///< calls since start
  int64_t system_allocations = 0;  ///< of these, how many went to the system
  int64_t retries = 0;             ///< of these, how many the system could serve only after the cache was given back
};

constexpr int64_t kNoMemoryLimit = std::numeric_limits<int64_t>::max();

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual DeviceType type() const = 0;

  virtual int device_count() const = 0;
  virtual int current_device() const = 0;
  virtual void set_current_device(int index) = 0;
  /// One line for reports: model name and memory.
  virtual std::string description(int index) const = 0;

  /// At least `bytes` bytes aligned to 64, for use on `stream`. Never null for bytes > 0; OutOfMemoryError names the
  /// request and the statistics.
  virtual void* allocate(size_t bytes, const Stream& stream) = 0;
  /// Returns memory to the cache of the stream it was allocated on; work queued there may still use it. Never throws.
  virtual void free(void* data) noexcept = 0;
  /// Keeps `data` from being reused until the work queued on `stream` so far is done.
  virtual void record_stream(void* data, const Stream& stream) = 0;
  /// Gives cached, unused memory back to the system.
  virtual void empty_cache() = 0;
  virtual MemoryStats memory_stats(int index) const = 0;
  virtual void reset_peak_memory_stats(int index) = 0;
  /// What tensors may hold at once, MemoryStats::allocated; kNoMemoryLimit: what the system gives.
  virtual void set_memory_limit(int index, int64_t bytes) = 0;

  /// Page-locked host memory where copies to the device need it; plain memory on the CPU.
  virtual void* allocate_pinned(size_t bytes) = 0;
  virtual void free_pinned(void* data) noexcept = 0;

  /// Copies bytes between memory of this device type and the host or itself, on the current stream. Returns when the
  /// copy is done unless `non_blocking`.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes,
                    bool non_blocking) = 0;

  /// This thread's stream on device `index`; never the legacy null stream.
  virtual Stream current_stream(int index) = 0;
  virtual void set_current_stream(const Stream& stream) = 0;
  virtual Stream new_stream(int index) = 0;
  virtual std::unique_ptr<Event> new_event(bool timing) = 0;
  virtual void synchronize(int index) = 0;

  /// Records what this thread enqueues on its current stream instead of running it; memory comes from a private pool
  /// that the graph owns.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<CapturedGraph> end_capture() = 0;
  virtual bool capturing() const = 0;
};

/// The runtime of a device type. Without a build or driver for it: DeviceError with the remedy.
DeviceRuntime& runtime(DeviceType type);
/// Same, null when there is none.
DeviceRuntime* find_runtime(DeviceType type);

/// Tensors on this device may hold so many bytes at once, and what would take more is an OutOfMemoryError: to try what
/// a smaller device could train. kNoMemoryLimit ends it; another number below 1 is a ValueError.
void set_memory_limit(Device device, int64_t bytes);

/// `device` with its index: -1 becomes the type's current device on this thread.
inline Device settled(Device device) {
  return device.index() < 0 ? Device(device.type(), runtime(device.type()).current_device()) : device;
}

/// Makes `device` the current one of its type on this thread until the end of the scope (c10::DeviceGuard).
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  DeviceRuntime& runtime_;
  const int previous_;
};

/// Makes `stream` the current one of its device on this thread until the end of the scope (c10::StreamGuard).
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  DeviceRuntime& runtime_;
  const Stream previous_;
};

/// This thread calls `notify` (null: nobody) whenever a recording of its work begins or ends: for who keeps results
/// that eager work and a recorded step must not share. Those who record call notify_of_capture().
void on_capture(void (*notify)());
void notify_of_capture();

/// How many recorded graphs have run. They write arrays without counting in their versions: for who keeps something
/// that eager work has made of an array. A thread may leave out its own, where it knows what they write.
uint64_t replay_count();
void count_replay();
class UncountedReplays {
 public:
  UncountedReplays();
  ~UncountedReplays();
  UncountedReplays(const UncountedReplays&) = delete;
  UncountedReplays& operator=(const UncountedReplays&) = delete;
};

/// A number of bytes for people: "1.5 MiB".
std::string format_bytes(int64_t bytes);

}  // namespace gradus
