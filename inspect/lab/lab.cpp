#include <gradus/inspect/lab/lab.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include <lab_page.h>  // made by CMake of page.html, page.css and page.js
#include <nlohmann/json.hpp>

#include <gradus/core/platform/file.h>
#include <gradus/core/runtime/runtime.h>
#include <gradus/distributed/comm/local/local_group.h>
#include <gradus/inspect/explain/explain_parts.h>
#include <gradus/layers/module/module.h>

namespace gradus::training {
namespace {

using nlohmann::json;

/// The first `count` elements of an array on the CPU as text, for example "1 0.5 nan". The digits determine the
/// elements exactly.
std::string first_numbers(const View& x, int64_t count) {
  std::string text;
  count = std::min(count, x.numel());
  visit(x.dtype, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, offset = 0;
      for (int d = x.ndim() - 1; d >= 0; rest /= x.shape[d], --d) offset += rest % x.shape[d] * x.strides[d];
      const T element = x.as<T>()[offset];
      char number[32];
      std::to_chars_result end{};
      if constexpr (std::is_same_v<T, double>) end = std::to_chars(number, number + sizeof number, element);
      else if constexpr (std::is_integral_v<T>)
        end = std::to_chars(number, number + sizeof number, static_cast<int64_t>(element));
      else end = std::to_chars(number, number + sizeof number, static_cast<float>(element));
      text.append(i > 0 ? " " : "").append(number, end.ptr);
    }
  });
  return text;
}

/// first_numbers() for an array on any device. Empty if more than 1 MiB would have to be copied from a GPU.
std::string numbers_of(const View& x) {
  if (x.device.is_cpu()) return first_numbers(x, LabRecording::kValues);
  constexpr int64_t kMost = 1 << 20;
  const graph::Extent extent = graph::extent_of(x);
  if (extent.end - extent.begin > kMost) return "";
  std::vector<std::byte> copy(static_cast<size_t>(extent.end - extent.begin));
  runtime(x.device.type())
      .copy(copy.data(), kCPU, x.as<char>() + extent.begin, x.device, copy.size(), /*non_blocking=*/false);
  return first_numbers(View(x, copy.data() - extent.begin), LabRecording::kValues);
}

/// Records the calls, blocks and saved arrays of the last watched step.
class LabWatch final : public detail::StepWatch {
 public:
  LabWatch(LabRecording& recording, const nn::Module* net) : recording_(recording), net_(net) {}

  void begin_step(detail::WatchedMemory& memory) override {
    memory_ = &memory;
    recording_.calls.clear(), recording_.saved.clear(), recording_.blocks.clear();
    numbers_.clear(), outside_.clear();
    recording_.first_tick = memory.tick();
    if (!net_) return;
    for (const auto& item : net_->named_parameters()) name_outside(item.key(), item.value().array());
    for (const auto& item : net_->named_buffers()) name_outside(item.key(), item.value().array());
  }

  void on_call(graph::Call& call, bool has_run) override {
    struct Operands final : graph::ArgumentVisitor {
      Operands(LabWatch& watch, std::vector<LabRecording::Operand>& list, bool has_run)
          : watch(watch), list(list), has_run(has_run) {}
      void operand(const std::string& name, const View& view) override { see(name, view, false); }
      void operand(const std::string& name, const MutableView& view) override { see(name, view, true); }
      void see(const std::string& name, const View& view, bool is_written) {
        if (view.numel() == 0 || !view.data) return;
        if (!has_run)
          list.push_back({name, watch.number_of(view.data), view.dtype, view.shape, is_written,
                          is_written ? "" : numbers_of(view)});
        else if (is_written) list[at].values = numbers_of(view);
        ++at;
      }
      LabWatch& watch;
      std::vector<LabRecording::Operand>& list;
      const bool has_run;
      size_t at = 0;
    };
    if (!has_run) recording_.calls.emplace_back().tick = memory_->tick(), last_ = call.origin;
    Operands operands(*this, recording_.calls.back().operands, has_run);
    call.visit_arguments(operands);
  }

  void on_saved(const Array& array) override {
    if (array.numel() == 0) return;
    const graph::Origin origin = graph::Origin::current();
    const size_t block = number_of(array.data());
    // An operator saves its inputs before its call of the backend, and its results after the call. If the last call
    // belongs to this operator and has the array as an operand, the array is a result of that call.
    size_t call = recording_.calls.size();
    const auto has_block = [&](const auto& operand) { return operand.block == block; };
    if (call > 0 && last_.op == origin.op && last_.module == origin.module && last_.where.line == origin.where.line &&
        std::ranges::any_of(recording_.calls.back().operands, has_block))
      --call;
    recording_.saved.push_back({call, block, array.shape(), detail::name_of(origin), array.version()});
  }

  void end_step() override {
    recording_.last_tick = memory_->tick();
    const auto parameters = net_ ? net_->named_parameters() : OrderedDict<std::string, Tensor>();
    for (const auto& item : parameters) {
      const Tensor gradient = item.value().grad();
      const auto* const block = gradient.defined() ? memory_->find(gradient.array().data()) : nullptr;
      if (block) recording_.blocks[number_of_block(*block)].name = "gradient of " + item.key();
    }
    for (const auto& watched : memory_->blocks()) {
      if (watched.to <= recording_.first_tick) continue;
      LabRecording::Block& block = recording_.blocks[number_of_block(watched)];
      block.made_by = detail::name_of(watched.origin), block.until = watched.until;
      block.bytes = static_cast<int64_t>(watched.bytes);
      block.from = std::max(watched.from, recording_.first_tick), block.to = std::min(watched.to, recording_.last_tick);
    }
  }

 private:
  size_t number_of_block(const detail::WatchedMemory::Block& block) {
    const auto place = static_cast<size_t>(&block - memory_->blocks().data());
    const auto [entry, is_new] = numbers_.try_emplace(place, recording_.blocks.size());
    if (is_new) recording_.blocks.emplace_back();
    return entry->second;
  }
  void name_outside(const std::string& name, const Array& array) {
    if (array.numel() == 0 || memory_->find(array.data())) return;
    outside_[static_cast<const char*>(array.data()) + array.nbytes()] = {array.data(), recording_.blocks.size()};
    recording_.blocks.push_back({name, "", "", static_cast<int64_t>(array.nbytes()), 0, 0});
  }
  /// The index in recording_.blocks of the block that contains this address at present.
  size_t number_of(const void* data) {
    if (const auto* block = memory_->find(data)) return number_of_block(*block);
    const auto after = outside_.upper_bound(data);
    if (after != outside_.end() && after->second.begin <= data) return after->second.number;
    outside_[static_cast<const char*>(data) + 1] = {data, recording_.blocks.size()};
    recording_.blocks.emplace_back();
    return recording_.blocks.size() - 1;
  }

  struct Outside {
    const void* begin;
    size_t number;
  };
  LabRecording& recording_;
  const nn::Module* const net_;
  detail::WatchedMemory* memory_ = nullptr;
  std::map<size_t, size_t> numbers_;        // indices in recording_.blocks by indices in memory_->blocks()
  std::map<const void*, Outside> outside_;  // memory from before the first watched step, by its end address
  graph::Origin last_;                      // origin of the last call
};

/// The rows and texts of a page have at most this many bytes. Further rows are left out.
constexpr size_t kMostBytes = 24 << 20;

/// The texts of a page. Each different text is stored once; rows refer to texts by number.
class Texts {
 public:
  size_t operator()(const std::string& text) {
    const auto [entry, is_new] = numbers_.try_emplace(text, numbers_.size());
    if (is_new) list_.push_back(text), bytes_ += text.size() + 4;
    return entry->second;
  }
  const std::vector<std::string>& list() const { return list_; }
  size_t bytes() const { return bytes_; }

 private:
  std::map<std::string, size_t> numbers_;
  std::vector<std::string> list_;
  size_t bytes_ = 0;
};

constexpr size_t kMostNumbers = 4 << 20;  // limit of the bytes of all arrays' elements as text
constexpr size_t kMostOperands = 24;      // limit of the operands per call

std::string type_of(DType dtype, const Shape& shape) { return std::string(name(dtype)) + " " + to_string(shape); }

json data_of(const LabRecording& recording, const std::vector<size_t>& boxes) {
  const Explanation& explanation = recording.explanation;
  Texts texts;
  std::vector<std::string> kernels(explanation.calls.size());
  for (const Explanation::Kernel& kernel : explanation.kernels) {
    if (kernel.call >= kernels.size()) continue;
    std::string& text = kernels[kernel.call];
    text += (text.empty() ? "" : ", ") + kernel.backend + ": " + kernel.implementation;
    if (!kernel.reason.empty()) text += " (" + kernel.reason + ")";
  }
  json calls = json::array(), saved = json::array(), blocks = json::array();
  size_t bytes = 0, at = 0, blocks_used = 0, next_saved = 0;
  for (; at < explanation.calls.size() && bytes + texts.bytes() < kMostBytes; ++at) {
    const Explanation::Call& call = explanation.calls[at];
    const LabRecording::Call seen = at < recording.calls.size() ? recording.calls[at] : LabRecording::Call();
    json operands = json::array();
    for (const LabRecording::Operand& operand : seen.operands) {
      if (operands.size() == kMostOperands) break;
      const bool keeps = texts.bytes() < kMostNumbers;
      blocks_used = std::max(blocks_used, operand.block + 1);
      operands.push_back({texts(operand.name), operand.block, texts(type_of(operand.dtype, operand.shape)),
                          int{operand.is_written}, texts(keeps ? operand.values : "")});
    }
    const std::string where = graph::Origin{"", "", call.origin.where}.str();  // ", train.cpp:41" or empty
    const json box = at < boxes.size() && boxes[at] != SIZE_MAX ? json(boxes[at]) : json(-1);
    calls.push_back({texts(call.op), texts(call.origin.module), texts(call.name),
                     texts(where.substr(std::min<size_t>(2, where.size()))), texts(kernels[at]), int{call.backward},
                     std::round(1e9 * call.seconds) / 1e3, seen.tick, box, seen.operands.size(), std::move(operands)});
    bytes += 60 + 64 * calls.back().back().size();  // an estimate that includes the blocks of the operands
    for (; next_saved < recording.saved.size() && recording.saved[next_saved].call <= at; ++next_saved) {
      const LabRecording::Saved& one = recording.saved[next_saved];
      saved.push_back({one.call, one.block, texts(to_string(one.shape)), texts(one.kept_by), one.version});
      blocks_used = std::max(blocks_used, one.block + 1), bytes += 64;
    }
  }
  blocks_used = std::min(recording.blocks.size(), std::max(blocks_used, kMostBytes / 40));
  for (size_t i = 0; i < blocks_used; ++i) {
    const LabRecording::Block& block = recording.blocks[i];
    blocks.push_back({texts(block.name), texts(block.made_by), texts(block.until), block.bytes, block.from, block.to});
  }
  return {{"kind", "step"},
          {"calls", std::move(calls)},
          {"left_out", explanation.calls.size() - at},
          {"blocks", std::move(blocks)},
          {"saved", std::move(saved)},
          {"ticks", {recording.first_tick, recording.last_tick}},
          {"step_ms", 1e3 * explanation.step_seconds},
          {"notes", explanation.notes},
          {"texts", texts.list()}};
}

json data_of(const dist::MessageLog& log) {
  Texts texts;
  json events = json::array();
  for (const dist::MessageLog::Event& event : log.events) {
    if (96 * events.size() + texts.bytes() > kMostBytes) break;
    const auto size = static_cast<int64_t>(size_of(event.dtype));
    const auto elements = static_cast<int64_t>(event.bytes) / size,
               kept = static_cast<int64_t>(event.body.size()) / size;
    StridedLayout layout;
    layout.dtype = event.dtype, layout.shape = {kept}, layout.strides = {1};
    events.push_back({static_cast<int>(event.kind), event.rank, event.peer, event.message, texts(event.text),
                      event.bytes, texts(type_of(event.dtype, {elements})),
                      texts(first_numbers(View(layout, event.body.data()), kept))});
  }
  const size_t left_out = log.events.size() - events.size();
  return {{"kind", "messages"},   {"ranks", log.ranks},     {"events", std::move(events)},
          {"left_out", left_out}, {"notes", json::array()}, {"texts", texts.list()}};
}

/// Writes a page that shows `data`. `picture` is HTML and is inserted unchanged. "<" is escaped in the data, so that
/// their texts cannot become a part of the page's HTML.
void write_page(const std::string& path, const std::string& title, const std::string& picture, const json& data) {
  std::string text;
  for (const char c : data.dump(-1, ' ', false, json::error_handler_t::replace))
    if (c == '<') text += "\\u003c";
    else text += c;
  io::write_file(path, detail::filled(kLabPage, {detail::escaped(title), detail::escaped(title), picture, text}));
}

}  // namespace

LabRecording record_lab(const std::function<void()>& step, const nn::Module* net, const ExplainOptions& options) {
  LabRecording recording;
  LabWatch watch(recording, net);
  ExplainOptions without_proposals = options;
  recording.explanation = detail::explain(step, without_proposals.proposals(false), &watch);
  return recording;
}

}  // namespace gradus::training

void gradus::write_lab(const training::LabRecording& recording, const std::string& path, const std::string& title) {
  std::vector<size_t> boxes;
  std::string picture = training::detail::picture_of(recording.explanation, &boxes);
  if (picture.empty()) picture = "<p>The net has more parts than can be drawn.</p>";
  training::write_page(path, title, picture, training::data_of(recording, boxes));
}

void gradus::write_lab(const dist::MessageLog& log, const std::string& path, const std::string& title) {
  training::write_page(path, title, "", training::data_of(log));
}
