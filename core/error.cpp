#include <gradus/core/error.h>

#include <cstdio>
#include <cstring>

namespace gradus {

std::string ModuleFrame::current_path() { return current() ? current()->path(current()->module) : std::string(); }

namespace detail {

std::string shortened(std::string_view text) {
  constexpr size_t kMost = 400, kBeginning = 250, kEnd = 100;
  if (text.size() <= kMost) return std::string(text);
  // Never splits a UTF-8 character.
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  size_t beginning = kBeginning, end = text.size() - kEnd;
  while (beginning > 0 && continues(beginning)) --beginning;
  while (end < text.size() && continues(end)) ++end;
  std::string result(text.substr(0, beginning));
  return result.append("[... ").append(std::to_string(text.size())).append(" bytes ...]").append(text.substr(end));
}

// Messages are put together rarely but in many places, so these functions are not inline.
Message& Message::operator<<(std::string_view text) {
  text_.append(shortened(text));
  return *this;
}
Message& Message::append(long long value) { return *this << std::to_string(value); }
Message& Message::append(unsigned long long value) { return *this << std::to_string(value); }

Message& Message::operator<<(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", value);
  text_.append(buffer);
  return *this;
}

std::string with_context(std::string message) {
  const OpContext* outermost = OpContext::current();
  while (outermost && outermost->parent) outermost = outermost->parent;

  std::string text;
  if (outermost) text.append("[").append(shortened(outermost->name)).append("] ");
  if (const std::string path = ModuleFrame::current_path(); !path.empty())
    text.append("layer '").append(shortened(path)).append("': ");
  text.append(message);
  // The source line is useful only if the user wrote the call; inside a built-in layer it is in the library.
  if (outermost && outermost->where.line > 0 && !ModuleFrame::current()) {
    const char* slash = std::strrchr(outermost->where.file, '/');
    text.append(" (at ").append(slash ? slash + 1 : outermost->where.file).append(":");
    text.append(std::to_string(outermost->where.line)).append(")");
  }
  return text;
}

}  // namespace detail

// Rethrows `error` with `prefix` if it is of one of the Kinds.
template <class... Kinds>
static void rethrow_if(const std::exception& error, const std::string& prefix) {
  ((dynamic_cast<const Kinds*>(&error) ? throw Kinds(prefix + error.what()) : void()), ...);
}

void rethrow_with_prefix(const std::string& prefix) {
  try {
    throw;
  } catch (const std::exception& error) {
    rethrow_if<IoError, ValueError, IndexError, ShapeError, DTypeError, DeviceError, AutogradError, OutOfMemoryError,
               CommError>(error, prefix);
    throw Error(prefix + error.what());
  }
}

}  // namespace gradus
