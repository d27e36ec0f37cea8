// Pooling beyond max_pool2d (see conv.cpp).
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_pool(CaseList&) {}

}  // namespace gradus::op_cases
