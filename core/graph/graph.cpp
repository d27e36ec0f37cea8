#include <gradus/core/graph/graph.h>

#include <algorithm>
#include <limits>
#include <string_view>

namespace gradus::graph {
namespace {

std::string description_of(const Operand& operand) {
  return to_string(operand.layout.shape) + " " + std::string(name(operand.layout.dtype));
}

std::string description_of(const Origin& origin) {
  std::string text = origin.op;
  if (!origin.module.empty()) text += " of " + origin.module;
  const std::string_view file = origin.where.file;
  if (origin.where.line > 0)
    text += ", " + std::string(file.substr(file.find_last_of('/') + 1)) + ":" + std::to_string(origin.where.line);
  return text;
}

}  // namespace

const Buffer* Graph::buffer_of(const void* data) const { return const_cast<Graph*>(this)->find(data); }

Buffer* Graph::find(const void* data) {
  const auto at = static_cast<const char*>(data);
  const auto behind = std::upper_bound(buffers_.begin(), buffers_.end(), at,
                                       [](const char* address, const Buffer& buffer) { return address < buffer.data; });
  if (behind == buffers_.begin()) return nullptr;
  Buffer& buffer = *std::prev(behind);
  return at < buffer.data + buffer.bytes ? &buffer : nullptr;
}

void Graph::set_name(const Array& array, const std::string& name) {
  if (Buffer* const buffer = find(array.data())) buffer->name = name;
}

void Graph::set_result(const Array& array) {
  Buffer* const buffer = find(array.data());
  if (!buffer || buffer->external) return;
  buffer->result = true;
  buffer->last_use = std::numeric_limits<int>::max();
}

void Graph::check_released() const {
  for (const auto& [data, block] : blocks_->blocks()) {
    const Buffer* const buffer = buffer_of(data);
    if (!buffer) continue;  // nothing has computed anything there
    const Origin& origin = calls_[static_cast<size_t>(buffer->first_use)]->origin;
    GRADUS_FAIL(
        ValueError, "the result of '", origin.op, "' at ", origin.where.file, ":", origin.where.line,
        " is kept beyond the step, but runs of a recorded step compute it elsewhere: return it from the step, or "
        "copy it into a tensor made before");
  }
}

std::string Graph::str() const {
  std::string text;
  std::vector<int> numbers(buffers_.size(), -1);  // in order of appearance
  int count = 0;
  const auto name_of = [&](int buffer) {
    int& number = numbers[static_cast<size_t>(buffer)];
    if (number < 0) number = count++;
    return "%" + std::to_string(number);
  };
  for (const auto& call : calls_)
    for (const Operand& operand : call->operands) {
      if (operand.buffer < 0 || numbers[static_cast<size_t>(operand.buffer)] >= 0) continue;
      const Buffer& buffer = buffers_[static_cast<size_t>(operand.buffer)];
      if (buffer.external)
        text += name_of(operand.buffer) + " = " + (buffer.name.empty() ? "external" : buffer.name) + ", " +
                std::to_string(buffer.bytes) + " bytes\n";
    }
  for (const auto& call : calls_) {
    std::string reads, writes;
    for (const Operand& operand : call->operands) {
      std::string& to = operand.is_written ? writes : reads;
      to += (to.empty() ? "" : ", ") + (operand.buffer < 0 ? "none" : name_of(operand.buffer));
      if (operand.offset > 0) to += "+" + std::to_string(operand.offset);
      to += " " + description_of(operand);
    }
    text +=
        writes + " = " + call->name + (reads.empty() ? "" : " ") + reads + "  # " + description_of(call->origin) + "\n";
  }
  return text;
}

std::string Graph::dot() const {
  std::string text = "digraph step {\n  node [shape=box];\n";
  std::vector<std::string> writers(buffers_.size());  // the call that wrote a buffer last, or its own node
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = *calls_[i];
    const std::string node = "call" + std::to_string(i);
    text += "  " + node + " [label=\"" + call.name + "\", tooltip=\"" + description_of(call.origin) + "\"];\n";
    for (const Operand& operand : call.operands) {
      if (operand.buffer < 0) continue;
      const auto at = static_cast<size_t>(operand.buffer);
      std::string& writer = writers[at];
      if (writer.empty() && buffers_[at].external) {
        writer = "buffer" + std::to_string(at);
        text += "  " + writer + " [shape=ellipse, label=\"" + buffers_[at].name + "\"];\n";
      }
      if (!writer.empty() && writer != node)
        text += "  " + writer + " -> " + node + " [label=\"" + description_of(operand) + "\"];\n";
    }
    for (const Operand& operand : call.operands)
      if (operand.buffer >= 0 && operand.is_written) writers[static_cast<size_t>(operand.buffer)] = node;
  }
  return text + "}\n";
}

}  // namespace gradus::graph
