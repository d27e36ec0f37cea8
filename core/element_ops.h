// Forward declarations of the element-wise operations. They are separate from core/backend.h so that formulas and
// ISA-specific kernels include nothing else of the library, and separate from the lists in core/op_lists.h
// so that a new operation recompiles only the files that use those lists.
#pragma once

#include <cstdint>

namespace gradus {

enum class UnaryOp : uint8_t;
enum class BinaryOp : uint8_t;

/// Parameters of a unary op. clamp and hardtanh: [a, b]. leaky_relu: slope a. elu: x for x > 0, else a (exp(b x) - 1).
/// softplus: beta a, threshold b.
struct UnaryArgs {
  double a = 0, b = 0;
};

/// Types that an operation is defined for: all; floating types (array ops promote integers first); or integers.
enum class ElementTypes : uint8_t { any, floating, integral };

/// Recurrent cells (Elman 1990; Hochreiter and Schmidhuber 1997; Cho et al. 2014); core/formulas/recurrent_cell.h has
/// their formulas.
enum class RecurrentCell : uint8_t { rnn_tanh, rnn_relu, lstm, gru };
/// The names of the cells, in order.
inline constexpr const char* kRecurrentCellNames[] = {"rnn_tanh", "rnn_relu", "lstm", "gru"};
/// The number of gates. Each of them has a row of the weights for every hidden unit.
constexpr int gates_of(RecurrentCell cell) {
  return cell == RecurrentCell::lstm ? 4 : cell == RecurrentCell::gru ? 3 : 1;
}
/// The number of sums of a hidden unit. A GRU has two sums for its candidate.
constexpr int sums_of(RecurrentCell cell) { return cell >= RecurrentCell::lstm ? 4 : 1; }

}  // namespace gradus
