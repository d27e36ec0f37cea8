#include <gradus/graph/executor.h>

#include <span>

#include <gradus/core/runtime/random.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus::graph {
namespace {

/// Allocates the workspace of a GPU step's kernels in the arena. If a kernel requests more than in the recording, for
/// example because a setting has changed since then, the runtime allocates the memory.
class ScratchSlots final : public RecordedMemory {
 public:
  void begin(const Call& call, char* slot) { pieces_ = call.scratch, slot_ = slot, next_ = 0; }
  DeviceType type() const override { return DeviceType::cuda; }
  std::shared_ptr<void> allocate(size_t bytes) override {
    const size_t number = next_++;
    if (number >= pieces_.size() || bytes > pieces_[number].bytes) return nullptr;
    return {slot_ + pieces_[number].offset, [](void*) {}};
  }
  void fill(void*, const void*, size_t) override {}
  bool is_watched() const override { return true; }

 private:
  std::span<const Interval> pieces_;
  char* slot_ = nullptr;
  size_t next_ = 0;
  const ScopedValue<RecordedMemory*> scope_{gradus::detail::recorded_memory, this};
};

}  // namespace

Executor::Executor(Graph graph) : graph_(std::move(graph)), plan_(plan_memory(graph_)) {
  arena_ = Storage::allocate(plan_.bytes, graph_.device_);
  for (size_t i = 0; i < plan_.offsets.size(); ++i) {
    Buffer& buffer = graph_.buffers_[i];
    if (!buffer.external) buffer.memory = static_cast<char*>(arena_.data()) + plan_.offsets[i];
  }
  for (const auto& call : graph_.calls_) place(*call);
}

void Executor::place(Call& call) const {
  const auto memory = [this](int buffer) { return graph_.buffers_[static_cast<size_t>(buffer)].memory; };
  place(call, graph_.device_, memory, graph_.offset_.data());
}

void Executor::place(Call& call, Device device, const std::function<char*(int buffer)>& memory, const void* offset) {
  const Operand* operand = call.operands.data();
  for_each_view(call, [&](auto& view, bool) {
    view.device = device;
    view.data = operand->buffer < 0 ? nullptr : memory(operand->buffer) + operand->offset;
    ++operand;
  });
  call.visit([&](Call::Place place) {
    if (auto* const* const state = std::get_if<RandomState*>(&place))
      (*state)->device_offset = static_cast<const uint64_t*>(offset);
  });
}

void Executor::advance_generator() {
  if (graph_.draws_ == 0) return;
  const auto offset = static_cast<int64_t>(default_generator().advance(graph_.draws_));
  graph_.backend_->fill(graph_.offset_, Scalar(offset));
}

void Executor::run_calls_with_scratch() {
  ScratchSlots slots;
  auto offset = plan_.scratch.begin();
  each_call([&](Call& call) {
    slots.begin(call, static_cast<char*>(arena_.data()) + *offset++);
    call.run(*graph_.backend_);
  });
}

void Executor::run() {
  advance_generator();
  if (graph_.device_.is_cpu()) {
    each_call([this](Call& call) { call.run(*graph_.backend_); });
    return count_replay();
  }
  const DeviceGuard guard(graph_.device_);
  if (runs_ == 0) {
    run_calls_with_scratch();
    count_replay();
  } else {
    if (runs_ == 1) {
      captured_.capture([this] { run_calls_with_scratch(); });
    }
    captured_.replay();
  }
  ++runs_;
}

Array Executor::result(const Array& recorded) const {
  const Buffer* const buffer = graph_.buffer_of(recorded.data());
  if (!buffer || buffer->memory == buffer->data) return recorded;
  // The copies in the deleter keep the arena and the constants alive.
  const Storage storage = Storage::adopt(buffer->memory, buffer->bytes, graph_.device_,
                                         [arena = arena_, constants = graph_.constants_](void*) {});
  const auto offset = static_cast<const char*>(recorded.data()) - buffer->data;
  return Array(storage, offset / static_cast<int64_t>(size_of(recorded.dtype())), recorded.shape(), recorded.strides(),
               recorded.dtype());
}

}  // namespace gradus::graph
