#include <gradus/graph/graph.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include <gradus/graph/recorder.h>

namespace gradus::graph {
namespace {

std::string text_of(double number) {
  char digits[40];
  return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}
std::string text_of(int64_t number) { return std::to_string(number); }
std::string text_of(bool flag) { return flag ? "true" : "false"; }
std::string text_of(const Choice& choice) { return choice.names[choice.number]; }
std::string text_of(const Scalar& scalar) {
  if (scalar.kind() == Scalar::Kind::boolean) return text_of(scalar.to_bool());
  return scalar.is_floating() ? text_of(scalar.to_double()) : text_of(scalar.to_int64());
}
template <class T>
std::string text_of(const std::vector<T>& list) {
  std::string text;
  for (const T& element : list) text += (text.empty() ? "" : ", ") + text_of(element);
  return "[" + text + "]";
}

/// Implements Graph::str().
class GraphPrinter final : public ArgumentVisitor {
 public:
  explicit GraphPrinter(const Graph& graph) : graph_(graph), numbers_(graph.buffers().size(), -1) {}

  std::string print() {
    std::string text;
    for (const auto& call : graph_.calls())
      for_each_buffer(*call, [&](const Operand& operand, size_t at) {
        const Buffer& buffer = graph_.buffers()[at];
        if (numbers_[at] >= 0 || (!buffer.external && !buffer.result)) return;
        const char* const kind = buffer.constant ? "constant" : buffer.external ? "external" : "result";
        text += name_of(operand.buffer) + " = " + kind + (buffer.name.empty() ? "" : " " + buffer.name) + ", " +
                std::to_string(buffer.bytes) + " bytes\n";
      });
    for (const auto& call : graph_.calls()) {
      operand_ = call->operands.data();
      inputs_.clear(), outputs_.clear();
      call->visit_arguments(*this);
      text +=
          outputs_ + " = " + call->name + (inputs_.empty() ? "" : " ") + inputs_ + "  # " + call->origin.str() + "\n";
    }
    return text;
  }

  void operand(const std::string& name, const View&, bool is_written) override {
    append(is_written ? outputs_ : inputs_, name, next_operand());
  }
  void value(const std::string& name, const Value& value) override {
    append(inputs_, name, std::visit([](const auto& v) { return text_of(v); }, value));
  }

 private:
  static void append(std::string& list, const std::string& name, const std::string& argument) {
    list += (list.empty() ? "" : ", ") + name + " " + argument;
  }
  std::string next_operand() {
    const Operand& operand = *operand_++;
    const StridedLayout& layout = operand.layout;
    return (operand.buffer < 0 ? "none" : name_of(operand.buffer)) +
           (operand.offset > 0 ? "+" + std::to_string(operand.offset) : "") + " " + to_string(layout.shape) +
           (layout.strides == contiguous_strides(layout.shape) ? "" : " strides " + to_string(layout.strides)) + " " +
           std::string(gradus::name(layout.dtype));
  }
  std::string name_of(int buffer) {
    int& number = numbers_[static_cast<size_t>(buffer)];
    if (number < 0) number = next_number_++;
    return "%" + std::to_string(number);
  }

  const Graph& graph_;
  std::vector<int> numbers_;  // number of each buffer in the text; -1 if it was not printed yet
  int next_number_ = 0;
  const Operand* operand_ = nullptr;  // the operand that the visitor receives next
  std::string inputs_, outputs_;      // text of the current call
};

}  // namespace

Extent extent_of(const StridedLayout& layout) {
  if (layout.numel() == 0) return {};
  int64_t first = 0, last = 0;
  for (int i = 0; i < layout.ndim(); ++i) {
    const int64_t steps = (layout.shape[i] - 1) * layout.strides[i];
    (steps < 0 ? first : last) += steps;
  }
  const auto size = static_cast<int64_t>(size_of(layout.dtype));
  return {first * size, (last + 1) * size};
}

bool is_dense(const StridedLayout& layout) {
  for (int i = 0; i < layout.ndim(); ++i)
    if (layout.shape[i] > 1 && layout.strides[i] <= 0) return false;
  return extent_of(layout).end == layout.numel() * static_cast<int64_t>(size_of(layout.dtype));
}

void Call::visit_arguments(ArgumentVisitor& visitor) {
  int number = 0;
  for_each_view(
      *this, [&](const View& view, bool is_written) { visitor.operand(std::to_string(number++), view, is_written); });
}

Origin Origin::current() {
  Origin origin;
  origin.module = ModuleFrame::current_path();
  for (const OpContext* context = OpContext::current(); context; context = context->parent)
    origin.op = context->name, origin.where = context->where;
  return origin;
}

std::string Origin::str() const {
  const std::string_view file = where.file;
  return op + (module.empty() ? "" : " of " + module) +
         (where.line > 0
              ? ", " + std::string(file.substr(file.find_last_of('/') + 1)) + ":" + std::to_string(where.line)
              : "");
}

const Buffer* Graph::buffer_of(const void* data) const { return const_cast<Graph*>(this)->find(data); }

Buffer* Graph::find(const void* data) {
  const auto at = static_cast<const char*>(data);
  const auto after = std::ranges::upper_bound(buffers_, at, {}, &Buffer::data);
  if (after == buffers_.begin()) return nullptr;
  Buffer& buffer = *std::prev(after);
  return at < buffer.data + buffer.bytes ? &buffer : nullptr;
}

void Graph::set_name(const Array& array, const std::string& name) {
  if (Buffer* const buffer = find(array.data())) buffer->name = name;
}

void Graph::set_result(const Array& array) {
  Buffer* const buffer = find(array.data());
  if (!buffer || buffer->external) return;
  buffer->result = true;
  find_uses();
}

void Graph::reorder(const std::vector<size_t>& order) {
  Calls calls;
  for (size_t i : order) calls.push_back(std::move(calls_[i]));
  set_calls(std::move(calls));
}

void Graph::set_calls(Calls calls) {
  calls_ = std::move(calls);
  find_uses();
}

std::vector<bool> Graph::inner() const {
  std::vector<bool> inner;
  for (const Buffer& buffer : buffers_) inner.push_back(!buffer.external && !buffer.result);
  for (const auto& [data, block] : blocks_->blocks())
    if (const Buffer* const buffer = buffer_of(data)) inner[static_cast<size_t>(buffer - buffers_.data())] = false;
  return inner;
}

void Graph::find_uses() {
  for (Buffer& buffer : buffers_) buffer.first_use = -1;
  for (size_t i = 0; i < calls_.size(); ++i)
    for_each_buffer(*calls_[i], [&](const Operand&, size_t at) {
      Buffer& buffer = buffers_[at];
      if (buffer.first_use < 0) buffer.first_use = static_cast<int>(i);
      buffer.last_use = buffer.result ? std::numeric_limits<int>::max() : static_cast<int>(i);
    });
}

void Graph::check_released() const {
  for (const auto& [data, block] : blocks_->blocks()) {
    const Buffer* const buffer = buffer_of(data);
    if (!buffer && device_.is_cpu()) continue;  // no call uses the array, and on the CPU its memory is usable
    GRADUS_CHECK(buffer && buffer->first_use >= 0, ValueError, "an array of ", block.bytes, " bytes that the step ",
                 "made without computing anything in it is kept beyond the step: make it before");
    const Origin& origin = calls_[static_cast<size_t>(buffer->first_use)]->origin;
    GRADUS_FAIL(
        ValueError, "the result of '", origin.op, "' at ", origin.where.file, ":", origin.where.line,
        " is kept beyond the step, but runs of a recorded step compute it elsewhere: return it from the step, or "
        "copy it into a tensor made before");
  }
}

std::string Graph::str() const { return GraphPrinter(*this).print(); }

std::string Graph::dot() const {
  std::string text = "digraph step {\n  node [shape=box];\n";
  std::vector<std::string> writers(buffers_.size());  // for each buffer, the node of the call that wrote it last
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = *calls_[i];
    const std::string node = "call" + std::to_string(i);
    text += "  " + node + " [label=\"" + call.name + "\", tooltip=\"" + call.origin.str() + "\"];\n";
    for_each_buffer(call, [&](const Operand& operand, size_t at) {
      std::string& writer = writers[at];
      if (writer.empty() && buffers_[at].external) {
        writer = "buffer" + std::to_string(at);
        text += "  " + writer + " [shape=ellipse, label=\"" + buffers_[at].name + "\"];\n";
      }
      if (!writer.empty() && writer != node)
        text += "  " + writer + " -> " + node + " [label=\"" + to_string(operand.layout.shape) + " " +
                std::string(name(operand.layout.dtype)) + "\"];\n";
    });
    for_each_buffer(call, [&](const Operand& operand, size_t at) {
      if (operand.is_written) writers[at] = node;
    });
  }
  return text + "}\n";
}

}  // namespace gradus::graph
