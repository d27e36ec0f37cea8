// Which planted mistake is alive in a program of tests/mutation: sources that hold several mutants ask
// `gradus_mutant(17) ? (mutated) : (original)`. The number comes from the environment (trace.cpp).
#pragma once

#include <type_traits>

namespace gradus::mutation {

inline constexpr int kMaxMutants = 1 << 14;
extern int alive;               // the number of the mutant; 0: none; -1: none, and reached mutants are recorded
extern unsigned char* reached;  // kMaxMutants flags

}  // namespace gradus::mutation

/// Returns true if mutant `id` (from 1) is alive. What the compiler evaluates has no mutants.
constexpr bool gradus_mutant(int id) {
  if (std::is_constant_evaluated()) return false;
  if (gradus::mutation::alive < 0) gradus::mutation::reached[id] = 1;
  return gradus::mutation::alive == id;
}
