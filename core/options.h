// How options structs of layers and optimizers are written.
#pragma once

/// A field of an options struct with a setter that chains and getters (options.bias() = false): LibTorch's TORCH_ARG.
///   struct LinearOptions { … GRADUS_ARG(bool, bias) = true; };
///   LinearOptions(784, 10).bias(false)
#define GRADUS_ARG(T, name)                          \
 public:                                             \
  auto name(const T& new_##name)->decltype(*this) {  \
    this->name##_ = new_##name;                      \
    return *this;                                    \
  }                                                  \
  T& name() noexcept { return name##_; }             \
  const T& name() const noexcept { return name##_; } \
                                                     \
 private:                                            \
  T name##_
