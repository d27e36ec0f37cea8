// A recorded step: the calls of Backend's operations in order, and the memory that they use.
//
// This room depends on core alone. Code that knows parameters and optimizers (training/replayed_step.h) names the
// buffers.
#pragma once

#include <limits>
#include <memory>

#include <gradus/graph/call.h>

namespace gradus::graph {

class RecordedBlocks;

/// Memory that the eager step allocates and frees. A time is the number of allocations and frees before it.
struct Allocation {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const char* data = nullptr;
  int64_t bytes = 0;
  int64_t begin = 0, end = kNever;  ///< allocated during the times [begin, end); kNever if the step does not free it
  int call = 0;                     ///< number of the call that follows, or whose workspace this is
  bool is_workspace = false;        ///< allocated by a kernel for itself
};

/// Memory that calls read and write. An external buffer existed before the step: a parameter, an input or optimizer
/// state. The contents of other buffers are lost after the step, unless they are results.
struct Buffer {
  Buffer(const char* data_, size_t bytes_, char* memory_ = nullptr) : data(data_), bytes(bytes_), memory(memory_) {}

  const char* data = nullptr;  ///< its address when the step was recorded
  size_t bytes = 0;
  char* memory = nullptr;  ///< its address when the step runs; the memory plan sets it unless the buffer is external
  std::string name;        ///< "features.0.weight"; may be empty
  bool external = false, result = false;
  bool kept = false;      ///< an array used it when the recording ended, for example a gradient or the loss
  bool constant = false;  ///< external, with values that the step itself copied from the host
  /// Numbers of the first and the last call that use it.
  int first_use = -1, last_use = -1;
};

class Graph {
 public:
  const std::vector<std::unique_ptr<Call>>& calls() const { return calls_; }
  /// The device that runs the calls.
  Device device() const { return device_; }
  /// Sorted by their addresses in the recording.
  const std::vector<Buffer>& buffers() const { return buffers_; }
  /// The buffer that contained this address when the step was recorded; null if there is none.
  const Buffer* buffer_of(const void* data) const;

  /// Names the buffer of an array. Does nothing if no call uses it.
  void set_name(const Array& array, const std::string& name);
  /// Marks the array's buffer as a result, so that its contents are kept after the step.
  void set_result(const Array& array);
  /// Moves call order[i] to position i. The caller must choose an order that computes the same results
  /// (order_for_memory()).
  void reorder(const std::vector<size_t>& order);
  /// Moves the calls out, for a pass that changes them and gives them back by set_calls().
  std::vector<std::unique_ptr<Call>> take_calls() { return std::move(calls_); }
  void set_calls(std::vector<std::unique_ptr<Call>> calls);
  /// For each buffer, whether an array still uses it.
  std::vector<bool> held() const;
  /// Throws a ValueError that names the call if an array made by the recorded step is still in use. Runs of the graph
  /// compute elsewhere, so such an array would never get its values.
  void check_released() const;

  /// The graph as text for people, one line for each call:
  ///
  ///   %0 = external x, 48 bytes
  ///   %1 = external w, 24 bytes
  ///   y %2 (4, 2) float32 = matmul a %0 (4, 3) float32, b %1 (3, 2) float32, accumulate false  # matmul, a.cpp:41
  ///
  /// Buffers are numbered in the order in which the calls use them; those that exist before or after the step come
  /// first, with their names. A call has its outputs, "=", the operation of core/backend.h and its other arguments by
  /// name. An operand is a buffer, the offset of its first element in bytes unless that is 0 (%3+64), its shape, its
  /// strides in elements unless they are row-major, and its type. The comment is the call's origin.
  std::string str() const;
  /// The graph in Graphviz's language: a node for each call, and arrows from the writer of a buffer to its readers.
  std::string dot() const;

  /// The eager step's peak in bytes, beyond what was allocated before it and including the workspace of kernels.
  /// Exactly the allocator's count.
  int64_t eager_peak() const { return eager_peak_; }
  /// What the eager step allocates, in order, and the time of its peak.
  const std::vector<Allocation>& allocations() const { return allocations_; }
  int64_t peak_time() const { return peak_time_; }

 private:
  friend class Recorder;
  friend class Executor;

  Buffer* find(const void* data);
  void find_uses();

  Device device_;
  Backend* backend_ = nullptr;  // the current one when the step was recorded
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<Buffer> buffers_;
  std::vector<Array> constants_;  // the memory of buffers that are constants
  std::shared_ptr<RecordedBlocks> blocks_;
  Array offset_;        // the generator's offset (int64 scalar on the device), which recorded draws add to their own
  uint64_t draws_ = 0;  // by how much a run advances the generator
  std::vector<Allocation> allocations_;
  int64_t eager_peak_ = 0, peak_time_ = 0;
};

}  // namespace gradus::graph
