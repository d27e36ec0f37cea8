// A recorded step: the calls of Backend's methods in order, and the memory that they use.
//
// The folder graph/ depends only on core and knows no parameters or optimizers; training/replayed_step.h gives the
// buffers their names.
#pragma once

#include <limits>

#include <gradus/graph/call.h>

namespace gradus::graph {

class RecordedBlocks;

/// A block of memory that the eager step allocates. Time is counted in events: each allocation and each free is one.
struct Allocation {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const char* data = nullptr;
  int64_t bytes = 0;
  int64_t begin = 0, end = kNever;  ///< allocated during [begin, end); kNever if the step does not free it
  /// Position of the call that is recorded next after this allocation or, for workspace, of the call that allocates it.
  int call = 0;
  bool is_workspace = false;  ///< true if a kernel allocated it for its own use
};

/// A block of memory that calls read and write. An external buffer existed before the step: a parameter, an input or
/// optimizer state. The contents of other buffers are lost after the step, except those of results.
struct Buffer {
  Buffer(const char* data_, size_t bytes_, char* memory_ = nullptr) : data(data_), bytes(bytes_), memory(memory_) {}

  const char* data = nullptr;  ///< its address when the step was recorded
  size_t bytes = 0;
  char* memory = nullptr;  ///< its address when the graph runs; in the arena (Executor) unless the buffer is external
  std::string name;        ///< "features.0.weight"; may be empty
  bool external = false, result = false;
  bool kept = false;      ///< an array still used it when the recording ended, for example a gradient or the loss
  bool constant = false;  ///< external, with values that the recorded step copied from the host
  /// Positions in Graph::calls() of the first and the last call that use it; first_use is -1 if no call does. For a
  /// result, last_use is the maximum of int, because the contents are kept after the step.
  int first_use = -1, last_use = -1;
};

class Graph {
 public:
  const Calls& calls() const { return calls_; }
  /// The device that runs the calls.
  Device device() const { return device_; }
  /// The memory that the calls use, sorted by addresses in the recording.
  const std::vector<Buffer>& buffers() const { return buffers_; }
  /// The buffer that contained this address when the step was recorded, or null.
  const Buffer* buffer_of(const void* data) const;

  /// Names the buffer of an array. Does nothing if no call uses it.
  void set_name(const Array& array, const std::string& name);
  /// Marks the array's buffer as a result, so that its contents are kept after the step.
  void set_result(const Array& array);
  /// Moves call order[i] to position i. The new order must compute the same results, which this function does not
  /// check.
  void reorder(const std::vector<size_t>& order);
  /// Moves the calls out of the graph, for a pass that changes them and then passes them to set_calls().
  Calls take_calls() { return std::move(calls_); }
  void set_calls(Calls calls);
  /// For each buffer, whether only the calls use it: it is neither external nor a result, and no array of the step is
  /// left that uses it.
  std::vector<bool> inner() const;
  /// Throws a ValueError that names the call if an array of the recorded step still exists. Such an array would never
  /// get values, because runs of the graph compute in other memory.
  void check_released() const;

  /// The graph as text for people, one line for each call:
  ///
  ///   %0 = external x, 48 bytes
  ///   %1 = external w, 24 bytes
  ///   y %2 (4, 2) float32 = matmul a %0 (4, 3) float32, b %1 (3, 2) float32, accumulate false  # matmul, a.cpp:41
  ///
  /// Buffers are numbered in the order in which the calls use them. The first lines list the external buffers and the
  /// results with their names. The line of a call has its outputs, "=", the method of core/backend.h and its other
  /// arguments by name. An operand is a buffer, the byte offset of its first element unless that is 0 (%3+64), its
  /// shape, its strides in elements unless they are row-major, and its type. The comment is the call's origin.
  std::string str() const;
  /// The graph in Graphviz's language: a node for each call, and arrows from the writer of a buffer to its readers.
  std::string dot() const;

  /// The peak of the eager step in bytes, including the workspace of kernels, without what was allocated before the
  /// step. Equals the peak that the device's allocator counts when the step runs eagerly.
  int64_t eager_peak() const { return eager_peak_; }
  /// The allocations of the eager step in order, and the time of its peak (in events, see Allocation).
  const std::vector<Allocation>& allocations() const { return allocations_; }
  int64_t peak_time() const { return peak_time_; }

 private:
  friend class Recorder;
  friend class Executor;

  Buffer* find(const void* data);
  void find_uses();

  Device device_;
  Backend* backend_ = nullptr;  // the device's current backend when the step was recorded
  Calls calls_;
  std::vector<Buffer> buffers_;
  std::vector<Array> constants_;  // hold the memory of constant buffers
  std::shared_ptr<RecordedBlocks> blocks_;
  Array offset_;        // the generator's offset (int64 scalar on the device), which each recorded draw adds to its own
  uint64_t draws_ = 0;  // the number by which a run advances the generator's offset
  std::vector<Allocation> allocations_;
  int64_t eager_peak_ = 0, peak_time_ = 0;
};

}  // namespace gradus::graph
