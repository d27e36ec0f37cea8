#include <gradus/core/graph/executor.h>

#include <gradus/core/random.h>

namespace gradus::graph {

Executor::Executor(Graph graph) : graph_(std::move(graph)), plan_(plan_memory(graph_)) {
  arena_ = Storage::allocate(plan_.bytes, Device());
  for (size_t i = 0; i < plan_.offsets.size(); ++i) {
    Buffer& buffer = graph_.buffers_[i];
    if (!buffer.external) buffer.memory = static_cast<char*>(arena_.data()) + plan_.offsets[i];
  }
  struct Place final : Call::Visitor {
    Place(const Call& call, const std::vector<Buffer>& buffers) : operand(call.operands.data()), buffers(buffers) {}
    void read(View& view) override { view.data = next(); }
    void write(MutableView& view) override { view.data = next(); }
    char* next() {
      const auto [buffer, offset] = std::pair(operand->buffer, operand->offset);
      ++operand;
      return buffer < 0 ? nullptr : buffers[static_cast<size_t>(buffer)].memory + offset;
    }
    const Operand* operand;
    const std::vector<Buffer>& buffers;
  };
  for (const auto& call : graph_.calls_) {
    Place place(*call, graph_.buffers_);
    call->visit(place);
  }
}

void Executor::advance_generator() { *graph_.offset_ = default_generator().advance(graph_.draws_); }

Array Executor::array_of(const Operand& operand) const {
  const Buffer& buffer = graph_.buffers_[static_cast<size_t>(operand.buffer)];
  const Storage storage =
      Storage::adopt(buffer.memory + operand.offset, buffer.bytes - operand.offset, Device(), nullptr);
  return Array(storage, 0, operand.layout.shape, operand.layout.strides, operand.layout.dtype);
}

Array Executor::result(const Array& recorded) const {
  const Buffer* const buffer = graph_.buffer_of(recorded.data());
  if (!buffer || buffer->memory == buffer->data) return recorded;
  const Storage storage = Storage::adopt(buffer->memory, buffer->bytes, Device(),
                                         [arena = arena_, constants = graph_.constants_](void*) {});  // keeps them
  const auto offset = static_cast<const char*>(recorded.data()) - buffer->data;
  return Array(storage, offset / static_cast<int64_t>(size_of(recorded.dtype())), recorded.shape(), recorded.strides(),
               recorded.dtype());
}

}  // namespace gradus::graph
