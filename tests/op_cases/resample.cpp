// Padding, interpolation and unfolding.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_resample(CaseList&) {}

}  // namespace gradus::op_cases
