// Products of matrices and vectors beyond matmul.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_linear_algebra(CaseList&) {}

}  // namespace gradus::op_cases
