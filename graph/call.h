// One call of an operation of Backend, kept with all of its arguments: it can be run again, on operands elsewhere.
#pragma once

#include <vector>

#include <gradus/graph/arguments.h>
#include <gradus/graph/origin.h>

namespace gradus {

class Backend;
struct RandomState;

namespace graph {

/// Where elements are, in bytes from the first one: from `begin`, which is below 0 where strides are, to before `end`.
struct Extent {
  int64_t begin = 0, end = 0;
};
Extent extent_of(const StridedLayout& layout);

/// What a call reads or writes: elements of a buffer of its graph.
struct Operand {
  int buffer = -1;    ///< by number; -1 for an operand without elements
  size_t offset = 0;  ///< of the first element in it, in bytes
  StridedLayout layout;
  bool is_written = false;  ///< or read and written
};

/// Memory that a kernel takes for itself, in its slot of the arena.
struct ScratchPiece {
  size_t bytes = 0, offset = 0;
};

class Call {
 public:
  /// Sees an operand, which it may place elsewhere.
  class Visitor {
   public:
    virtual ~Visitor() = default;
    virtual void read(View& view) = 0;
    /// Written, or read and written.
    virtual void write(MutableView& view) = 0;
    /// An argument that says what the call draws, whose offset it may place elsewhere.
    virtual void draw(RandomState&) {}
  };

  virtual ~Call() = default;
  virtual void run(Backend& backend) const = 0;
  /// Visits the operands in order.
  virtual void visit(Visitor& visitor) = 0;
  /// Visits all arguments; operands come in the order of visit(). Unless a call knows better, they are its operands, by
  /// number.
  virtual void visit_arguments(ArgumentVisitor& visitor);

  const char* name = "";  ///< of the operation: "conv2d_bias_relu"
  int number = -1;        ///< among the calls of the eager step; -1 of one that a pass has made
  Origin origin;
  std::vector<Operand> operands;  ///< in the order of visit()
  int64_t workspace_bytes = 0;    ///< the most that the kernel takes for itself at a time
  /// On a GPU, where it is part of the arena: what it takes one after the other, and how much of the arena that needs.
  std::vector<ScratchPiece> scratch;
  size_t scratch_bytes = 0;
};

}  // namespace graph
}  // namespace gradus
