// Normalisation.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_norm(CaseList&) {}

}  // namespace gradus::op_cases
