#include <gradus/graph/graph.h>

#include <algorithm>
#include <charconv>

namespace gradus::graph {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::string text_of(double number) {
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  const std::string text(digits, end);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;  // unlike an integer's
}
std::string text_of(int64_t number) { return std::to_string(number); }
std::string text_of(bool flag) { return flag ? "true" : "false"; }
std::string text_of(const Choice& choice) { return choice.names[choice.number]; }
std::string text_of(const Scalar& scalar) {
  if (scalar.kind() == Scalar::Kind::floating) return text_of(scalar.to_double());
  return scalar.kind() == Scalar::Kind::boolean ? text_of(scalar.to_bool()) : text_of(scalar.to_int64());
}
template <class T>
std::string text_of(const std::vector<T>& list) {
  std::string text;
  for (const T& element : list) text += (text.empty() ? "" : ", ") + text_of(element);
  return "[" + text + "]";
}

std::string text_of(const StridedLayout& layout) {
  return to_string(layout.shape) +
         (layout.strides == contiguous_strides(layout.shape) ? "" : " strides " + to_string(layout.strides)) + " " +
         std::string(name(layout.dtype));
}

/// What a line can hold of a name.
std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  return text;
}

/// The bytes of each buffer that calls use.
std::vector<size_t> used_bytes(const Graph& graph) {
  std::vector<size_t> bytes(graph.buffers().size());
  for (const auto& call : graph.calls())
    for (const Operand& operand : call->operands) {
      if (operand.buffer < 0) continue;
      size_t& used = bytes[static_cast<size_t>(operand.buffer)];
      used = std::max(used, operand.offset + static_cast<size_t>(extent_of(operand.layout).end));
    }
  return bytes;
}

class TextWriter final : public ArgumentVisitor {
 public:
  explicit TextWriter(const Graph& graph) : graph_(graph), numbers_(graph.buffers().size(), -1) {}

  void declare_buffers() {
    const std::vector<size_t> used = used_bytes(graph_);
    for (const auto& call : graph_.calls())
      for (const Operand& operand : call->operands) {
        if (operand.buffer < 0) continue;
        const auto at = static_cast<size_t>(operand.buffer);
        const Buffer& buffer = graph_.buffers()[at];
        const bool is_plain = !buffer.external && !buffer.result && buffer.bytes == used[at];
        if (is_plain || numbers_[at] >= 0) continue;
        text += name_of(operand.buffer) + " = " +
                (buffer.constant   ? "constant"
                 : buffer.external ? "external"
                 : buffer.result   ? "result"
                                   : "internal") +
                (buffer.name.empty() ? "" : " " + one_line(buffer.name)) + ", " + std::to_string(buffer.bytes) +
                " bytes";
        if (buffer.constant) append_numbers(buffer);
        text += "\n";
      }
  }

  void write(Call& call) {
    operand_ = call.operands.data();
    reads_.clear(), writes_.clear();
    call.visit_arguments(*this);
    text += writes_ + " = " + call.name + (reads_.empty() ? "" : " ") + reads_ + "  # " + one_line(call.origin.str()) +
            "\n";
  }

  void operand(const std::string& name, View& view) override {
    if (view) append(reads_, name, next_operand());
  }
  void operand(const std::string& name, MutableView& view) override {
    if (view) append(writes_, name, next_operand());
  }
  void value(const std::string& name, Value& value) override {
    append(reads_, name, std::visit([](const auto& v) { return text_of(v); }, value));
  }

  void length(const std::string& name, size_t& length) override { append(reads_, name, std::to_string(length)); }

  std::string text;

 private:
  static void append(std::string& list, const std::string& name, const std::string& argument) {
    list += (list.empty() ? "" : ", ") + name + " " + argument;
  }
  std::string next_operand() {
    const Operand& operand = *operand_++;
    return (operand.buffer < 0 ? "none" : name_of(operand.buffer)) +
           (operand.offset > 0 ? "+" + std::to_string(operand.offset) : "") + " " + text_of(operand.layout);
  }
  std::string name_of(int buffer) {
    int& number = numbers_[static_cast<size_t>(buffer)];
    if (number < 0) number = count_++;
    return "%" + std::to_string(number);
  }
  void append_numbers(const Buffer& buffer) {
    text += " ";
    for (size_t i = 0; i < buffer.bytes; ++i) {
      const auto byte = static_cast<unsigned char>(buffer.memory[i]);
      text += {kHexDigits[byte >> 4], kHexDigits[byte & 15]};
    }
  }

  const Graph& graph_;
  std::vector<int> numbers_;  // in order of appearance
  int count_ = 0;
  const Operand* operand_ = nullptr;  // the next one of the call
  std::string reads_, writes_;
};

}  // namespace

std::string Graph::str() const {
  TextWriter writer(*this);
  writer.text = "graph 1, draws " + std::to_string(draws_) + ", eager peak " + std::to_string(eager_peak_) + " bytes\n";
  writer.declare_buffers();
  for (const auto& call : calls_) writer.write(*call);
  return std::move(writer.text);
}

}  // namespace gradus::graph
