// Sorting and what stands on it.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_sort(CaseList&) {}

}  // namespace gradus::op_cases
