// What PyTorch computes for the op cases: tests/golden/op_cases/FAMILY.safetensors, of tests/golden/make_golden.py.
#pragma once

#include "op_testing.h"

namespace gradus::op_testing {

/// One case in one type. Floating results are float64's, whatever the type that the inputs are rounded to.
struct Golden {
  TensorList inputs;
  Computed results;
  Directions directions;
};
Golden golden_of(const OpCase& op_case, DType dtype);

/// The Python call that the case's values were made with; "" if there are none.
std::string golden_call(const OpCase& op_case);

}  // namespace gradus::op_testing
