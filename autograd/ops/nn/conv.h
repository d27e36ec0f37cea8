// Convolution, its fusion with ReLU, and transposed convolution.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/backend.h>

namespace gradus {

/// One number for both directions, or a pair (height, width), or a list of one or two numbers.
struct Pair {
  template <std::integral T>
  requires(!std::same_as<T, bool>) Pair(T both)
      : h(static_cast<int64_t>(both)), w(h) {}  // NOLINT(google-explicit-constructor)
  Pair(int64_t h_, int64_t w_) : h(h_), w(w_) {}
  template <class List>
  requires std::same_as<List, IntArrayRef> || std::same_as<List, std::vector<int64_t>>  // braces call Pair(h, w)
  Pair(const List& sizes) {  // NOLINT(google-explicit-constructor)
    const IntArrayRef list = sizes;
    GRADUS_CHECK(list.size() == 1 || list.size() == 2, ValueError, "expected one or two numbers, got ", list);
    h = list.front(), w = list.back();
  }
  int64_t h, w;
};

/// Padding by name (torch::kValid, torch::kSame). `valid` means no padding. `same` gives the result the size of x and
/// needs stride 1; if the total padding is odd, the end gets one element more than the start.
enum class AutoPadding : uint8_t { valid, same };
inline constexpr AutoPadding kValid = AutoPadding::valid, kSame = AutoPadding::same;
/// Padding of a convolution: one number, a pair, or a name, also as the string "valid" or "same".
struct ConvPadding : Pair {
  using Pair::Pair;
  ConvPadding(Pair pair) : Pair(pair) {}                    // NOLINT(google-explicit-constructor)
  ConvPadding(AutoPadding name_) : Pair(0), name(name_) {}  // NOLINT(google-explicit-constructor)
  template <std::convertible_to<std::string_view> Name>
  ConvPadding(Name&& text)  // NOLINT(google-explicit-constructor): with `const Name&`, clang 14 ignores Pair's list
      : ConvPadding(std::string_view(text) == "same" ? AutoPadding::same : AutoPadding::valid) {
    GRADUS_CHECK(is_same() || std::string_view(text) == "valid", ValueError, "padding must be 'valid' or 'same', got '",
                 std::string_view(text), "'");
  }
  bool is_same() const { return name == AutoPadding::same; }
  std::optional<AutoPadding> name = absent<AutoPadding>();  ///< if set, h and w are 0
};

/// Cross-correlation of x (N, C, H, W) with w (K, C / groups, R, S), plus bias (K) if defined; result (N, K, P, Q).
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Pair stride = 1, ConvPadding padding = 0,
              Pair dilation = 1, int64_t groups = 1, Loc where = Loc::current());
/// relu(conv2d(…)), in one kernel forward and one kernel backward if the backend has them.
Tensor conv2d_relu(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Pair stride = 1, ConvPadding padding = 0,
                   Pair dilation = 1, int64_t groups = 1, Loc where = Loc::current());
/// Cross-correlation of x (N, C, L) with w (K, C / groups, R), plus bias (K) if defined; result (N, K, P).
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, int64_t stride = 1, ConvPadding padding = 0,
              int64_t dilation = 1, int64_t groups = 1, Loc where = Loc::current());

/// The transpose of conv2d (its gradient with respect to x), plus bias (K) if defined: x (N, C, H, W) and w (C, K /
/// groups, R, S) give (N, K, P, Q) with P = (H - 1) stride - 2 padding + dilation (R - 1) + output_padding + 1. conv2d
/// maps several sizes P to the same H; output_padding, less than stride or dilation, selects one of them.
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Pair stride = 1, Pair padding = 0,
                        Pair output_padding = 0, int64_t groups = 1, Pair dilation = 1, Loc where = Loc::current());
/// The transpose of conv1d, for x (N, C, L) and w (C, K / groups, R).
Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, int64_t stride = 1,
                        int64_t padding = 0, int64_t output_padding = 0, int64_t groups = 1, int64_t dilation = 1,
                        Loc where = Loc::current());

}  // namespace gradus
