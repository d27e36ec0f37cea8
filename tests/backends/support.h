// Random arrays in every layout, and the comparison of backends with naive.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gradus/core/backend.h>
#include <gradus/core/registry.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>

namespace gradus::test {

/// The layout of an array in memory. reversed: axes in the opposite order. gapped: every second element of a larger
/// array, starting at an offset. broadcast: every other axis is expanded (inputs only). channels_last:
/// four-dimensional, NHWC.
enum class Layout { contiguous, reversed, gapped, broadcast, channels_last };
std::string name(Layout layout);
/// The layouts of outputs.
inline constexpr Layout kOutputLayouts[] = {Layout::contiguous, Layout::reversed, Layout::gapped};
inline constexpr Layout kImageLayouts[] = {Layout::contiguous, Layout::channels_last, Layout::gapped};
inline constexpr Layout kInputLayouts[] = {Layout::contiguous, Layout::reversed, Layout::gapped, Layout::broadcast};

/// The types in which backends are compared. Kernels distribute work among threads in the same way for all types, so
/// one type of each size is enough for ThreadSanitizer.
#ifdef GRADUS_THREAD_SANITIZER
inline constexpr DType kAllDTypes[] = {DType::f32, DType::bf16, DType::i64, DType::u8};
inline constexpr DType kFloatingDTypes[] = {DType::f32, DType::bf16};
#else
inline constexpr DType kAllDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                                       DType::i64, DType::i32, DType::u8,  DType::boolean};
inline constexpr DType kFloatingDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
#endif

/// Creates host arrays filled with random numbers, including the gaps.
class Maker {
 public:
  explicit Maker(uint32_t seed) : engine_(seed) {}
  /// Multiples of 1/8 in [low, high] (integers for integer types), so that some elements are equal.
  Array operator()(const Shape& shape, DType dtype, Layout layout = Layout::contiguous, double low = -3,
                   double high = 3);
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  template <class List>
  auto choice(const List& list) {
    return std::begin(list)[integer(0, static_cast<int64_t>(std::size(list)) - 1)];
  }

 private:
  std::minstd_rand engine_;  // fast, even where tests are compiled without optimisation
};

/// True if check_agreement includes a backend of a device.
bool has_device_backend();
/// All of the list if there is such a backend, else one element chosen at random, which is enough for the CPU kernels,
/// since these have their own tests.
template <class List>
auto sample(Maker& make, const List& list) {
  using Value = std::decay_t<decltype(*std::begin(list))>;
  if (has_device_backend()) return std::vector<Value>(std::begin(list), std::end(list));
  return std::vector<Value>{make.choice(list)};
}

/// A host array with the given values.
Array array_of(const Shape& shape, const std::vector<double>& values, DType dtype = DType::f64);
Array scalar_of(double value, DType dtype = DType::f64);

using Arrays = std::vector<Array>;
using Run = std::function<void(Backend& backend, const Arrays& in, const Arrays& out)>;

/// Runs `run` on naive and on every other backend, each with its own copies on its device, and requires that the
/// outputs agree and that gaps between their elements are unchanged. If `default_run` (a composite's default body) is
/// given, it is compared on every backend, including naive. CPU backends must also give the same bits on one thread.
/// `factor` scales the tolerance of the outputs' types, which is at most 0.2.
void check_agreement(const std::string& what, const Arrays& in, const Arrays& out, const Run& run,
                     const Run& default_run = {}, double factor = 1);

}  // namespace gradus::test
