// CUDA as users meet it: devices, streams, events, memory statistics and captured graphs. Speaks to the DeviceRuntime
// of cuda and to nothing below it, so that a build without CUDA has this too: there is_available() is false and the
// rest throws a DeviceError with the remedy.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <gradus/core/array/array.h>
#include <gradus/core/runtime/random.h>

namespace gradus::cuda {

/// True when this build has CUDA and this machine a driver and a device (torch.cuda.is_available).
bool is_available();
/// Number of CUDA devices; 0 where there is no CUDA.
int device_count();
/// The device that "cuda" without an index means on this thread.
int current_device();
void set_device(int index);

/// Waits for all work queued on the device (-1: the current one).
void synchronize(int index = -1);

/// What tensors hold, what the caching allocator holds, their peaks and the number of allocations.
MemoryStats memory_stats(int index = -1);
int64_t memory_allocated(int index = -1);
int64_t max_memory_allocated(int index = -1);
int64_t memory_reserved(int index = -1);
/// Makes the peaks start again from what is held now.
void reset_peak_memory_stats(int index = -1);
/// A short table of the same numbers for people (torch.cuda.memory_summary).
std::string memory_summary(int index = -1);
/// Gives cached memory that no tensor holds back to the driver.
void empty_cache();

/// The stream that this thread's operators run on. Threads share one stream per device until they choose another.
Stream current_stream(int index = -1);
/// A new stream. Streams live until the process ends; make few.
Stream new_stream(int index = -1);

using gradus::StreamGuard;  // of the stream that work goes to until the end of a scope

/// May products of float32 matrices round what they multiply to TF32 (10 bits of mantissa), which tensor cores take?
/// False at the start, as torch.backends.cuda.matmul.allow_tf32. Of the whole process. The convolutions of the backend
/// "cuda" are such products; for those of "cudnn" see cudnn::allow_tf32.
bool matmul_allow_tf32();
void set_matmul_allow_tf32(bool allow);

/// A point in a stream's work (torch.cuda.Event).
class Event {
 public:
  /// Only events made with `timing` can tell elapsed_time.
  explicit Event(bool timing = false);
  /// Marks the end of what is queued on the current stream (or `stream`) now.
  void record();
  void record(const Stream& stream);
  /// Makes later work of the stream wait for this event; the host goes on.
  void wait();
  void wait(const Stream& stream);
  void synchronize() const;
  /// True when the work before the event is done.
  bool query() const;
  /// Milliseconds from this event to `end`; both recorded, with timing.
  double elapsed_time(const Event& end) const;

 private:
  std::unique_ptr<gradus::Event> event_;
};

/// Work recorded once and replayed many times at the price of one launch (torch.cuda.CUDAGraph).
///
///   cuda::Graph graph;
///   graph.capture([&] { loss = step(x, y); });   // after a few eager warm-up steps; runs nothing
///   for (…) { x.copy_(batch); graph.replay(); }
///
/// A replay reads and writes the same memory as the capture did: feed it by copying into the tensors it reads. Tensors
/// made during capture live in memory that the graph owns. Random operators draw anew at each replay, exactly what the
/// same steps would draw eagerly; the seed is the one at capture.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  /// Abandons a capture that was not ended.
  ~Graph();

  /// From here to capture_end() this thread's work on the current device is recorded instead of run. What waits for the
  /// device (item(), copies to the host) throws a DeviceError.
  void capture_begin();
  void capture_end();
  /// Records fn(). When fn throws, the capture is abandoned and the exception goes on.
  template <class F>
  void capture(F&& fn) {
    capture_begin();
    try {
      std::forward<F>(fn)();
    } catch (...) {
      abandon();
      throw;
    }
    capture_end();
  }

  /// Enqueues the recorded work on the current stream.
  void replay();
  /// Frees the recorded work and its memory.
  void reset();

 private:
  void abandon() noexcept;

  std::unique_ptr<CapturedGraph> graph_;
  Array random_offset_;  // int64 (1) on the device: what the recorded random kernels add to their own offsets
  uint64_t draws_ = 0;   // of one replay
  bool capturing_ = false;
};

}  // namespace gradus::cuda
