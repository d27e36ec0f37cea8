// A step written down: the calls of Backend's operations in order, and the memory that they use.
//
// graph depends on core alone: who knows parameters and optimizers (training/static_step.h) gives it their names.
#pragma once

#include <memory>

#include <gradus/graph/call.h>
#include <gradus/graph/recorded_blocks.h>

namespace gradus::graph {

/// Memory that calls read and write. One that is external was there before the step: parameters, inputs, what the
/// optimizer keeps. Of the others nothing is left after the step, unless it is a result.
struct Buffer {
  Buffer(const char* data_, size_t bytes_, char* memory_ = nullptr) : data(data_), bytes(bytes_), memory(memory_) {}

  const char* data = nullptr;  ///< where it was when the step was recorded
  size_t bytes = 0;
  char* memory = nullptr;  ///< where it is when the step is run; of those that are not external a matter of the plan
  std::string name;        ///< "features.0.weight"; may be empty
  bool external = false, result = false;
  bool kept = false;      ///< somebody had an array in it when the recording ended: a gradient, a loss
  bool constant = false;  ///< an external one with numbers that the step itself made
  /// The calls that use it, first and last, by number.
  int first_use = -1, last_use = -1;
};

class Graph {
 public:
  const std::vector<std::unique_ptr<Call>>& calls() const { return calls_; }
  /// That runs the calls.
  Device device() const { return device_; }
  /// In the order of their addresses.
  const std::vector<Buffer>& buffers() const { return buffers_; }
  /// The one that had this address when the step was recorded; null if there is none.
  const Buffer* buffer_of(const void* data) const;

  /// Names the buffer of an array, if a call uses it.
  void set_name(const Array& array, const std::string& name);
  /// The array is wanted after the step.
  void set_result(const Array& array);
  /// Puts call order[i] at place i. Which orders compute the same is for the caller to know (order_for_memory.h).
  void reorder(const std::vector<size_t>& order);
  /// The calls, to be given back by set_calls() (passes/).
  std::vector<std::unique_ptr<Call>> take_calls() { return std::move(calls_); }
  void set_calls(std::vector<std::unique_ptr<Call>> calls);
  /// By buffer, whether somebody still has an array in it.
  std::vector<bool> held() const;
  /// A ValueError where somebody still has an array of the recorded step, whose numbers no run of the graph would give
  /// them. Names the call that made it.
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
  /// The graph in Graphviz's language: calls, and arrows from who writes a buffer to who reads it.
  std::string dot() const;

  /// What the eager step takes at its peak, in bytes beyond those that were allocated before it: to the byte the
  /// allocator's count, kernels' own memory included.
  int64_t eager_peak() const { return eager_peak_; }
  /// What the eager step allocates, in order, and when its peak is.
  const std::vector<Allocation>& allocations() const { return allocations_; }
  int64_t peak_time() const { return peak_time_; }

 private:
  friend class Recorder;
  friend class Executor;

  Buffer* find(const void* data);
  void find_uses();

  Device device_;
  Backend* backend_ = nullptr;  // that was current
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<Buffer> buffers_;
  std::vector<Array> constants_;  // the memory of buffers that are constants
  std::shared_ptr<RecordedBlocks> blocks_;
  Array offset_;        // of the generator (int64 scalar on the device), which recorded draws add to their own
  uint64_t draws_ = 0;  // of one run
  std::vector<Allocation> allocations_;
  int64_t eager_peak_ = 0, peak_time_ = 0;
};

}  // namespace gradus::graph
