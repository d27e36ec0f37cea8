// A recorded graph as text and in Graphviz's language.
#include <gradus/gradus.h>
#include <gradus/graph/recorder.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;

TEST_CASE("arguments of all kinds are printed", "[graph]") {
  const Tensor x = randn({4, 6}), index = tensor({2, 0}, kLong), images = randn({1, 2, 5, 5});
  graph::Recorder recorder;
  const Tensor odd = x.transpose(0, 1).slice(0, 1, 6, 2);  // has strides and an offset
  TensorList results = {(odd * 0.1).clamp(-1, 1),
                        x.index_select(1, index),
                        std::get<0>(x.sort(1)),
                        x.argmax(1),
                        x.cumsum(0),
                        dropout(x, 0.25),
                        rand({3}),
                        x + tensor({1.5f, 2, 3, 4, 5, 6}),
                        x.to(kLong) + 3,
                        adaptive_avg_pool2d(images, 3),
                        x.pow(2).sum(1),
                        x.flip(1)};
  graph::Graph graph = recorder.finish();
  graph.set_name(x.array(), "x");
  graph.set_result(results[0].array());
  CHECK_THAT(graph.str(), contains("%0 = external x, 96 bytes\n") && contains(" strides (2, 6) float32") &&
                              contains("+4 (") && contains("p 0.25") && contains(" = constant, 24 bytes\n") &&
                              contains(" = result, ") && contains("op argmax") && contains("scalar 3,") &&
                              contains("rows.weight [") && contains("state.device_offset true"));
  CHECK_THAT(graph.dot(), contains("digraph step {") && contains("label=\"arg_reduce\"") &&
                              contains("[shape=ellipse, label=\"x\"]") && contains("[label=\"(4, 6) float32\"]"));
}
