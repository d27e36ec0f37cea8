// Indexing, gathering and scattering.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_index(CaseList&) {}

}  // namespace gradus::op_cases
