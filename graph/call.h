// One recorded call of an operation of Backend with all its arguments. It can run again, on operands at other
// addresses.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gradus/core/array/scalar.h>
#include <gradus/core/array/view.h>
#include <gradus/core/error.h>
#include <gradus/graph/origin.h>

namespace gradus {

class Backend;
struct RandomState;

namespace graph {

// ---- Arguments by name, for printing, for exporters and for the page of a recorded step ----

/// A value of an enumeration, and the names of all its values.
struct Choice {
  size_t number = 0;
  std::span<const char* const> names;
};

/// An argument that is not an operand.
using Value = std::variant<bool, int64_t, double, Scalar, Choice, std::vector<int64_t>, std::vector<double>>;

/// Sees the arguments of a call by name, in order. Members of structs and elements of lists have dotted names: "x",
/// "geometry.stride", "parameters.2.gradient". A function that is not overridden ignores its arguments.
class ArgumentVisitor {
 public:
  virtual ~ArgumentVisitor() = default;
  /// An operand that is read. It may be absent.
  virtual void operand(const std::string&, const View&) {}
  /// An operand that is written, or read and written. It may be absent.
  virtual void operand(const std::string&, const MutableView&) {}
  virtual void value(const std::string&, const Value&) {}
};

// ---- Calls ----

/// The bytes [begin, end) that an operand's elements cover, relative to its first element. `begin` is negative if there
/// are negative strides.
struct Extent {
  int64_t begin = 0, end = 0;
};
Extent extent_of(const StridedLayout& layout);

/// Elements of one of the graph's buffers that a call reads or writes.
struct Operand {
  int buffer = -1;    ///< the buffer's number; -1 for an operand without elements
  size_t offset = 0;  ///< of the first element in the buffer, in bytes
  StridedLayout layout;
  bool is_written = false;  ///< true also if it is both read and written
};

/// One allocation of a kernel's workspace, placed in the call's slot of the arena.
struct ScratchPiece {
  size_t bytes = 0, offset = 0;
};

class Call {
 public:
  /// Sees each operand and may change its address.
  class Visitor {
   public:
    virtual ~Visitor() = default;
    virtual void read(View& view) = 0;
    /// An operand that is written, or read and written.
    virtual void write(MutableView& view) = 0;
    /// The random state of a call that draws. May change the address of its offset.
    virtual void draw(RandomState&) {}
  };

  virtual ~Call() = default;
  virtual void run(Backend& backend) const = 0;
  /// Visits the operands in order.
  virtual void visit(Visitor& visitor) = 0;
  /// Visits all arguments by name, operands in the order of visit(). The default visits only the operands and names
  /// them by number.
  virtual void visit_arguments(ArgumentVisitor& visitor);

  const char* name = "";            ///< of the operation, for example "conv2d_bias_relu"
  const char* parameters = "args";  ///< names of the operation's parameters: "x, axis, y"; one struct is named "args"
  int number = -1;                  ///< its position among the calls of the eager step; -1 if a pass made it
  Origin origin;
  std::vector<Operand> operands;  ///< in the order of visit()
  int64_t workspace_bytes = 0;    ///< the peak of the kernel's workspace
  /// On a GPU, where the workspace is part of the arena: the kernel's allocations in order, and the bytes of their
  /// slot.
  std::vector<ScratchPiece> scratch;
  size_t scratch_bytes = 0;
};

/// Calls use(view, is_written) for the operands of a call in order. The view is a MutableView& if it is written, or
/// read and written, else a View&; `use` may change its address.
template <class F>
void for_each_view(Call& call, F use) {
  struct Each final : Call::Visitor {
    explicit Each(F& use) : f(use) {}
    void read(View& view) override { f(view, false); }
    void write(MutableView& view) override { f(view, true); }
    F& f;
  } each(use);
  call.visit(each);
}

/// Calls use(operand, i) for each operand of a call that has elements; they are in buffer i of the graph.
template <class F>
void for_each_buffer(const Call& call, F use) {
  for (const Operand& operand : call.operands)
    if (operand.buffer >= 0) use(operand, static_cast<size_t>(operand.buffer));
}

}  // namespace graph
}  // namespace gradus
