// Arrays of random numbers in every layout, and the comparison of backends with naive.
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

/// How an array lies in memory. reversed: axes in the opposite order; gapped: every second element of a larger array,
/// from an offset; broadcast: every other axis expanded (for inputs); channels_last: four-dimensional, NHWC.
enum class Layout { contiguous, reversed, gapped, broadcast, channels_last };
std::string name(Layout layout);
/// The layouts that an output may have.
inline constexpr Layout kOutputLayouts[] = {Layout::contiguous, Layout::reversed, Layout::gapped};
inline constexpr Layout kImageLayouts[] = {Layout::contiguous, Layout::channels_last, Layout::gapped};
inline constexpr Layout kInputLayouts[] = {Layout::contiguous, Layout::reversed, Layout::gapped, Layout::broadcast};

/// The types to compare backends in. Kernels of all types share their work between threads alike: one of each size is
/// enough for ThreadSanitizer.
#ifdef GRADUS_THREAD_SANITIZER
inline constexpr DType kAllDTypes[] = {DType::f32, DType::bf16, DType::i64, DType::u8};
inline constexpr DType kFloatingDTypes[] = {DType::f32, DType::bf16};
#else
inline constexpr DType kAllDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                                       DType::i64, DType::i32, DType::u8,  DType::boolean};
inline constexpr DType kFloatingDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
#endif

/// Makes host arrays filled with random numbers, gaps included.
class Maker {
 public:
  explicit Maker(uint32_t seed) : engine_(seed) {}
  /// Eighths in [low, high] (integers for integral types), so that equal elements occur.
  Array operator()(const Shape& shape, DType dtype, Layout layout = Layout::contiguous, double low = -3,
                   double high = 3);
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  template <class List>
  auto choice(const List& list) {
    return std::begin(list)[integer(0, static_cast<int64_t>(std::size(list)) - 1)];
  }

 private:
  std::mt19937 engine_;
};

/// True where a device's backend takes part in check_agreement.
bool has_device_backend();
/// All of the list there; else one by chance, which is enough for the host's kernels: they have tests of their own.
template <class List>
auto sample(Maker& make, const List& list) {
  using Value = std::decay_t<decltype(*std::begin(list))>;
  if (has_device_backend()) return std::vector<Value>(std::begin(list), std::end(list));
  return std::vector<Value>{make.choice(list)};
}

/// A host array (dtype f64 when not said) of given values.
Array array_of(const Shape& shape, const std::vector<double>& values, DType dtype = DType::f64);
Array scalar_of(double value, DType dtype = DType::f64);

using Arrays = std::vector<Array>;
using Run = std::function<void(Backend& backend, const Arrays& in, const Arrays& out)>;

/// Runs `run` on naive and on every other backend, each with copies of its own on its device, and requires that the
/// outputs agree, gaps between their elements untouched. Where `default_run` is given (a composite's default body), it
/// is compared on every backend, naive included. Host backends must also give the same bits on one thread. `factor`
/// scales the tolerance of the outputs' types, to 0.2 at most.
void check_agreement(const std::string& what, const Arrays& in, const Arrays& out, const Run& run,
                     const Run& default_run = {}, double factor = 1);

}  // namespace gradus::test
