// Layers: their parameters are inputs of the case.
#include <gradus/tests/op_cases/op_case.h>

namespace gradus::op_cases {

void add_layers(CaseList&) {}

}  // namespace gradus::op_cases
