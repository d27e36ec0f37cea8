// Recorded steps for the tests of graphs.
#pragma once

#include <algorithm>
#include <functional>
#include <string_view>

#include <gradus/gradus.h>
#include <gradus/graph/executor.h>
#include <gradus/graph/recorder.h>
#include <gradus/tests/catch.h>

namespace gradus::test {

inline graph::Graph graph_of(const std::function<void()>& step, Device device = kCPU) {
  graph::Recorder recorder(device);
  step();
  return recorder.finish();
}

inline int64_t calls_named(const graph::Graph& graph, std::string_view name) {
  return std::count_if(graph.calls().begin(), graph.calls().end(),
                       [&](const auto& call) { return call->name == name; });
}

/// Runs the step eagerly and as a graph that `pass` has changed, each time with 7 in all elements of `results` before
/// it. Checks that the results are equal, up to rounding errors if `is_rounded`. Returns the text of the changed graph.
inline std::string text_after(const std::function<void(graph::Graph&)>& pass, const std::function<void()>& step,
                              const TensorList& results, bool is_rounded = false) {
  const auto reset = [&] {
    for (Tensor result : results) result.fill_(7);
  };
  reset();
  step();
  TensorList expected;
  for (const Tensor& result : results) expected.push_back(result.clone());
  graph::Graph graph = graph_of(step);
  pass(graph);
  const std::string text = graph.str();
  reset();
  graph::Executor(std::move(graph)).run();
  for (size_t i = 0; i < results.size(); ++i)
    CHECK((is_rounded ? results[i].allclose(expected[i]) : results[i].equal(expected[i])));
  return text;
}

/// The number of times that `part` is in the text.
inline int count_in(std::string_view text, std::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace gradus::test
