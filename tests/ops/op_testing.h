// Helpers of the tests of operators: devices, derivatives of op cases, comparison of numbers.
#pragma once

#include <map>
#include <string>

#include <gradus/core/parallel/parallel.h>
#include <gradus/core/registry.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_testing {

using op_cases::Layout;
using op_cases::OpCase;

/// The device of the backend of this name.
Device device_of(const std::string& backend_name);

/// Calls body() with each CPU backend as the current backend.
template <class Body>
void on_each_cpu_backend(Body&& body) {
  for (const std::string& name : backend_names()) {
    INFO(name);
    const BackendGuard guard(name);
    if (device_of(name).is_cpu()) body();
  }
}

/// The results and derivatives of an op case. Where an input has no gradient, or a result none to propagate, the tensor
/// in the list is undefined.
struct Computed {
  TensorList y;    ///< results
  TensorList g;    ///< gradients of sum(y * dy) with respect to the inputs
  TensorList h;    ///< gradients of sum(g * v) with respect to the inputs
  TensorList hdy;  ///< gradients of sum(g * v) with respect to dy
};

/// The factors in the sums that are differentiated (see Computed): one dy for each result and one v for each input. If
/// the lists are empty, op_cases::make_like() draws random factors.
struct Directions {
  TensorList dy, v;
};

/// Runs `op_case` on `inputs` and computes its derivatives up to `order`. The inputs are new leaves; compute() makes
/// them require gradients.
Computed compute(const OpCase& op_case, const TensorList& inputs, int order, const Directions& directions = {});

/// Copies of `inputs` in this layout on this device, as leaves.
TensorList place(const TensorList& inputs, Layout layout, Device device);

/// The tolerances of the gradients and second gradients of a case, as multiples of the tolerance of its results.
inline constexpr double kGradient = 3, kSecondGradient = 10;

/// The tolerance of the results of `op_case` for inputs of type `dtype`: the largest of the case's tolerances for this
/// type and for the types of the results.
double tolerance_of(const OpCase& op_case, DType dtype, const Computed& expected);

/// The number that errors are relative to: the largest element of the tensor, or the element itself (1/1000 if it is
/// smaller). `own` is for cases with special numbers: their largest element is huge, so errors of the small elements
/// would not count.
enum class Scale : uint8_t { largest, own };
Scale scale_of(const OpCase& op_case);

/// test::difference() for lists. An undefined tensor counts as zeros. Integers and booleans must be equal.
std::string differences(const char* what, const TensorList& actual, const TensorList& expected, double tolerance,
                        Scale scale = Scale::largest);

/// Compares results with `tolerance`, and derivatives with kGradient and kSecondGradient times `tolerance`.
std::string differences(const Computed& actual, const Computed& expected, double tolerance,
                        Scale scale = Scale::largest);

/// Limits parallel_for to one thread until the end of the scope. Small cases then run faster, with the same results.
class OneThread {
 public:
  OneThread() : threads_(num_threads()) { set_num_threads(1); }
  ~OneThread() { set_num_threads(threads_); }

 private:
  int threads_;
};

/// Returns body(), or the message of the exception that it throws.
std::string guarded(const std::function<std::string()>& body);

}  // namespace gradus::op_testing
