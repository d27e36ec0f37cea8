// Whatever the text, the reader of graphs returns or throws an IoError; what it returns is written and read again, and
// has a plan of its memory.
#include <gradus/core/graph/memory_plan.h>
#include <gradus/core/graph/text.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const gradus::graph::Graph graph = gradus::graph::parse({reinterpret_cast<const char*>(data), size});
    gradus::graph::plan_memory(graph);
    graph.dot();
    const std::string text = graph.str();
    if (gradus::graph::parse(text).str() != text) __builtin_trap();
  } catch (const gradus::IoError&) {}
  return 0;
}
