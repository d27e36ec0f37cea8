// Memory is separate from compute: one DeviceRuntime per device type owns memory, streams, events and captured graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include <gradus/core/runtime/device.h>

namespace gradus {

/// An ordered queue of work on a device. The CPU has one stream, and its work is complete when the call returns.
struct Stream {
  Device device;
  void* handle = nullptr;  ///< cudaStream_t on cuda
  friend bool operator==(const Stream& a, const Stream& b) { return a.device == b.device && a.handle == b.handle; }
};

/// A point in a stream's work that other streams and the host can wait for. By default, no wait is needed.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(const Stream& stream) = 0;
  /// Makes later work of the stream wait for the recorded point, without blocking the host.
  virtual void block(const Stream&) const {}
  virtual void synchronize() const {}
  virtual bool query() const { return true; }
  /// Milliseconds between two recorded events, both complete.
  virtual double elapsed_ms(const Event& start) const = 0;
};

/// Work recorded once between begin_capture and end_capture and replayed many times, with the memory that it uses.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  /// Enqueues the recorded work on the current stream.
  virtual void replay() = 0;
};

/// Bytes and counts of a device's allocator. `allocated` is what tensors requested (on cuda rounded up to multiples of
/// 512 bytes), `reserved` is what the allocator obtained from the system.
struct MemoryStats {
  int64_t allocated = 0, peak_allocated = 0;
  int64_t reserved = 0, peak_reserved = 0;
  int64_t allocations = 0;         ///< calls of allocate() since the start of the process
  int64_t system_allocations = 0;  ///< allocations that requested memory from the system
  int64_t retries = 0;             ///< allocations that succeeded only after cached memory was returned to the system
};

constexpr int64_t kNoMemoryLimit = std::numeric_limits<int64_t>::max();

/// The defaults describe a type of which there is one device, whose work is complete when the call returns.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual DeviceType type() const = 0;

  virtual int device_count() const { return 1; }
  virtual int current_device() const { return 0; }
  virtual void set_current_device(int) {}
  /// One line for reports: model name and memory.
  virtual std::string description(int index) const = 0;

  /// Returns at least `bytes` bytes aligned to 64, for use on `stream`. Never null for bytes > 0. Throws an
  /// OutOfMemoryError that names the request and the statistics.
  virtual void* allocate(size_t bytes, const Stream& stream) = 0;
  /// Returns memory to the cache of the stream that it was allocated on; work queued there may still use it. Never
  /// throws.
  virtual void free(void* data) noexcept = 0;
  /// Prevents memory from being reused until the work queued on the stream so far is complete.
  virtual void record_stream(void*, const Stream&) {}
  /// Returns cached, unused memory to the system.
  virtual void empty_cache() = 0;
  virtual MemoryStats memory_stats(int index) const = 0;
  virtual void reset_peak_memory_stats(int index) = 0;
  /// Limits the bytes that tensors hold at once (MemoryStats::allocated). kNoMemoryLimit removes the limit.
  virtual void set_memory_limit(int index, int64_t bytes) = 0;

  /// Allocates host memory for copies to and from this device type: page-locked for cuda, plain for the CPU.
  virtual void* allocate_pinned(size_t bytes) { return allocate(bytes, {}); }
  virtual void free_pinned(void* data) noexcept { free(data); }

  /// Copies bytes on the current stream, within this device type or between it and the host. Returns when the copy is
  /// complete unless `non_blocking`.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes,
                    bool non_blocking) = 0;

  /// This thread's current stream on the device with this index; never the legacy null stream.
  virtual Stream current_stream(int) { return {}; }
  virtual void set_current_stream(const Stream&) {}
  virtual Stream new_stream(int) { return {}; }
  virtual std::unique_ptr<Event> new_event(bool timing) = 0;
  virtual void synchronize(int) {}

  /// Records the work that this thread enqueues on its current stream instead of running it. Memory comes from a
  /// private pool that the graph owns. Throws a DeviceError if this type cannot record.
  virtual void begin_capture();
  virtual std::unique_ptr<CapturedGraph> end_capture();
  virtual bool capturing() const = 0;
};

/// The runtime of a device type. Throws a DeviceError with the remedy if the build or the driver does not support it.
DeviceRuntime& runtime(DeviceType type);
/// The runtime of a device type, or null if the build or the driver does not support it.
DeviceRuntime* find_runtime(DeviceType type);

/// Limits the bytes that tensors on this device hold at once; an allocation above the limit throws an OutOfMemoryError.
/// Use it to try what a smaller device could train. kNoMemoryLimit removes the limit; any other value below 1 is a
/// ValueError.
void set_memory_limit(Device device, int64_t bytes);

/// Returns `device` with a definite index: -1 becomes the type's current device on this thread.
inline Device settled(Device device) {
  return device.index() < 0 ? Device(device.type(), runtime(device.type()).current_device()) : device;
}

/// Makes `device` the current device of its type on this thread until the end of the scope (c10::DeviceGuard).
class DeviceGuard : NoCopy {
 public:
  explicit DeviceGuard(Device device) : runtime_(runtime(device.type())), previous_(runtime_.current_device()) {
    if (device.index() != previous_) runtime_.set_current_device(device.index());
  }
  ~DeviceGuard() { runtime_.set_current_device(previous_); }

 private:
  DeviceRuntime& runtime_;
  const int previous_;
};

/// Makes `stream` the current stream of its device on this thread until the end of the scope (c10::StreamGuard).
class StreamGuard : NoCopy {
 public:
  explicit StreamGuard(const Stream& stream)
      : runtime_(runtime(stream.device.type())), previous_(runtime_.current_stream(stream.device.index())) {
    runtime_.set_current_stream(stream);
  }
  ~StreamGuard() { runtime_.set_current_stream(previous_); }

 private:
  DeviceRuntime& runtime_;
  const Stream previous_;
};

/// Registers the function that is called whenever a recording of this thread's work (a captured graph or a recorded
/// step) begins or ends; null removes it. A cache of computed arrays uses it to empty itself, because a recorded step
/// must not use arrays that eager work computed, nor eager work those of a recording. Recorders call
/// notify_of_capture().
void on_capture(void (*notify)());
void notify_of_capture();

/// Number of recorded graphs that have run. A replay writes arrays without changing their version counters, so caches
/// of values derived from an array compare this count as well. A thread that knows what its own replays write excludes
/// them with UncountedReplays.
uint64_t replay_count();
void count_replay();
class UncountedReplays : ScopedValue<bool> {
 public:
  UncountedReplays();
};

/// Formats a number of bytes for display: "1.5 MiB".
std::string format_bytes(int64_t bytes);

std::unique_ptr<DeviceRuntime> make_cpu_runtime();

}  // namespace gradus
