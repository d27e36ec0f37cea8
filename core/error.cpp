#include <gradus/core/error.h>

#include <cstdio>
#include <cstring>

namespace gradus {

std::string ModuleFrame::current_path() { return current_ ? current_->path(current_->module) : std::string(); }

namespace detail {

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
  if (outermost) text.append("[").append(outermost->name).append("] ");
  if (const std::string path = ModuleFrame::current_path(); !path.empty())
    text.append("layer '").append(path).append("': ");
  text.append(message);
  // The user's line is worth naming only where the user wrote the call: inside a built-in layer it is ours.
  if (outermost && outermost->where.line > 0 && !ModuleFrame::current()) {
    const char* slash = std::strrchr(outermost->where.file, '/');
    text.append(" (at ").append(slash ? slash + 1 : outermost->where.file).append(":");
    text.append(std::to_string(outermost->where.line)).append(")");
  }
  return text;
}

}  // namespace detail
}  // namespace gradus
