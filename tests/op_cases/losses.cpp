// Losses beyond cross-entropy (see loss.cpp).
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_losses(CaseList&) {}

}  // namespace gradus::op_cases
