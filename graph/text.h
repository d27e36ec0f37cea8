// Graphs as text, graph.txt: all that a recording holds, one line a call.
//
//   graph 1, draws 0, eager peak 148 bytes
//   %0 = external x, 48 bytes
//   %1 = external w, 24 bytes
//   y %2 (4, 2) float32 = matmul a %0 (4, 3) float32, b %1 (3, 2) float32, accumulate false  # matmul of fc, a.cpp:41
//
// The first line has the format's version, the random numbers that a run draws, and Graph::eager_peak(). Buffers are
// numbered in the order in which the text first names them. A line says what a buffer is, unless it is one of the step
// with as many bytes as its calls use:
//
//   %0 = external fc.weight, 24 bytes      was there before the step; the name may be missing
//   %3 = constant, 4 bytes 0000803f        numbers that the step itself made, by byte
//   %9 = result loss, 4 bytes              wanted after the step
//   %5 = internal, 128 bytes
//
// A call has what it writes, "=", the operation of core/backend.h, and its other arguments, each behind its name. An
// operand is a buffer, the offset of its first element in bytes where there is one (%3+64), a shape, strides in
// elements where they are not row-major, and a type; one without elements is of the buffer "none". Behind "  # " comes
// what the user knows the call by. Lines that are empty or begin with '#' are passed over.
#pragma once

#include <string_view>

#include <gradus/graph/graph.h>

namespace gradus::graph {

/// The graph that the text describes. An Executor runs it, on the backend that is current now, once each external
/// buffer is bound to an array. Names, numbers, sizes and types are checked, and that operands are within their
/// buffers, are written before they are read, and have the shapes and types that their operation wants
/// (signatures.h); what is wrong is an IoError that names the line. Calls whose result depends on numbers (nonzero) are
/// refused.
Graph parse(std::string_view text);

}  // namespace gradus::graph
