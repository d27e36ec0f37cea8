// The arguments of recorded calls by name, for printing, for exporters and for the page of a recorded step.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gradus/core/array/scalar.h>
#include <gradus/core/array/view.h>

namespace gradus::graph {

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

}  // namespace gradus::graph
