#include <gradus/graph/recorder.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include <gradus/core/formulas/integers.h>
#include <gradus/core/parallel/parallel.h>
#include <gradus/core/platform/process.h>
#include <gradus/core/runtime/random.h>
#include <gradus/graph/memory_plan.h>

namespace gradus::graph {
namespace {

class CallBackend final : public BackendInterceptor<CallBackend> {
 public:
  CallBackend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink) : like_(like), sink_(std::move(sink)) {}
  std::string_view name() const override { return like_.name(); }
  DeviceType device_type() const override { return like_.device_type(); }
  std::string libraries() const override { return like_.libraries(); }
  bool can(Fusion fusion) const override { return like_.can(fusion); }
  template <class... Params>
  void call(OperationName operation, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    std::unique_ptr<Call> call = detail::make_call(method, arguments...);
    call->name = operation.name, call->parameters = operation.parameters;
    sink_(std::move(call));
  }

 private:
  Backend& like_;
  const std::function<void(std::unique_ptr<Call>)> sink_;
};

/// During its lifetime, work on the GPU is captured instead of run. The captured graph is discarded.
class ThrownAwayCapture : NoCopy {
 public:
  explicit ThrownAwayCapture(DeviceRuntime& runtime) : runtime_(runtime) { runtime.begin_capture(); }
  ~ThrownAwayCapture() {
    try {
      runtime_.end_capture();
    } catch (const Error&) {  // end_capture() fails if the call threw an exception, which is already being handled
    }
  }

 private:
  DeviceRuntime& runtime_;
};

}  // namespace

std::shared_ptr<char> RecordedBlocks::addresses(size_t bytes) {
  char* const data = platform::map_memory(bytes);
  GRADUS_CHECK(data, OutOfMemoryError, "there are no addresses left for an array of ", bytes,
               " bytes in a recorded step");
  return {data, [bytes](char* mapped) { platform::unmap_memory(mapped, bytes); }};
}

std::shared_ptr<void> RecordedBlocks::allocate(size_t bytes) {
  const std::shared_ptr<char> memory = addresses(bytes);
  char* const data = memory.get();
  const int64_t count = counted_bytes(bytes, device_.type());
  std::lock_guard lock(mutex_);
  blocks_[data] = {memory, bytes, allocations_.size()};
  allocations_.push_back({data, count, time_++, Allocation::kNever, call_, in_workspace_});
  bytes_ += count;
  if (const int64_t now = bytes_ + allocated() - bytes_before_; now > peak_) peak_ = now, peak_time_ = time_ - 1;
  return {data, [blocks = shared_from_this()](void* data) { blocks->free(data); }};
}

std::map<const char*, RecordedBlocks::Block>::const_iterator RecordedBlocks::find(const void* data) const {
  const auto after = blocks_.upper_bound(static_cast<const char*>(data));
  const auto block = after == blocks_.begin() ? blocks_.end() : std::prev(after);
  return block != blocks_.end() && data < block->first + block->second.bytes ? block : blocks_.end();
}

void RecordedBlocks::fill(void* to, const void* from, size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto block = find(to);
  GRADUS_CHECK(block != blocks_.end() && !block->second.filled, DeviceError,
               "a recorded step can copy values from the host only into a new array, and only once: ",
               "fill other arrays before the step");
  std::memcpy(to, from, bytes);
  blocks_.at(block->first).filled = true;
}

void RecordedBlocks::free(void* data) noexcept {
  std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<char*>(data));
  Allocation& allocation = allocations_[block->second.allocation];
  bytes_ -= allocation.bytes;
  if (!closed_) allocation.end = time_++;
  block->second.used = false;
  if (closed_ || allocation.is_workspace) blocks_.erase(block);
}

void RecordedBlocks::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  std::erase_if(blocks_, [](const auto& entry) { return !entry.second.used; });
}

void RecordedBlocks::begin_workspace() {
  std::lock_guard lock(mutex_);
  in_workspace_ = true;
  workspace_begin_ = allocations_.size();
}

std::vector<Allocation> RecordedBlocks::end_workspace() {
  std::lock_guard lock(mutex_);
  ++call_;
  in_workspace_ = false;
  return {allocations_.begin() + static_cast<std::ptrdiff_t>(workspace_begin_), allocations_.end()};
}

std::map<const char*, RecordedBlocks::Block> RecordedBlocks::blocks() const {
  std::lock_guard lock(mutex_);
  return blocks_;
}

bool RecordedBlocks::contains(const char* data) const {
  std::lock_guard lock(mutex_);
  return find(data) != blocks_.end();
}

std::vector<Allocation> RecordedBlocks::allocations() const {
  std::lock_guard lock(mutex_);
  return allocations_;
}

// ---- Recorder ----

std::unique_ptr<Backend> call_backend(Backend& like, std::function<void(std::unique_ptr<Call>)> sink) {
  return std::make_unique<CallBackend>(like, std::move(sink));
}

Recorder::Recorder(Device device) {
  GRADUS_CHECK(!gradus::detail::recorded_memory, DeviceError, "this thread is already recording a step");
  graph_.device_ = settled(device);
  GRADUS_CHECK(!runtime(device.type()).capturing(), DeviceError, "this thread is already capturing a graph");
  graph_.backend_ = &current_backend(device.type());
  graph_.offset_ = Array::empty({}, DType::i64, graph_.device_);
  graph_.blocks_ = std::make_shared<RecordedBlocks>(graph_.device_);
  notify_of_capture();
  Generator::begin_capture(static_cast<const uint64_t*>(graph_.offset_.data()));
  calls_ = call_backend(*graph_.backend_, [this](std::unique_ptr<Call> call) { on_call(std::move(call)); });
  guard_.emplace(*calls_);
  gradus::detail::recorded_memory = graph_.blocks_.get();
}

Recorder::~Recorder() {
  if (guard_) end();
}

void Recorder::end() noexcept {
  gradus::detail::recorded_memory = nullptr;
  guard_.reset();
  graph_.draws_ = Generator::end_capture();
  notify_of_capture();
}

// On a GPU the two gradients of a convolution are recorded as two calls if they are independent. Then
// order_for_memory() can move the weight gradient, whose kernel needs workspace, to a time when more memory is free.
void Recorder::on_call(std::unique_ptr<Call> call) {
  if (auto* const gradients = dynamic_cast<detail::RecordedCall<const Conv2dBackwardArgs&>*>(call.get())) {
    Conv2dBackwardArgs& args = std::get<0>(gradients->arguments());
    if (graph_.device_.is_cuda() && args.dx && args.dw && !args.y) {
      calls_->conv2d_backward_data(args.dy, args.w, args.dx, args.geometry);
      args.dx = {};
    }
  }
  call->number = static_cast<int>(graph_.calls_.size());
  call->origin = Origin::current();
  for_each_view(*call, [&](const StridedLayout& layout, bool) {
    GRADUS_CHECK(layout.device == graph_.device_, ValueError, "'", call->origin.op, "' at ", call->origin.where.file,
                 ":", call->origin.where.line, " has an operand on ", layout.device, ", the recorded step is on ",
                 graph_.device_);
  });
  find_workspace(*call);
  graph_.calls_.push_back(std::move(call));
}

// Determines the workspace of a call by running the call dry: on the CPU, parallel_for() skips the loops of kernels; on
// a GPU, the kernels are captured and the capture is discarded. What the call allocates meanwhile is its workspace.
void Recorder::find_workspace(Call& call) {
  const BackendGuard guard(*graph_.backend_);
  const SkipChunksGuard skip;
  graph_.blocks_->begin_workspace();
  if (graph_.device_.is_cpu()) {
    run_dry(call);
  } else {
    const DeviceGuard device(graph_.device_);
    const ThrownAwayCapture capture(runtime(graph_.device_.type()));
    run_dry(call);
  }
  std::vector<Interval> intervals;
  for (const Allocation& piece : graph_.blocks_->end_workspace())
    intervals.push_back({static_cast<size_t>(piece.bytes), piece.begin, piece.end - 1});
  call.workspace_bytes = static_cast<int64_t>(peak_of(intervals).bytes);
  if (graph_.device_.is_cpu()) return;
  call.scratch_bytes = place(intervals);
  call.scratch = std::move(intervals);
}

// A dry run on the CPU still writes single values outside of the skipped loops, for example the sum of all chunks. So
// that it does not write into arrays from before the step, such operands are redirected to scrap_ during the call.
// Their addresses keep their alignment, because kernels are chosen by alignment.
void Recorder::run_dry(Call& call) {
  constexpr size_t kAlignment = 512;
  std::vector<const void*> addresses;  // the address that each operand has during the dry run
  size_t most = 0;
  std::set<const void*> written;
  for_each_view(call, [&](const auto& view, bool writes) {
    addresses.push_back(view.data);
    if (!writes || graph_.blocks_->contains(static_cast<const char*>(addresses.back()))) return;
    const auto [begin, end] = extent_of(view);
    written.insert(view.data);
    most = std::max({most, static_cast<size_t>(-begin), static_cast<size_t>(end)});
  });
  if (most > scrap_bytes_)  // scrap_ has this size on both sides of the first element, for negative strides
    scrap_bytes_ = round_up(most, kAlignment), scrap_ = RecordedBlocks::addresses(2 * scrap_bytes_ + kAlignment);
  for (const void*& address : addresses)
    if (written.contains(address))
      address = scrap_.get() + scrap_bytes_ + reinterpret_cast<uintptr_t>(address) % kAlignment;  // keeps alignment

  const auto swap_addresses = [&] {
    auto next = addresses.begin();
    for_each_view(call, [&](auto& view, bool) {
      const void* const other = std::exchange(*next++, view.data);
      view.data = const_cast<void*>(other);
    });
  };
  if (!written.empty()) swap_addresses();
  call.run(*graph_.backend_);
  if (!written.empty()) swap_addresses();
}

Graph Recorder::finish() {
  GRADUS_CHECK(guard_, DeviceError, "this recording is already finished");
  end();
  graph_.eager_peak_ = graph_.blocks_->peak(), graph_.peak_time_ = graph_.blocks_->peak_time();
  graph_.allocations_ = graph_.blocks_->allocations();
  find_buffers();
  find_operands();
  graph_.blocks_->close();
  for (const auto& [data, block] : graph_.blocks_->blocks())
    if (Buffer* const buffer = graph_.find(data)) buffer->kept = true;
  return std::move(graph_);
}

// Each block that the step allocated and a call uses becomes a buffer. Memory from before the step is known only by the
// operands that use it: each range of bytes that an operand covers becomes a buffer, and overlapping ranges are joined
// to one buffer.
void Recorder::find_buffers() {
  std::vector<Buffer>& buffers = graph_.buffers_;
  const std::map<const char*, RecordedBlocks::Block> all = graph_.blocks_->blocks();
  for (const auto& [data, block] : all) buffers.emplace_back(data, block.bytes).first_use = block.filled ? 0 : -1;
  std::vector<std::pair<const char*, size_t>> external;
  const auto collect = [&](const auto& view, bool) {
    const auto [begin, end] = extent_of(view);
    Buffer* const block = end > 0 ? graph_.find(view.data) : nullptr;
    if (block) block->first_use = 0;
    else if (end > 0)
      external.emplace_back(static_cast<const char*>(view.data) + begin, static_cast<size_t>(end - begin));
  };
  for (const auto& call : graph_.calls_) for_each_view(*call, collect);
  std::erase_if(buffers, [](const Buffer& buffer) { return buffer.first_use < 0; });
  std::ranges::sort(external);
  const size_t blocks = buffers.size();
  for (const auto& [data, bytes] : external) {
    if (buffers.size() > blocks && data < buffers.back().data + buffers.back().bytes)
      buffers.back().bytes = std::max(buffers.back().bytes, static_cast<size_t>(data - buffers.back().data) + bytes);
    else buffers.emplace_back(data, bytes, const_cast<char*>(data)).external = true;
  }
  std::ranges::sort(buffers, {}, &Buffer::data);
  for (const auto& [data, block] : all)
    if (block.filled) make_constant(*graph_.find(data));
}

void Recorder::find_operands() {
  for (Buffer& buffer : graph_.buffers_) buffer.first_use = -1;
  for (const auto& recorded : graph_.calls_) {
    Call& call = *recorded;
    for_each_view(call, [&](const auto& view, bool writes) {
      Buffer* const buffer = view.numel() > 0 ? graph_.find(view.data) : nullptr;
      Operand& operand = call.operands.emplace_back();
      operand.layout = view, operand.is_written = writes;
      if (!buffer) return;
      operand.buffer = static_cast<int>(buffer - graph_.buffers_.data());
      operand.offset = static_cast<size_t>(static_cast<const char*>(view.data) - buffer->data);
      if (buffer->first_use < 0 && !buffer->external && !writes) make_constant(*buffer);
      buffer->first_use = 0;
      GRADUS_CHECK(!buffer->constant || !writes, ValueError, "'", call.origin.op, "' at ", call.origin.where.file, ":",
                   call.origin.where.line,
                   " writes into an array that the step filled with values from the host, which ",
                   "happens only once, while recording: fill it with an operator (zeros, full) or before the step");
    });
  }
  graph_.find_uses();
}

// Makes a buffer a constant. Its values come from the host, because a call reads the buffer before any call writes it.
void Recorder::make_constant(Buffer& buffer) {
  const Array copy = Array::empty({static_cast<int64_t>(buffer.bytes)}, DType::u8, graph_.device_);
  runtime(graph_.device_.type()).copy(copy.data(), graph_.device_, buffer.data, Device(), buffer.bytes, false);
  buffer.external = buffer.constant = true, buffer.memory = static_cast<char*>(copy.data());
  graph_.constants_.push_back(copy);
}

}  // namespace gradus::graph
