// One recorded call of an operation of Backend with all its arguments. It can run again, on operands at other
// addresses.
#pragma once

#include <vector>

#include <gradus/graph/arguments.h>
#include <gradus/graph/origin.h>

namespace gradus {

class Backend;
struct RandomState;

namespace graph {

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

}  // namespace graph
}  // namespace gradus
