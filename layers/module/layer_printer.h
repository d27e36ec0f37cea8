// Writes the line of a layer in a printed net. Not part of the public interface.
#pragma once

#include <concepts>
#include <iosfwd>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include <gradus/autograd/ops/nn/pool.h>

namespace gradus::nn::detail {

/// The value of an option as text, in LibTorch's format: true, 0.5, [2, 2].
struct OptionText {
  // NOLINTBEGIN(google-explicit-constructor)
  OptionText(bool value) : text(value ? "true" : "false") {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) OptionText(T value) : text(std::to_string(value)) {}
  OptionText(double value);
  OptionText(const char* value) : text(value) {}
  OptionText(const std::string& value) : text(value) {}
  OptionText(const Dims& values);
  OptionText(const std::vector<int64_t>& values);
  OptionText(const std::vector<double>& values);
  OptionText(Pair size) : OptionText(Dims{size.h, size.w}) {}
  OptionText(const OutputSize& size);
  // NOLINTEND(google-explicit-constructor)
  std::string text;
};

/// Shortens "gradus::nn::Conv2dImpl" to "Conv2d".
std::string short_type(std::string name);

/// Writes gradus::nn::Name(a=1, b=true):  LayerPrinter(stream, "Name")("a", 1)("b", true);
class LayerPrinter {
 public:
  LayerPrinter(std::ostream& stream, const std::string& name);
  /// Named by the type of the module: gradus::nn::LinearImpl prints as gradus::nn::Linear.
  LayerPrinter(std::ostream& stream, const std::type_info& type);
  ~LayerPrinter();
  LayerPrinter(const LayerPrinter&) = delete;
  LayerPrinter& operator=(const LayerPrinter&) = delete;

  /// Pass `shown` for an option that LibTorch prints only if it differs from the default.
  LayerPrinter& operator()(const char* label, const OptionText& value, bool shown = true);
  /// Prints nothing for an absent value.
  template <class T>
  LayerPrinter& operator()(const char* label, const std::optional<T>& value) {
    return value ? (*this)(label, *value) : *this;
  }
  /// Prints a value without a label.
  LayerPrinter& value(const OptionText& value);

 private:
  std::ostream& stream_;
  const char* separator_ = "";
};

}  // namespace gradus::nn::detail
