// The arguments of recorded calls by name: how they are written down, read back, and looked at by exporters.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gradus/core/array/scalar.h>
#include <gradus/core/array/view.h>

namespace gradus::graph {

/// A value of an enumeration: which of the names it has.
struct Choice {
  size_t number = 0;
  std::span<const char* const> names;
};

/// An argument that is no operand.
using Value = std::variant<bool, int64_t, double, Scalar, Choice, std::vector<int64_t>, std::vector<double>>;

/// Sees the arguments of a call by name, in order, and may change them. Those in structs and lists have dotted names:
/// "x", "geometry.stride", "parameters.2.gradient". Without an override an argument is passed over.
class ArgumentVisitor {
 public:
  virtual ~ArgumentVisitor() = default;
  /// An operand that is read; it may be absent.
  virtual void operand(const std::string&, View&) {}
  /// One that is written, or read and written.
  virtual void operand(const std::string&, MutableView&) {}
  /// A change keeps the alternative of the variant.
  virtual void value(const std::string&, Value&) {}
  /// Of a list, before its elements.
  virtual void length(const std::string&, size_t&) {}
  /// What a random call adds to its offset, where a change says that it does.
  virtual const uint64_t* generator_offset() const { return nullptr; }
};

}  // namespace gradus::graph
