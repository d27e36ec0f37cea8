#include <gradus/layers/layer.h>

#include <sstream>
#include <utility>

namespace gradus::nn::detail {

namespace {

std::string size_or_none(const std::optional<int64_t>& size) { return size ? std::to_string(*size) : "None"; }

}  // namespace

std::string short_type(std::string name) {
  name = platform::unqualified(name);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

OptionText::OptionText(double value) {
  std::ostringstream stream;
  stream << value;
  text = stream.str();
}
OptionText::OptionText(const OutputSize& size)
    : OptionText(std::vector<std::string>{size_or_none(size.h), size_or_none(size.w)}) {}

LayerPrinter::LayerPrinter(std::ostream& stream, const std::string& name) : stream_(stream) {
  stream_ << "gradus::nn::" << name << "(";
}
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
