// What the tests of operators share: where cases run, how their derivatives are taken, how numbers are compared.
#pragma once

#include <map>
#include <string>

#include <gradus/core/parallel/parallel.h>
#include <gradus/core/registry.h>
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_testing {

using op_cases::Layout;
using op_cases::OpCase;

/// The device on which a backend of that name runs.
Device device_of(const std::string& backend_name);

/// Everything that one case computes. Inputs and results without a gradient leave their place undefined.
struct Computed {
  TensorList y;    ///< results
  TensorList g;    ///< gradients of sum(y * dy) with respect to the inputs
  TensorList h;    ///< gradients of sum(g * v) with respect to the inputs
  TensorList hdy;  ///< … and with respect to dy
};

/// Numbers that the derivatives start from: dy by result, v by input. Empty lists: drawn by make_like.
struct Directions {
  TensorList dy, v;
};

/// Runs `op_case` on `inputs` (fresh leaves, which start to require gradients) with its derivatives up to `order`.
Computed compute(const OpCase& op_case, const TensorList& inputs, int order, const Directions& directions = {});

/// `inputs` in that layout on that device, as leaves.
TensorList place(const TensorList& inputs, Layout layout, Device device);

/// How many times the tolerance of its results the gradients and second gradients of a case may be off.
inline constexpr double kGradient = 3, kSecondGradient = 10;

/// What the results of `op_case` may be off in `dtype`: the case's tolerance for that type or, if it is wider, for the
/// result's.
double tolerance_of(const OpCase& op_case, DType dtype, const Computed& expected);

/// What errors are relative to: the largest element of a tensor, or each element (to 1/1000 where it is less). Among
/// special numbers the largest one is huge, and an error of a small one would be nothing beside it.
enum class Scale : uint8_t { largest, own };
Scale scale_of(const OpCase& op_case);

/// test::difference() for lists; an undefined tensor counts as zeros. Integers and booleans have to be equal.
std::string differences(const char* what, const TensorList& actual, const TensorList& expected, double tolerance,
                        Scale scale = Scale::largest);

/// Results and derivatives of `actual` against `expected`, the derivatives with their multiples of `tolerance`.
std::string differences(const Computed& actual, const Computed& expected, double tolerance,
                        Scale scale = Scale::largest);

/// One thread until the end of the scope: results do not depend on the number, and small cases run faster.
class OneThread {
 public:
  OneThread() : threads_(num_threads()) { set_num_threads(1); }
  ~OneThread() { set_num_threads(threads_); }

 private:
  int threads_;
};

/// Calls `body` and returns what it says, or the text of its exception.
std::string guarded(const std::function<std::string()>& body);

}  // namespace gradus::op_testing
