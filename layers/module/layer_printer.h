// Helpers with which layers print themselves. Not part of the public interface.
#pragma once

#include <ostream>
#include <vector>

#include <gradus/autograd/ops/conv.h>

namespace gradus::nn::detail {

/// Writes gradus::nn::Name(a=1, b=true):  LayerPrinter(stream, "Name")("a", 1)("b", true);
class LayerPrinter {
 public:
  LayerPrinter(std::ostream& stream, const char* name) : stream_(stream) { stream << "gradus::nn::" << name << "("; }
  ~LayerPrinter() { stream_ << ")"; }
  LayerPrinter(const LayerPrinter&) = delete;
  LayerPrinter& operator=(const LayerPrinter&) = delete;

  template <class T>
  LayerPrinter& operator()(const char* label, const T& value) {
    (*this)();
    stream_ << label << "=";
    print(value);
    return *this;
  }
  /// Prints the value only if `shown`, for options that LibTorch prints only if they differ from the default.
  template <class T>
  LayerPrinter& operator()(const char* label, const T& value, bool shown) {
    return shown ? (*this)(label, value) : *this;
  }
  /// Prints a value without a label.
  template <class T>
  LayerPrinter& value(const T& value) {
    (*this)();
    print(value);
    return *this;
  }

 private:
  void operator()() {
    if (!first_) stream_ << ", ";
    first_ = false;
  }
  template <class T>
  void print(const T& value) {
    stream_ << value;
  }
  void print(bool value) { stream_ << (value ? "true" : "false"); }
  void print(Pair value) { stream_ << "[" << value.h << ", " << value.w << "]"; }
  template <class T>
  void print(const std::vector<T>& values) {
    stream_ << "[";
    for (size_t i = 0; i < values.size(); ++i) stream_ << (i ? ", " : "") << values[i];
    stream_ << "]";
  }
  void print(const Dims& values) { print(values.vec()); }

  std::ostream& stream_;
  bool first_ = true;
};

}  // namespace gradus::nn::detail
