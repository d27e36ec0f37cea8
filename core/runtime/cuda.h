// The user's view of CUDA: devices, streams, events, memory statistics and captured graphs. It calls only the
// DeviceRuntime of cuda, so it also exists in builds without CUDA: there is_available() returns false and the other
// functions throw a DeviceError with the remedy.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include <gradus/core/array/array.h>
#include <gradus/core/runtime/random.h>

namespace gradus::options_detail {
inline std::atomic<bool> matmul_tf32 = false, cudnn_tf32 = true, deterministic = true, benchmark = false, small = false;
inline std::atomic<size_t> workspace_limit = size_t{256} << 20;
}  // namespace gradus::options_detail

namespace gradus::cuda {

/// Number of CUDA devices; 0 if CUDA is not available.
int device_count();
/// True if this build supports CUDA and this machine has a driver and a device (torch.cuda.is_available).
inline bool is_available() { return device_count() > 0; }
/// The device that "cuda" without an index refers to on this thread.
int current_device();
void set_device(int index);

/// Waits for all work queued on the device (-1: the current one).
void synchronize(int index = -1);

/// Bytes held by tensors and by the caching allocator, their peaks, and the number of allocations.
MemoryStats memory_stats(int index = -1);
inline int64_t memory_allocated(int index = -1) { return memory_stats(index).allocated; }
inline int64_t max_memory_allocated(int index = -1) { return memory_stats(index).peak_allocated; }
inline int64_t memory_reserved(int index = -1) { return memory_stats(index).reserved; }
/// Resets the peaks to the current values.
void reset_peak_memory_stats(int index = -1);
/// A short table of the memory statistics for display (torch.cuda.memory_summary).
std::string memory_summary(int index = -1);
/// Gives cached memory that no tensor uses back to the driver.
void empty_cache();

/// The stream that this thread's operators run on. Threads share one stream per device until they choose another.
Stream current_stream(int index = -1);
/// Creates a stream. Streams are never destroyed, so create few.
Stream new_stream(int index = -1);

using gradus::StreamGuard;  // sets the current stream until the end of a scope

/// Whether products of float32 matrices may round their inputs to TF32 (10 mantissa bits) to use tensor cores. False by
/// default, as torch.backends.cuda.matmul.allow_tf32. Applies to the whole process, and also to the convolutions of the
/// backend "cuda"; cudnn::allow_tf32 is the option for convolutions of the backend "cudnn".
inline bool matmul_allow_tf32() { return options_detail::matmul_tf32; }
inline void set_matmul_allow_tf32(bool allow) { options_detail::matmul_tf32 = allow; }

/// A point in a stream's work (torch.cuda.Event).
class Event {
 public:
  /// Only events created with `timing` support elapsed_time.
  explicit Event(bool timing = false) : event_(runtime(DeviceType::cuda).new_event(timing)) {}
  /// Marks the end of the work that is queued on the current stream (or `stream`) now.
  void record() { record(current_stream()); }
  void record(const Stream& stream) { event_->record(stream); }
  /// Makes later work of the stream wait for this event; the host does not wait.
  void wait() { wait(current_stream()); }
  void wait(const Stream& stream) { event_->block(stream); }
  void synchronize() const { event_->synchronize(); }
  /// True if the work before the event is complete.
  bool query() const { return event_->query(); }
  /// Milliseconds from this event to `end`; both must be recorded and created with timing.
  double elapsed_time(const Event& end) const { return end.event_->elapsed_ms(*event_); }

 private:
  std::unique_ptr<gradus::Event> event_;
};

/// Work recorded once and replayed many times at the cost of one launch (torch.cuda.CUDAGraph).
///
///   cuda::Graph graph;
///   graph.capture([&] { loss = step(x, y); });   // after a few eager warm-up steps; runs nothing
///   for (…) { x.copy_(batch); graph.replay(); }
///
/// A replay reads and writes the same memory as the capture: to feed it, copy into the tensors it reads. Tensors
/// created during capture are in memory that the graph owns. Random operators draw new numbers at each replay, the same
/// as the eager steps would; the seed is the one at capture.
class Graph : NoCopy {
 public:
  Graph() = default;
  /// Abandons an unfinished capture.
  ~Graph();

  /// From this call until capture_end(), this thread's work on the current device is recorded instead of run.
  /// Operations that wait for the device (item(), copies to the host) throw a DeviceError.
  void capture_begin();
  void capture_end();
  /// Records fn(). If fn throws, the capture is abandoned and the exception propagates.
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
  Array random_offset_;  // int64 (1) on the device; recorded random kernels add it to their offsets
  uint64_t draws_ = 0;   // number of draws in one replay
  bool capturing_ = false;
};

}  // namespace gradus::cuda

/// Options of the backend "cudnn", as in torch.backends.cudnn. They apply to the whole process from the next call on; a
/// captured graph keeps the options in force at its capture. Builds without cuDNN have them too, without effect.
namespace gradus::cudnn {

/// True if this build has cuDNN and this machine has a CUDA device.
bool is_available();

/// Whether float32 convolutions may round their inputs to TF32 (10 mantissa bits) to use tensor cores. Sums stay in
/// float32. True by default, as in PyTorch.
inline bool allow_tf32() { return options_detail::cudnn_tf32; }
inline void set_allow_tf32(bool allow) { options_detail::cudnn_tf32 = allow; }

/// Whether cuDNN uses only those of its engines (implementations of an operation) that give the same bits in every run.
/// True by default (PyTorch: false).
inline bool deterministic() { return options_detail::deterministic; }
inline void set_deterministic(bool only) { options_detail::deterministic = only; }

/// Whether the first convolution with new shapes or options times the four algorithms with the lowest estimates, and
/// the engines that cuDNN's heuristics rank highest, and keeps the fastest. False by default. The choice, and with it
/// the last bits of results, may then differ from run to run. A captured call times nothing, so run a step before.
inline bool benchmark() { return options_detail::benchmark; }
inline void set_benchmark(bool time) { options_detail::benchmark = time; }

/// Whether cuDNN runs all convolutions that it can. False by default: the backend "cudnn" then runs the algorithm with
/// the lowest estimate, which is one of cuDNN's or of the backend "cuda" (docs/guide/gpu.md).
inline bool small_convolutions() { return options_detail::small; }
inline void set_small_convolutions(bool all) { options_detail::small = all; }

/// Maximum scratch memory, in bytes, that a cuDNN engine may request; 256 MiB by default.
inline size_t workspace_limit() { return options_detail::workspace_limit; }
inline void set_workspace_limit(size_t bytes) { options_detail::workspace_limit = bytes; }

}  // namespace gradus::cudnn
