// Whatever the text, the reader of graphs returns or throws an IoError; what it returns is written and read again, has
// a plan of its memory, and, where it is small, runs on the reference backend or throws an Error.
#include <algorithm>
#include <cctype>

#include <gradus/core/registry.h>
#include <gradus/graph/executor.h>
#include <gradus/graph/text.h>

namespace {

/// No number of more than three digits, and so no loop that takes long.
bool is_small(std::string_view text) {
  int digits = 0;
  return std::none_of(text.begin(), text.end(), [&](char c) {
    digits = std::isdigit(static_cast<unsigned char>(c)) ? digits + 1 : 0;
    return digits > 3;
  });
}

void run(gradus::graph::Graph graph) {
  for (size_t i = 0; i < graph.buffers().size(); ++i) {
    const gradus::graph::Buffer& buffer = graph.buffers()[i];
    if (!buffer.external || buffer.constant) continue;
    const gradus::Array bytes = gradus::Array::empty({static_cast<int64_t>(buffer.bytes)}, gradus::DType::u8);
    std::fill_n(static_cast<char*>(bytes.data()), buffer.bytes, 1);
    graph.bind("%" + std::to_string(i), bytes);
  }
  gradus::graph::Executor(std::move(graph)).run();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  const gradus::BackendGuard naive("naive");
  try {
    gradus::graph::Graph graph = gradus::graph::parse(input);
    gradus::graph::plan_memory(graph);
    graph.dot();
    const std::string text = graph.str();
    if (gradus::graph::parse(text).str() != text) __builtin_trap();
    if (!is_small(input)) return 0;
    try {
      run(std::move(graph));
    } catch (const gradus::Error&) {}  // a kernel's: a class that there is not, say
  } catch (const gradus::IoError&) {}
  return 0;
}
