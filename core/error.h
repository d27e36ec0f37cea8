// Exceptions, and the context that prefixes every message.
//
//   [conv2d] layer 'features.3': weight expects 3 input channels, got x of shape (8, 4, 32, 32) (at train.cpp:41)
//  op       module path         what was expected and what was found                           user's line
//
// The op and the user's line come from the thread's stack of OpContexts, the module path from its stack of
// ModuleFrames.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <gradus/core/scope.h>

namespace gradus {

/// Where the user called an operator. A type of our own, since clang 14 has no std::source_location.
struct SourceLocation {
  const char* file = "";
  int line = 0;
  static constexpr SourceLocation current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// Base of all exceptions thrown by gradus.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// LibTorch's names for what(). Messages contain no backtrace.
  const char* what_without_backtrace() const noexcept { return what(); }
  std::string msg() const { return what(); }  ///< the same as what()
};
// clang-format off
/// Sizes, strides or axes do not fit the operation.
class ShapeError : public Error { using Error::Error; };
/// The operation is not defined for this element type.
class DTypeError : public Error { using Error::Error; };
/// Tensors on different devices, or a device that this build or machine does not have.
class DeviceError : public Error { using Error::Error; };
/// An index, label or range is out of bounds.
class IndexError : public Error { using Error::Error; };
/// A value (option, probability, name) that the operation does not accept.
class ValueError : public Error { using Error::Error; };
/// Autograd cannot do what was requested: stale saved tensors, freed graphs, in-place operations on leaves.
class AutogradError : public Error { using Error::Error; };
/// A file is missing, truncated or malformed.
class IoError : public Error { using Error::Error; };
/// Not enough memory on the device.
class OutOfMemoryError : public Error { using Error::Error; };
/// A process of the job is lost, late, or inconsistent with the others.
class CommError : public Error { using Error::Error; };
// clang-format on

/// Base of classes whose objects form a stack on each thread: an object is on the stack from its construction to its
/// destruction.
template <class Element>
class ThreadStack : NoCopy {
 public:
  /// The element on top of this thread's stack; null if the stack is empty.
  static Element* current() noexcept { return current_; }
  /// The element below this one; null if there is none.
  Element* const parent = current_;

 protected:
  ThreadStack() noexcept { current_ = static_cast<Element*>(this); }
  ~ThreadStack() { current_ = parent; }

 private:
  static inline thread_local constinit Element* current_ = nullptr;
};

/// An operator that runs on this thread, for messages and observers. Operators call others; messages name the outermost
/// one, which is the operator that the user called.
struct OpContext : ThreadStack<OpContext> {
  explicit OpContext(const char* name_, SourceLocation where_ = {"", 0}) noexcept : name(name_), where(where_) {}
  const char* const name;
  const SourceLocation where;
};

/// A module whose forward runs on this thread; `path` renders its dotted name. Each built-in layer opens a frame in its
/// forward.
struct ModuleFrame : ThreadStack<ModuleFrame> {
  using PathFunction = std::string (*)(const void* module);
  ModuleFrame(const void* module_, PathFunction path_) noexcept : module(module_), path(path_) {}
  /// Dotted path of the innermost module; "" outside any module.
  static std::string current_path();
  const void* const module;
  const PathFunction path;
};

namespace detail {

/// Returns `text`, or its beginning, its length and its end if it is longer than 400 bytes, as a name from a damaged
/// file may be.
std::string shortened(std::string_view text);

/// Concatenates the parts of a message. Parts that are text pass through shortened().
class Message {
 public:
  // clang-format off
  Message& operator<<(std::string_view text);
  Message& operator<<(const std::string& text) { return *this << std::string_view(text); }
  Message& operator<<(const char* text) { return *this << std::string_view(text); }
  Message& operator<<(char c) { text_.push_back(c); return *this; }
  Message& operator<<(const Message& other) { text_.append(other.text_); return *this; }
  // clang-format on
  Message& operator<<(bool value) { return *this << (value ? "true" : "false"); }
  Message& operator<<(double value);
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>) Message& operator<<(T value) {
    if constexpr (std::is_signed_v<T>) return append(static_cast<long long>(value));
    else return append(static_cast<unsigned long long>(value));
  }
  bool empty() const { return text_.empty(); }
  std::string take() && { return std::move(text_); }

 private:
  Message& append(long long value);
  Message& append(unsigned long long value);
  std::string text_;
};

/// Adds this thread's op, module path and user's line to `message`.
std::string with_context(std::string message);

/// The concatenation of the parts.
template <class... Parts>
std::string text_of(const Parts&... parts) {
  Message message;
  (message << ... << parts);
  return std::move(message).take();
}

template <class Kind, class... Parts>
[[noreturn]] [[gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  throw Kind(with_context(text_of(parts...)));
}

}  // namespace detail

/// Rethrows the std::exception that is being handled with `prefix` before its message. Exceptions of gradus keep their
/// type; others become an Error.
[[noreturn]] void rethrow_with_prefix(const std::string& prefix);

}  // namespace gradus

/// Throws `Kind` with the concatenation of the remaining arguments unless `cond` holds. Formats only on failure.
#define GRADUS_CHECK(cond, Kind, ...) \
  do { \
    if (!(cond)) [[unlikely]] \
      ::gradus::detail::fail<::gradus::Kind>(__VA_ARGS__); \
  } while (false)

/// Throws `Kind` with the concatenation of the remaining arguments.
#define GRADUS_FAIL(Kind, ...) ::gradus::detail::fail<::gradus::Kind>(__VA_ARGS__)
