#include <gradus/graph/text.h>

#include <algorithm>
#include <charconv>
#include <map>

#include <gradus/core/registry.h>
#include <gradus/graph/recorded_call.h>
#include <gradus/graph/signatures.h>

namespace gradus::graph {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 40;  // of a buffer that is read

}  // namespace

class TextReader final : public ArgumentVisitor {
 public:
  Graph read(std::string_view text) {
    graph_.backend_ = &current_backend(DeviceType::cpu);
    graph_.blocks_ = std::make_shared<RecordedBlocks>(graph_.device_);
    graph_.offset_ = Array::empty({}, DType::i64);
    bool has_header = false;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_;
      if (line.empty() || line[0] == '#') continue;
      if (!has_header) read_header(line);
      else if (line[0] == '%') read_buffer(line);
      else read_call(line);
      has_header = true;
    }
    check(has_header, "an empty text is no graph");
    graph_.find_uses();
    for (size_t i = 0; i < graph_.buffers_.size(); ++i) check(graph_.buffers_[i].first_use >= 0, "no call uses %", i);
    return std::move(graph_);
  }

  void operand(const std::string& name, View& view) override { read_operand(name, view, false); }
  void operand(const std::string& name, MutableView& view) override { read_operand(name, view, true); }
  void value(const std::string& name, Value& value) override {
    const auto item = items_.find(name);
    check(item != items_.end(), "'", name, "' is missing");
    std::visit([&](auto& v) { read_value(name, item->second, v); }, value);
    items_.erase(item);
  }
  void length(const std::string& name, size_t& length) override {
    Value count = int64_t{0};
    value(name, count);
    const auto wanted = static_cast<uint64_t>(std::get<int64_t>(count));
    check(wanted <= items_.size(), "'", name, "' has ", wanted, " elements, the line has fewer");
    length = wanted;
  }
  const uint64_t* generator_offset() const override { return static_cast<const uint64_t*>(graph_.offset_.data()); }

 private:
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    GRADUS_CHECK(condition, IoError, "graph, line ", line_, ": ", parts...);
  }

  // ---- Parts of a line ----
  void expect(std::string_view& text, std::string_view wanted) const {
    check(text.substr(0, wanted.size()) == wanted, "expected '", wanted, "' at '", text, "'");
    text.remove_prefix(wanted.size());
  }
  bool accept(std::string_view& text, std::string_view wanted) const {
    if (text.substr(0, wanted.size()) != wanted) return false;
    text.remove_prefix(wanted.size());
    return true;
  }
  template <class Number>
  Number take_number(std::string_view& text) const {
    Number number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    check(error == std::errc(), "expected a number that is not too large at '", text, "'");
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return number;
  }
  int64_t take_size(std::string_view& text) const {
    const auto size = take_number<int64_t>(text);
    check(size >= 0 && size <= kMostBytes, size, " must be from 0 to ", kMostBytes);
    return size;
  }
  /// "(2, 3)", "(5,)", "()"
  Dims take_dims(std::string_view& text, bool may_be_negative = false) const {
    Dims dims;
    expect(text, "(");
    while (!accept(text, ")")) {
      check(dims.size() < kMaxDims, "there may be at most ", kMaxDims, " dimensions");
      const bool is_negative = may_be_negative && accept(text, "-");
      const int64_t size = take_size(text);
      dims.push_back(is_negative ? -size : size);
      if (accept(text, ",)")) break;
      if (!text.empty() && text[0] != ')') expect(text, ", ");
    }
    return dims;
  }
  /// What comes before ", " outside of brackets.
  std::string_view take_item(std::string_view& text) const {
    int depth = 0;
    size_t end = 0;
    for (; end < text.size(); ++end) {
      const char c = text[end];
      depth += (c == '(' || c == '[') - (c == ')' || c == ']');
      if (depth == 0 && text.substr(end, 2) == ", ") break;
    }
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    return item;
  }

  // ---- Lines ----
  void read_header(std::string_view line) {
    expect(line, "graph 1, draws ");
    graph_.draws_ = take_number<uint64_t>(line);
    expect(line, ", eager peak ");
    graph_.eager_peak_ = take_number<int64_t>(line);
    check(line == " bytes", "expected ' bytes' at the end");
  }

  void read_buffer(std::string_view line) {
    expect(line, "%");
    check(take_size(line) == std::ssize(graph_.buffers_), "the next new buffer is %", graph_.buffers_.size());
    expect(line, " = ");
    Buffer buffer(nullptr, 0);
    buffer.constant = accept(line, "constant");
    if (buffer.constant || accept(line, "external")) buffer.external = true;
    else if (accept(line, "result")) buffer.result = true;
    else expect(line, "internal");
    const size_t comma = line.rfind(", ");
    check(comma != std::string_view::npos, "a buffer's bytes are missing");
    std::string_view name = line.substr(0, comma);
    if (!name.empty()) expect(name, " ");
    buffer.name = name;
    line.remove_prefix(comma + 2);
    buffer.bytes = static_cast<size_t>(take_size(line));
    expect(line, " bytes");
    if (buffer.constant) read_numbers(line, buffer);
    else check(line.empty(), "'", line, "' behind a buffer's bytes");
    graph_.buffers_.push_back(std::move(buffer));
    is_declared_.push_back(true);
    is_written_.push_back(graph_.buffers_.back().external);
  }

  void read_numbers(std::string_view digits, Buffer& buffer) {
    expect(digits, " ");
    check(digits.size() / 2 == buffer.bytes && digits.size() % 2 == 0, "a constant of ", buffer.bytes, " bytes has ",
          digits.size(), " hexadecimal digits");
    const Array array = Array::empty({static_cast<int64_t>(buffer.bytes)}, DType::u8);
    buffer.memory = static_cast<char*>(array.data());
    for (size_t i = 0; i < buffer.bytes; ++i) {
      const std::string_view pair = digits.substr(2 * i, 2);
      unsigned char byte = 0;
      check(std::from_chars(pair.begin(), pair.end(), byte, 16).ptr == pair.end(), "'", pair, "' is no byte");
      buffer.memory[i] = static_cast<char>(byte);
    }
    graph_.constants_.push_back(array);
  }

  void read_call(std::string_view line) {
    std::string_view origin;
    if (const size_t at = line.find("  # "); at != std::string_view::npos)
      origin = line.substr(at + 4), line = line.substr(0, at);
    const size_t equals = line.find(" = ");
    check(equals != std::string_view::npos, "a call has ' = ' behind what it writes");
    items_.clear();
    read_items(line.substr(0, equals));
    line.remove_prefix(equals + 3);
    const std::string_view operation = line.substr(0, line.find(' '));
    read_items(line.substr(std::min(operation.size() + 1, line.size())));
    std::unique_ptr<Call> call = make_call(operation);
    check(call != nullptr, "there is no operation '", operation, "'");
    read_origin(origin, call->origin);
    call_ = call.get();
    try {
      call->visit_arguments(*this);
    } catch (const IndexError& error) { check(false, error.what()); }  // a number that its type cannot have
    check(items_.empty(), "'", operation, "' has no argument '", items_.empty() ? "" : items_.begin()->first, "'");
    try {
      check_signature(*call);
    } catch (const Error& error) { check(false, "'", operation, "': ", error.what()); }
    check_pool_indices(*call);
    for (const Operand& operand : call->operands)
      if (operand.is_written && operand.buffer >= 0) is_written_[static_cast<size_t>(operand.buffer)] = true;
    graph_.calls_.push_back(std::move(call));
  }

  /// Kernels take the places of maxima as they are: they must be what max_pool2d has written for images of that size.
  void check_pool_indices(const Call& call) {
    const bool pools = call.name == std::string_view("max_pool2d");
    if (call.name == std::string_view("max_pool2d_backward") && call.operands[1].buffer >= 0) {
      const Operand &indices = call.operands[1], &dx = call.operands[2];
      const auto pool = pools_.find(indices.buffer);
      check(pool != pools_.end() && pool->second.offset == indices.offset &&
                pool->second.layout.shape == indices.layout.shape &&
                pool->second.layout.strides == indices.layout.strides && pool->second.image == dx.layout.shape,
            "'indices' is not what a max_pool2d of images of shape ", dx.layout.shape, " has written last");
    }
    for (const Operand& operand : call.operands)
      if (operand.is_written) pools_.erase(operand.buffer);
    if (pools && call.operands[2].buffer >= 0)
      pools_[call.operands[2].buffer] = {call.operands[2].offset, call.operands[2].layout,
                                         call.operands[0].layout.shape};
  }

  void read_items(std::string_view text) {
    while (!text.empty()) {
      std::string_view item = take_item(text);
      const size_t space = std::min(item.find(' '), item.size());
      const std::string name(item.substr(0, space));
      item.remove_prefix(std::min(space + 1, item.size()));
      check(items_.emplace(name, item).second, "'", name, "' comes twice");
    }
  }

  /// "conv2d of features.3, train.cpp:41"
  void read_origin(std::string_view text, Origin& origin) {
    const size_t comma = text.rfind(", "), colon = text.rfind(':');
    if (comma != std::string_view::npos && colon != std::string_view::npos && colon > comma) {
      std::string_view number = text.substr(colon + 1);
      origin.where.file = graph_.files_.emplace(text.substr(comma + 2, colon - comma - 2)).first->c_str();
      origin.where.line = take_number<int>(number);
      text = text.substr(0, comma);
    }
    const size_t of = text.find(" of ");
    origin.op = text.substr(0, of);
    if (of != std::string_view::npos) origin.module = text.substr(of + 4);
  }

  // ---- Arguments ----
  template <class AnyView>
  void read_operand(const std::string& name, AnyView& view, bool is_written) {
    const auto item = items_.find(name);
    if (item == items_.end()) return;  // absent
    std::string_view text = item->second;
    Operand operand;
    operand.is_written = is_written;
    if (!accept(text, "none")) {
      expect(text, "%");
      operand.buffer = static_cast<int>(find_buffer(take_size(text), is_written));
      if (accept(text, "+")) operand.offset = static_cast<size_t>(take_size(text));
    }
    expect(text, " ");
    read_layout(text, operand.layout);
    check(text.empty(), "'", text, "' behind an operand");
    check((operand.buffer < 0) == (operand.layout.numel() == 0),
          "an operand without elements, and no other, has no buffer");
    if (is_written) check_no_overlap(operand.layout);
    if (operand.buffer >= 0) place(operand);
    view = AnyView();
    static_cast<StridedLayout&>(view) = operand.layout;
    if (operand.buffer >= 0) view.data = graph_.offset_.data();  // until it has its place: this operand is not absent
    call_->operands.push_back(operand);
    items_.erase(item);
  }

  size_t find_buffer(int64_t number, bool is_written) {
    const auto at = static_cast<size_t>(number);
    std::vector<Buffer>& buffers = graph_.buffers_;
    check(at <= buffers.size(), "the next new buffer is %", buffers.size());
    if (at == buffers.size()) {
      buffers.emplace_back(nullptr, 0);
      is_declared_.push_back(false), is_written_.push_back(false);
    }
    check(is_written || is_written_[at], "nothing has written %", at, " before");
    check(!is_written || !buffers[at].constant, "%", at, " is a constant");
    return at;
  }

  void read_layout(std::string_view& text, StridedLayout& layout) const {
    layout.shape = take_dims(text);
    layout.strides = accept(text, " strides ") ? take_dims(text, true) : checked_strides(layout.shape);
    check(layout.strides.size() == layout.shape.size(), "as many strides as sizes are wanted");
    expect(text, " ");
    for (int i = 0; i < kDTypeCount; ++i) {
      layout.dtype = static_cast<DType>(i);
      if (text != gradus::name(layout.dtype)) continue;
      text = {};
      check_size(layout);
      return;
    }
    check(false, "'", text, "' is no type of elements");
  }
  Strides checked_strides(const Shape& shape) const {
    __int128 count = 1;
    for (int64_t size : shape) check((count *= std::max<int64_t>(size, 1)) <= kMostBytes, shape, " is too large");
    return contiguous_strides(shape);
  }
  void check_size(const StridedLayout& layout) const {
    checked_strides(layout.shape);
    __int128 last = 0;
    for (int i = 0; i < layout.ndim(); ++i)
      last += static_cast<__int128>(std::max<int64_t>(layout.shape[i], 1) - 1) * std::abs(layout.strides[i]);
    check((last + 1) * static_cast<int64_t>(size_of(layout.dtype)) <= kMostBytes, layout.shape, " strides ",
          layout.strides, " reaches too far");
  }
  /// From the narrowest stride to the widest, each axis must step over all elements of those before.
  void check_no_overlap(const StridedLayout& layout) const {
    const Dims axes = axes_by_stride(layout.strides);
    int64_t last = 0;
    for (int i = layout.ndim() - 1; i >= 0; --i) {
      const int axis = static_cast<int>(axes[i]);
      if (layout.shape[axis] <= 1) continue;
      check(layout.strides[axis] > last, "an operand that is written must not overlap itself");
      last += (layout.shape[axis] - 1) * layout.strides[axis];
    }
  }

  void place(const Operand& operand) {
    const auto at = static_cast<size_t>(operand.buffer);
    Buffer& buffer = graph_.buffers_[at];
    const Extent extent = extent_of(operand.layout);
    const auto offset = static_cast<int64_t>(operand.offset);
    const auto end = static_cast<size_t>(offset + extent.end);
    check(offset + extent.begin >= 0, "an operand begins ", -offset - extent.begin, " bytes before %", at);
    check(operand.offset % size_of(operand.layout.dtype) == 0, "an offset must be a multiple of its elements' size");
    if (!is_declared_[at]) buffer.bytes = std::max(buffer.bytes, end);
    check(end <= buffer.bytes, "%", at, " has ", buffer.bytes, " bytes, an operand ends behind ", end);
  }

  void read_value(const std::string& name, std::string_view text, bool& flag) const {
    check(text == "true" || text == "false", "'", name, "' must be true or false, is '", text, "'");
    flag = text == "true";
  }
  void read_value(const std::string& name, std::string_view text, int64_t& number) const {
    number = take_number<int64_t>(text);
    check(text.empty(), "'", name, "' must be an integer, '", text, "' is behind it");
  }
  void read_value(const std::string& name, std::string_view text, double& number) const {
    number = take_number<double>(text);
    check(text.empty(), "'", name, "' must be a number, '", text, "' is behind it");
  }
  void read_value(const std::string& name, std::string_view text, Scalar& scalar) const {
    if (text == "true" || text == "false") scalar = text == "true";
    else if (text.find_first_not_of("-0123456789") == std::string_view::npos) {
      int64_t number = 0;
      read_value(name, text, number);
      scalar = number;
    } else {
      double number = 0;
      read_value(name, text, number);
      scalar = number;
    }
  }
  void read_value(const std::string& name, std::string_view text, Choice& choice) const {
    choice.number =
        static_cast<size_t>(std::find(choice.names.begin(), choice.names.end(), text) - choice.names.begin());
    check(choice.number < choice.names.size(), "'", name, "' cannot be '", text, "'");
  }
  template <class T>
  void read_value(const std::string& name, std::string_view text, std::vector<T>& list) const {
    list.clear();
    expect(text, "[");
    while (!accept(text, "]")) {
      list.push_back(take_number<T>(text));
      if (!text.empty() && text[0] != ']') expect(text, ", ");
    }
    check(text.empty(), "'", text, "' behind the list '", name, "'");
  }

  struct Pool {
    size_t offset;
    StridedLayout layout;
    Shape image;
  };
  Graph graph_;
  int line_ = 0;
  std::map<int, Pool> pools_;                   // whose indices a buffer has
  std::vector<bool> is_declared_, is_written_;  // by buffer
  Call* call_ = nullptr;
  std::map<std::string, std::string_view> items_;  // of the call, by name; those that have been read are gone
};

Graph parse(std::string_view text) { return TextReader().read(text); }

}  // namespace gradus::graph
