#include <gradus/autograd/tensor.h>

#include <cmath>
#include <cstdio>
#include <ostream>

#include <gradus/core/ops/ops.h>
#include <gradus/core/runtime/recorded_memory.h>

namespace gradus {
namespace {

// How the elements of a tensor are printed: all in fixed or all in scientific notation, with one width and possibly a
// common factor.
struct Format {
  double scale = 1;
  int width = 0;
  int precision = 0;
  bool scientific = false;
};

// Chooses the format as LibTorch does: integers without a decimal point, other values with four decimals; a common
// factor 10^k if all values are large or all are small; scientific notation if magnitudes differ widely.
Format format_for(const std::vector<double>& values) {
  Format format;
  bool integers = true;
  double least = 0, most = 0;
  bool any = false;
  for (double value : values) {
    if (!std::isfinite(value)) continue;
    if (value != std::ceil(value)) integers = false;
    const double magnitude = std::abs(value);
    least = any ? std::min(least, magnitude) : magnitude;
    most = any ? std::max(most, magnitude) : magnitude;
    any = true;
  }
  auto exponent = [](double x) { return x != 0 ? static_cast<int>(std::floor(std::log10(x))) + 1 : 1; };
  const int low = any ? exponent(least) : 1, high = any ? exponent(most) : 1;
  if (integers) {
    format.scientific = high > 9;
    format.precision = format.scientific ? 4 : 0;
    format.width = format.scientific ? 11 : high + 1;
  } else if (high - low > 4) {
    format.scientific = true;
    format.width = std::abs(high) > 99 || std::abs(low) > 99 ? 12 : 11;
    format.precision = 4;
  } else {
    format.precision = 4;
    if (high > 5 || high < 0) {
      format.width = 7;
      format.scale = std::pow(10, high - 1);
    } else {
      format.width = high == 0 ? 7 : high + 6;
    }
  }
  return format;
}

std::string number(double value, const Format& format) {
  char text[64];
  if (std::isnan(value)) std::snprintf(text, sizeof text, "%*s", format.width, "nan");
  else if (std::isinf(value)) std::snprintf(text, sizeof text, "%*s", format.width, value > 0 ? "inf" : "-inf");
  else
    std::snprintf(text, sizeof text, format.scientific ? "%*.*e" : "%*.*f", format.width, format.precision,
                  value / format.scale);
  return text;
}

std::string scale_line(const Format& format) {
  if (format.scale == 1) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%g *\n", format.scale);
  return text;
}

constexpr int kLineWidth = 80;

// Prints rows of numbers, in groups of as many columns as fit into a line.
std::string matrix(const double* values, int64_t rows, int64_t columns, const Format& format) {
  const int64_t per_line = std::max<int64_t>(1, kLineWidth / (format.width + 1));
  std::string text = scale_line(format);
  for (int64_t first = 0; first < columns; first += per_line) {
    const int64_t last = std::min(columns, first + per_line) - 1;
    if (columns > per_line) {
      if (first > 0) text += "\n";
      text += "Columns " + std::to_string(first + 1) + " to " + std::to_string(last + 1) + "\n";
    }
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = first; column <= last; ++column) {
        text += (column == first && format.scale != 1) ? " " : column == first ? "" : " ";
        text += number(values[row * columns + column], format);
      }
      text += "\n";
    }
  }
  return text;
}

std::string footer(const Tensor& tensor) {
  std::string text = "[ " + tensor.toString() + "{";
  for (int i = 0; i < tensor.dim(); ++i) text += (i ? "," : "") + std::to_string(tensor.sizes()[i]);
  return text + "} ]";
}

}  // namespace

std::string Tensor::toString() const { return (is_cuda() ? "CUDA" : "CPU") + std::string(type_name(dtype())) + "Type"; }

std::string Tensor::str() const {
  if (!defined()) return "[ Tensor (undefined) ]";
  const OpContext context("print");
  check_not_recording(device().type(), "printing a tensor");
  const Array here = ops::contiguous(ops::cast(ops::to_device(array(), Device()), DType::f64));
  const double* data = static_cast<const double*>(here.data());
  const std::vector<double> values(data, data + here.numel());
  const Format format = format_for(values);
  std::string text;
  if (dim() == 0) {
    char one[64];
    std::snprintf(one, sizeof one, "%g", values[0]);
    text = std::string(one) + "\n";
  } else if (dim() == 1) {
    if (!values.empty()) text = scale_line(format);
    for (double value : values) text += number(value, format) + "\n";
  } else if (numel() > 0) {
    const int64_t rows = sizes()[static_cast<int>(dim()) - 2], columns = sizes()[static_cast<int>(dim()) - 1];
    Shape lead(sizes().data(), static_cast<size_t>(dim() - 2));
    const int64_t planes = numel_of(lead);
    for (int64_t plane = 0; plane < planes; ++plane) {
      if (dim() > 2) {
        std::string at;
        for (int64_t axis = lead.size() - 1, rest = plane; axis >= 0; rest /= lead[static_cast<int>(axis)], --axis)
          at = std::to_string(rest % lead[static_cast<int>(axis)] + 1) + "," + at;
        if (plane > 0) text += "\n";
        text += "(" + at + ".,.) = \n";
      }
      const double* first = values.data() + plane * rows * columns;
      text += matrix(first, rows, columns, format_for({first, first + rows * columns}));
    }
  }
  return text + footer(*this);
}

std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) { return stream << tensor.str(); }

std::ostream& operator<<(std::ostream& stream, const Dims& dims) {
  stream << "[";
  for (int i = 0; i < dims.size(); ++i) stream << (i ? ", " : "") << dims[i];
  return stream << "]";
}

std::ostream& operator<<(std::ostream& stream, DType dtype) { return stream << type_name(dtype); }
std::ostream& operator<<(std::ostream& stream, Device device) { return stream << device.str(); }

}  // namespace gradus
