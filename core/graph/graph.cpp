#include <gradus/core/graph/graph.h>

#include <algorithm>
#include <limits>
#include <string_view>

namespace gradus::graph {
namespace {

std::string description_of(const Operand& operand) {
  return to_string(operand.layout.shape) + " " + std::string(name(operand.layout.dtype));
}

}  // namespace

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
  find_uses();
}

void Graph::reorder(const std::vector<size_t>& order) {
  std::vector<std::unique_ptr<Call>> calls;
  for (size_t i : order) calls.push_back(std::move(calls_[i]));
  calls_ = std::move(calls);
  find_uses();
}

void Graph::find_uses() {
  for (Buffer& buffer : buffers_) buffer.first_use = -1;
  for (size_t i = 0; i < calls_.size(); ++i)
    for (const Operand& operand : calls_[i]->operands) {
      if (operand.buffer < 0) continue;
      Buffer& buffer = buffers_[static_cast<size_t>(operand.buffer)];
      if (buffer.first_use < 0) buffer.first_use = static_cast<int>(i);
      buffer.last_use = buffer.result ? std::numeric_limits<int>::max() : static_cast<int>(i);
    }
}

void Graph::check_released() const {
  for (const auto& [data, block] : blocks_->blocks()) {
    const Buffer* const buffer = buffer_of(data);
    if (!buffer && device_.is_cpu()) continue;  // nothing has computed anything there, and it is memory
    GRADUS_CHECK(buffer && buffer->first_use >= 0, ValueError, "an array of ", block.bytes, " bytes that the step ",
                 "made without computing anything in it is kept beyond the step: make it before");
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
    text += writes + " = " + call->name + (reads.empty() ? "" : " ") + reads + "  # " + call->origin.str() + "\n";
  }
  return text;
}

std::string Graph::dot() const {
  std::string text = "digraph step {\n  node [shape=box];\n";
  std::vector<std::string> writers(buffers_.size());  // the call that wrote a buffer last, or its own node
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = *calls_[i];
    const std::string node = "call" + std::to_string(i);
    text += "  " + node + " [label=\"" + call.name + "\", tooltip=\"" + call.origin.str() + "\"];\n";
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
