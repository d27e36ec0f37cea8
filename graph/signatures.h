// What the operations of core/backend.h want of their operands, for calls that no operator's own checks have made:
// those of a text (text.h).
#pragma once

#include <gradus/graph/call.h>

namespace gradus::graph {

/// A ShapeError, DTypeError or ValueError that names the operands and both sides where shapes or types do not fit each
/// other or what the call's options say: run like that, a kernel would read or write outside of them.
void check_signature(Call& call);

}  // namespace gradus::graph
