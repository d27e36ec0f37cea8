// Embedding and attention.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_attention(CaseList&) {}

}  // namespace gradus::op_cases
