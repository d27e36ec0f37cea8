// A recorded call of a method of Backend with all its arguments. The call can run again, with its operands at other
// addresses.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gradus/core/array/scalar.h>
#include <gradus/core/array/view.h>
#include <gradus/graph/origin.h>

namespace gradus {

class Backend;
struct RandomState;

namespace graph {

// ---- Arguments by name: for Graph::str(), the ONNX exporter and lab pages ----

/// An enumerator, given by its number in the enumeration, and the names of all enumerators.
struct Choice {
  size_t number = 0;
  std::span<const char* const> names;
};

/// An argument that is not an operand.
using Value = std::variant<bool, int64_t, double, Scalar, Choice, std::vector<int64_t>, std::vector<double>>;

/// Receives the arguments of a call one by one, in order, with their names. Members of structs and elements of lists
/// have dotted names: "x", "geometry.stride", "parameters.2.gradient". The default of each function does nothing.
class ArgumentVisitor {
 public:
  virtual ~ArgumentVisitor() = default;
  /// An operand. `is_written` is true also if the call both reads and writes it. Optional operands that the call does
  /// not have are skipped.
  virtual void operand(const std::string&, const View&, bool /*is_written*/) {}
  virtual void value(const std::string&, const Value&) {}
};

// ---- Calls ----

/// The range of bytes [begin, end) that an operand's elements cover, relative to element (0, …, 0). `begin` is negative
/// if the operand has negative strides.
struct Extent {
  int64_t begin = 0, end = 0;
};
Extent extent_of(const StridedLayout& layout);
/// Returns true if the elements fill a block of memory without gaps and repetitions, in any order of axes.
bool is_dense(const StridedLayout& layout);
/// Returns true if two arrays with these layouts and the same first element are the same array.
inline bool is_same(const StridedLayout& a, const StridedLayout& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides;
}

/// An array that a call reads or writes, as a view of one of the graph's buffers.
struct Operand {
  int buffer = -1;    ///< index in Graph::buffers(); -1 if the operand has no elements
  size_t offset = 0;  ///< position of the first element in the buffer, in bytes
  StridedLayout layout;
  bool is_written = false;  ///< true also if it is both read and written
};

/// Memory that is in use from time `first` to time `last`, both included.
struct Interval {
  size_t bytes;
  int64_t first, last;
  size_t offset = 0;  ///< position in a block of memory, set by place() (memory_plan.h)
};

class Call {
 public:
  /// An argument that must change before the call can run at other addresses: an operand that it reads, an operand that
  /// it writes (or reads and writes), or its random state if it draws random numbers.
  using Place = std::variant<View*, MutableView*, RandomState*>;

  virtual ~Call() = default;
  virtual void run(Backend& backend) const = 0;
  /// Calls use() for the operands in order and then for the random state. `use` may change the address of an operand
  /// and RandomState::device_offset.
  virtual void visit(const std::function<void(Place)>& use) = 0;
  /// Visits all arguments by name, the operands in the order of visit(). The default visits only the operands, with the
  /// names "0", "1", …
  virtual void visit_arguments(ArgumentVisitor& visitor);

  const char* name = "";            ///< name of the method of Backend, for example "conv2d_bias_relu"
  const char* parameters = "args";  ///< names of the method's parameters: "x, axis, y"; "args" if it takes one struct
  int number = -1;                  ///< position of the call in the eager step; -1 if a graph pass made the call
  Origin origin;
  std::vector<Operand> operands;  ///< in the order of visit()
  int64_t workspace_bytes = 0;    ///< peak of the memory that the kernel allocates for itself
  /// The kernel's workspace allocations in order, and the bytes that they need together. Filled only for a GPU, where
  /// the workspace is a part of the graph's arena (memory_plan.h).
  std::vector<Interval> scratch;
  size_t scratch_bytes = 0;
};

using Calls = std::vector<std::unique_ptr<Call>>;

/// Calls use(view, is_written) for the operands of a call in order. `view` is a MutableView& if the call writes the
/// operand, else a View&. `use` may change the view's address.
template <class F>
void for_each_view(Call& call, F use) {
  const auto use_view = [&]<class T>(T* view) {
    if constexpr (!std::is_same_v<T, RandomState>) use(*view, std::is_same_v<T, MutableView>);
  };
  call.visit([&](Call::Place place) { std::visit(use_view, place); });
}

/// Calls use(operand, i) for each operand of a call that has elements, where i is the number of the operand's buffer.
template <class F>
void for_each_buffer(const Call& call, F use) {
  for (const Operand& operand : call.operands)
    if (operand.buffer >= 0) use(operand, static_cast<size_t>(operand.buffer));
}

}  // namespace graph
}  // namespace gradus
