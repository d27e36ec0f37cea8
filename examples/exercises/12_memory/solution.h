#include "../common/exercise.h"

// Memory in bytes of a training step of Linear(784, 100), ReLU, Linear(100, 10) and cross_entropy with Adam.

/// The weights and biases.
inline int64_t parameter_bytes() {
  // [hole] parameter_bytes
  return 4 * (784 * 100 + 100 + 100 * 10 + 10);
  // [end]
}
/// The gradients of all parameters.
inline int64_t gradient_bytes() {
  // [hole] gradient_bytes
  return parameter_bytes();
  // [end]
}
/// Adam's two moving averages for each parameter.
inline int64_t optimizer_bytes() {
  // [hole] optimizer_bytes
  return 2 * parameter_bytes();
  // [end]
}
/// A batch of n images as float32, and its labels as int64.
inline int64_t input_bytes(int64_t n) {
  // [hole] input_bytes
  return n * (4 * 784 + 8);
  // [end]
}
/// The activations that the forward pass keeps for the backward pass.
inline int64_t activation_bytes(int64_t n) {
  // [hole] activation_bytes
  return 4 * n * (100 + 10 + 10);
  // [end]
}
