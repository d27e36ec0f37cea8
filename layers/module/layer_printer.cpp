#include <gradus/layers/module/layer_printer.h>

#include <sstream>
#include <utility>

#include <gradus/core/platform/process.h>
#include <gradus/layers/module/any_module.h>

namespace gradus::nn::detail {

namespace {

template <class T>
std::string text_of(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

template <class List>
std::string list_of(const List& values) {
  std::string text = "[";
  for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + text_of(value);
  return text + "]";
}

std::string size_or_none(const std::optional<int64_t>& size) { return size ? std::to_string(*size) : "None"; }

}  // namespace

std::string short_type(std::string name) {
  size_t start = 0, depth = 0;
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    if (name[i] == '<' || name[i] == '(') ++depth;
    if (name[i] == '>' || name[i] == ')') --depth;
    if (depth == 0 && name[i] == ':' && name[i + 1] == ':') start = i + 2;
  }
  name = name.substr(start);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

OptionText::OptionText(double value) : text(text_of(value)) {}
OptionText::OptionText(const Dims& values) : text(list_of(values)) {}
OptionText::OptionText(const std::vector<int64_t>& values) : text(list_of(values)) {}
OptionText::OptionText(const std::vector<double>& values) : text(list_of(values)) {}
OptionText::OptionText(const OutputSize& size)
    : text(list_of(std::vector<std::string>{size_or_none(size.h), size_or_none(size.w)})) {}

LayerPrinter::LayerPrinter(std::ostream& stream, const std::string& name) : stream_(stream) {
  stream_ << "gradus::nn::" << name << "(";
}
LayerPrinter::LayerPrinter(std::ostream& stream, const std::type_info& type)
    : LayerPrinter(stream, short_type(platform::demangled(type))) {}
LayerPrinter::~LayerPrinter() { stream_ << ")"; }

LayerPrinter& LayerPrinter::operator()(const char* label, const OptionText& value, bool shown) {
  if (shown) stream_ << std::exchange(separator_, ", ") << label << "=" << value.text;
  return *this;
}

LayerPrinter& LayerPrinter::value(const OptionText& value) {
  stream_ << std::exchange(separator_, ", ") << value.text;
  return *this;
}

}  // namespace gradus::nn::detail
