// Activation functions.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_activation(CaseList&) {}

}  // namespace gradus::op_cases
