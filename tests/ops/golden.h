// The results that PyTorch computes for the op cases. tests/golden/make_golden.py stores them in
// tests/golden/op_cases/FAMILY.safetensors.
#pragma once

#include "op_testing.h"

namespace gradus::op_testing {

/// The golden values of a case for inputs of one type. Floating-point results were computed in float64 from inputs that
/// were rounded to this type.
struct Golden {
  TensorList inputs;
  Computed results;
  Directions directions;
};
Golden golden_of(const OpCase& op_case, DType dtype);

/// The Python call that computed the golden values of the case; "" if it has none.
std::string golden_call(const OpCase& op_case);

}  // namespace gradus::op_testing
