// Fields of options structs of layers and optimizers, and of the argument structs of backends.
#pragma once

#include <optional>
#include <string_view>

namespace gradus {

/// An empty optional whose bytes are initialised. Options are copied while such a field is empty, and g++ 12 and 13
/// warn about uninitialised numbers in programs that copy an empty std::optional.
template <class T>
std::optional<T> absent() {
  std::optional<T> result(T{});
  result.reset();
  return result;
}

}  // namespace gradus

/// A field of an options struct with a chaining setter and getters (options.bias() = false), as LibTorch's TORCH_ARG.
///   struct LinearOptions { … GRADUS_ARG(bool, bias) = true; };
///   LinearOptions(784, 10).bias(false)
#define GRADUS_ARG(T, name) GRADUS_ARG_OF(decltype(*this), T, name)

/// A field that several options structs have in common. They derive from the struct that declares it, and its setter
/// returns the derived struct:
///   template <class Options>
///   struct Affine { GRADUS_ARG_OF(Options, Tensor, weight); };
///   struct GroupNormFuncOptions : Affine<GroupNormFuncOptions> { … };
#define GRADUS_ARG_OF(Options, T, name) \
 public: \
  auto name(const T& new_##name)->Options& { \
    this->name##_ = new_##name; \
    return static_cast<Options&>(*this); \
  } \
  T& name() noexcept { return name##_; } \
  const T& name() const noexcept { return name##_; } \
\
 private: \
  T name##_

/// Lists the fields of a struct once, so that generic code can record, print and read back any call or option: defines
/// with_fields(f), which calls f with all fields of the struct in order, and field_names(): "x, w, bias".
#define GRADUS_FIELDS(...) \
  template <class F> \
  decltype(auto) with_fields(F&& f) { \
    return f(__VA_ARGS__); \
  } \
  template <class F> \
  decltype(auto) with_fields(F&& f) const { \
    return f(__VA_ARGS__); \
  } \
  static constexpr std::string_view field_names() { return #__VA_ARGS__; }
