// Tables of wrong calls. Each must throw the right kind of error; the message must name the operator, both sides, and
// the user's line or the layer; and the process must be healthy afterwards.
//
//   const WrongCalls shapes("shapes", {
//       wrong<ShapeError>("add", {"(2, 3)", "(4,)"}, [] { f({2, 3}) + f({4}); }),
//       wrong<ShapeError>("linear", {"3", "(2, 4)"}, [] { net()->forward(f({2, 4})); }).in("head.0"),
//   });
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gradus/gradus.h>

namespace gradus::test {

/// One line of a table. It stands on one line of the source, so that the message can be held to that line.
struct WrongCall {
  std::string op;  ///< what the message begins with, in brackets; "" if it names neither operator nor line
  std::vector<std::string> parts;  ///< what else the message has to say: the numbers or names that disagree
  std::function<void()> call;
  /// Runs `call`; an exception of the right kind leaves its text, anything else is described by the result.
  std::string (*run)(const WrongCall& wrong, std::string* text);
  Loc where;
  std::string path;  ///< of the layer that the message names; then it names no line
  bool without_line = false;

  /// The call fails inside the layer with this path.
  WrongCall in(std::string layer) && { return path = std::move(layer), std::move(*this); }
  /// The message begins with a name, but names no line, as no operator runs: a constructor, an allocation.
  WrongCall found_outside_of_operators() && { return without_line = true, std::move(*this); }
};

namespace detail {
template <class Kind>
std::string run_wrong(const WrongCall& wrong, std::string* text) {
  try {
    wrong.call();
  } catch (const Kind& error) { return *text = error.what(), ""; } catch (const std::exception& error) {
    return std::string("throws another kind: ") + error.what();
  }
  return "does not throw";
}
}  // namespace detail

template <class Kind>
WrongCall wrong(std::string op, std::vector<std::string> parts, std::function<void()> call,
                Loc where = Loc::current()) {
  return {std::move(op), std::move(parts), std::move(call), &detail::run_wrong<Kind>, where, {}, false};
}

/// A table, known to the test from its construction on.
class WrongCalls {
 public:
  WrongCalls(std::string area, std::vector<WrongCall> calls);
  const std::string& area() const { return area_; }
  const std::vector<WrongCall>& calls() const { return calls_; }
  static const std::vector<const WrongCalls*>& all();

 private:
  std::string area_;
  std::vector<WrongCall> calls_;
};

/// What is wrong with the wrong call, or "".
std::string verdict(const WrongCall& wrong);

/// The message of the wrong call, without the line of the source that it names.
std::string message_of(const WrongCall& wrong);

/// Ones: f of float32, i of int64, b of bool.
inline Tensor f(IntArrayRef size) { return ones(size); }
inline Tensor i(IntArrayRef size) { return ones(size, kLong); }
inline Tensor b(IntArrayRef size) { return ones(size, kBool); }

}  // namespace gradus::test
