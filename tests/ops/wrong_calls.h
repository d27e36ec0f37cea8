// Tables of wrong calls: each throws the right kind of error, names its operator and both sides, cites the line of the
// call, and leaves the process healthy.
#pragma once

#include <gradus/tests/catch.h>

#include "op_testing.h"

namespace gradus::op_testing {

struct WrongCall {
  const char* op;                  ///< what the message names in brackets
  std::vector<const char*> parts;  ///< what else it has to say
  std::function<void()> call;
};

/// What is wrong with the error of a call, or "".
template <class Kind>
std::string verdict(const WrongCall& wrong) {
  try {
    wrong.call();
  } catch (const Kind& error) {
    const std::string text = error.what();
    if (text.find("[" + std::string(wrong.op) + "]") == std::string::npos) return "does not name the operator: " + text;
    for (const char* part : wrong.parts)
      if (text.find(part) == std::string::npos) return "does not say '" + std::string(part) + "': " + text;
    if (text.find("_test.cpp:") == std::string::npos) return "does not cite the line: " + text;
    return "";
  } catch (const std::exception& error) { return std::string("throws another kind: ") + error.what(); }
  return "does not throw";
}

/// A computation with gradients still gives what it should.
inline void still_healthy() {
  const Tensor x = tensor({{1., 2.}, {3., 4.}}, requires_grad());
  const Tensor y = (matmul(x, x) + x).sum();
  y.backward();
  CHECK(y.item<double>() == 64.0);
  CHECK(x.grad().equal(tensor({{8., 12.}, {10., 14.}}, kFloat)));
}

/// Makes the calls on every backend of the cpu.
template <class Kind>
void check_calls(const std::vector<WrongCall>& calls) {
  for (const std::string& backend_name : backend_names()) {
    if (!device_of(backend_name).is_cpu()) continue;
    const BackendGuard guard(backend_name);
    for (size_t i = 0; i < calls.size(); ++i) {
      const std::string where = backend_name + " call " + std::to_string(i) + " of " + calls[i].op + ": ";
      CHECK(where + verdict<Kind>(calls[i]) == where);
    }
    still_healthy();
  }
}

/// Ones: floats and integers.
inline Tensor f(IntArrayRef size) { return ones(size); }
inline Tensor i(IntArrayRef size) { return ones(size, kLong); }

}  // namespace gradus::op_testing
