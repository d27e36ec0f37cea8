// Recorded steps as text: what is read back gives the bits of eager steps, and what is wrong is named with its line.
#include <cstring>

#include <gradus/benchmarks/nets.h>
#include <gradus/gradus.h>
#include <gradus/graph/executor.h>
#include <gradus/graph/recorder.h>
#include <gradus/graph/text.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;

namespace {

/// The bytes of an external buffer, in their place.
Array bytes_of(const graph::Buffer& buffer) {
  return Array(Storage::adopt(buffer.memory, buffer.bytes, Device(), nullptr), 0, {static_cast<int64_t>(buffer.bytes)},
               {1}, DType::u8);
}

Array copy_of(const Array& bytes) {
  Array copy = Array::empty(bytes.shape(), bytes.dtype());
  std::memcpy(copy.data(), bytes.data(), bytes.nbytes());
  return copy;
}

/// Gives each external buffer of a recording a name, and keeps what is in it.
std::vector<std::pair<std::string, Array>> name_externals(graph::Graph& graph) {
  std::vector<std::pair<std::string, Array>> externals;
  for (const graph::Buffer& buffer : graph.buffers()) {
    if (!buffer.external || buffer.constant) continue;
    const Array bytes = bytes_of(buffer);
    externals.emplace_back("external " + std::to_string(externals.size()), bytes);
    graph.set_name(bytes, externals.back().first);
  }
  return externals;
}

/// Records a step of the net from a state that a first step has made, and runs its text from that state: all memory
/// that the eager step changes has the same bytes then, and the loss too.
template <class MakeOptimizer>
void check_text(const benchmarks::Workload& workload, const MakeOptimizer& make_optimizer) {
  manual_seed(5);
  const nn::AnyModule net = workload.make();
  const auto optimizer = make_optimizer(net.ptr()->parameters());
  const Tensor x = randn(workload.input(2)), target = randint(0, 10, {2}, kLong);
  const auto step = [&] {
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(net.forward(x), target);
    loss.backward();
    optimizer->step();
    return loss.detach();
  };
  step();

  graph::Recorder recorder;
  Tensor loss = step();
  graph::Graph recorded = recorder.finish();
  optimizer->zero_grad();
  recorded.set_result(loss.array());
  recorded.set_name(loss.array(), "loss");
  loss = Tensor();
  const auto externals = name_externals(recorded);
  std::vector<Array> before;
  for (const auto& [name, bytes] : externals) before.push_back(copy_of(bytes));

  const std::string text = recorded.str();
  graph::Graph read = graph::parse(text);
  CHECK(read.str() == text);
  for (size_t i = 0; i < externals.size(); ++i) read.bind(externals[i].first, before[i]);
  graph::Executor executor(std::move(read));
  Generator& generator = default_generator();
  const uint64_t seed = generator.seed(), offset = generator.offset();
  loss = step();
  const uint64_t after = generator.offset();
  generator.set_state(seed, offset);
  executor.run();
  CHECK(generator.offset() == after);
  CHECK(loss.equal(Tensor(executor.result("loss"))));
  for (size_t i = 0; i < externals.size(); ++i) {
    INFO(externals[i].first);
    CHECK(std::memcmp(externals[i].second.data(), before[i].data(), before[i].nbytes()) == 0);
  }
}

/// Two lines that every text here begins with.
const std::string kHead = "graph 1, draws 0, eager peak 0 bytes\n%0 = external x, 24 bytes\n";

std::string message_of(const std::string& text) {
  try {
    graph::parse(text);
  } catch (const IoError& error) { return error.what(); }
  return "";
}

}  // namespace

TEST_CASE("the text of a step, read back, gives the bits of the eager step", "[graph_text]") {
  for (const char* backend_name : {"openmp", "naive"}) {
    const BackendGuard guard(backend_name);
    for (const benchmarks::Workload& workload : benchmarks::workloads()) {
      if (std::string_view(backend_name) == "naive" && workload.name != "lenet" && workload.name != "lstm" &&
          workload.name != "pure_linear" && workload.name != "conv2_c1")
        continue;  // slow
      INFO(backend_name << " " << workload.name);
      check_text(workload, [](const std::vector<Tensor>& parameters) {
        return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.01).momentum(0.9));
      });
      if (workload.name != "lenet" && workload.name != "attention") continue;
      check_text(workload, [](const std::vector<Tensor>& parameters) {
        return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(1e-3));
      });
    }
  }
}

TEST_CASE("arguments of all kinds come back from text", "[graph_text]") {
  const Tensor x = randn({4, 6}), index = tensor({2, 0}, kLong), images = randn({1, 2, 5, 5});
  graph::Recorder recorder;
  const Tensor odd = x.transpose(0, 1).slice(0, 1, 6, 2);  // strides, and an offset
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
  graph::Graph recorded = recorder.finish();
  recorded.set_name(x.array(), "x");
  const std::string text = recorded.str();
  CHECK_THAT(text, contains(" strides (2, 6) float32") && contains("+4 (") && contains("p 0.25") &&
                       contains("constant, 24 bytes") && contains("op argmax") && contains("scalar 3,") &&
                       contains("rows.weight [") && contains("state.device_offset true"));
  results.clear();
  CHECK(graph::parse(text).str() == text);
}

TEST_CASE("a text that is wrong is an error with the line", "[graph_text]") {
  const std::string call = "y %1 (2, 3) float32 = unary op relu, x %0 (2, 3) float32, a 0.0, b 0.0\n";
  CHECK(message_of(kHead + call).empty());
  const auto check = [](const std::string& text, const std::string& wanted) {
    CHECK_THAT(message_of(text), contains(wanted));
  };
  check("", "an empty text");
  check("graph 2, draws 0", "line 1: expected 'graph 1, draws '");
  check(kHead, "no call uses %0");
  check(kHead + "\n# nothing\n%2 = internal, 4 bytes\n", "line 5: the next new buffer is %1");
  check(kHead + "%1 = internal, -4 bytes\n", "-4 must be from 0 to");
  check(kHead + "%1 = internal, 99999999999999999999 bytes\n", "not too large");
  check(kHead + "%1 = constant, 400000 bytes 00\n", "a constant of 400000 bytes has 2 hexadecimal digits");
  check(kHead + "%1 = constant, 1 bytes 0g\n", "'0g' is no byte");
  check(kHead + "y %1 (2, 3) float32 = relu x %0 (2, 3) float32\n", "line 3: there is no operation 'relu'");
  check(kHead + "y %1 (2, 3) float32 = copy x %0 (2, 3) float32, a 1\n", "'copy' has no argument 'a'");
  check(kHead + "y %1 (2, 3) float32 = fill\n", "'value' is missing");
  check(kHead + "y %1 (2, 3) float32 = fill value 1, value 2\n", "'value' comes twice");
  check(kHead + "y %1 (2, 3) float32 = fill value 1x\n", "'value' must be a number, 'x' is behind it");
  check(kHead + "y %1 (2, 3) float32 = unary op reru, x %0 (2, 3) float32, a 0.0, b 0.0\n", "'op' cannot be 'reru'");
  check(kHead + "y %1 (2, 1) float32 = reduce op sum, x %0 (2, 3) float32, axes 4294967298\n", "'axes' cannot be");
  check(kHead + "y %1 (2, 3) float32 = copy x %2 (2, 3) float32\n", "the next new buffer is %1");
  check(kHead + "y %1 (2, 3) float32 = copy x %1 (2, 3) float32\n", "nothing has written %1 before");
  check(kHead + "y %1 (2, 4) float32 = copy x %0 (2, 4) float32\n", "%0 has 24 bytes, an operand ends behind 32");
  check(kHead + "y %1 (2, 2) float32 = copy x %0+12 (2, 2) float32\n", "an operand ends behind 28");
  check(kHead + "y %1 (2, 2) float32 = copy x %0+2 (2, 2) float32\n", "a multiple of its elements' size");
  check(kHead + "y %1 (2, 3) float31 = copy x %0 (2, 3) float32\n", "'float31' is no type");
  check(kHead + "y %1 (1099511627776, 1099511627776) u8 = fill value 1\n", "is too large");
  check(kHead + "y %1 (2, 2) strides (1099511627776, 1099511627776) uint8 = fill value 1\n", "reaches too far");
  check(kHead + "y %1 (2, 3) strides (0, 1) float32 = copy x %0 (2, 3) float32\n", "must not overlap itself");
  check(kHead + "y %1 (2, 3) strides (3, 2) float32 = copy x %0 (2, 3) float32\n", "must not overlap itself");
  check(kHead + "y %1 (2, 3) strides (1,) float32 = fill value 1\n", "as many strides as sizes");
  check(kHead + "y %1 (1, 1, 1, 1, 1, 1, 1, 1, 1) float32 = fill value 1\n", "at most 8 dimensions");
  check(kHead + "y none (2, 3) float32 = fill value 1\n", "an operand without elements");
  check(kHead + "%1 = constant, 4 bytes 00000000\ny %1 (1,) float32 = fill value 1\n", "%1 is a constant");
  check(kHead + "found_inf %0 () float64 = unscale gradients 100000000\n", "'gradients' has 100000000 elements");
  check(kHead + "y %1 (2, 3) float32 = conv2d_bias_relu x %0 (2, 3) float32, geometry.stride [1, 2, 3]\n",
        "is missing");
}

TEST_CASE("a text whose shapes, types or options do not fit each other is an error with the line", "[graph_text]") {
  const auto check = [](const std::string& call, const std::string& wanted) {
    CHECK_THAT(message_of("graph 1, draws 0, eager peak 0 bytes\n%0 = external x, 256 bytes\n" + call + "\n"),
               contains("line 3: ") && contains(wanted));
  };
  check("y %1 (2, 3) float32 = copy x %0 (2, 4) float32", "'y' cannot have the shape (2, 3) beside the others");
  check("y %1 (2, 3) int64 = unary op relu, x %0 (2, 3) float32, a 0.0, b 0.0", "'y' must be float32");
  check("y %1 (2, 3) float32 = unary op isnan, x %0 (2, 3) float32, a 0.0, b 0.0", "'y' must be bool");
  check("y %1 (2, 3) float32 = binary op add, a %0 (2, 3) float32, b %0 (2, 3) float64", "'b' cannot be float64");
  check("y %1 (2, 3) float32 = binary op add, a %0 (2, 3) float32", "'b' is absent");
  check("y %1 (2, 1) float32 = reduce op sum, x %0 (2, 3) float32, axes 1", "'y' cannot have the shape (2, 1)");
  check("y %1 (2, 3) float32 = reduce op sum, x %0 (2, 3) float32, axes 8", "there are no axes 8");
  check("y %1 (2, 3) float32 = softmax x %0 (2, 3) float32, axis 2, log true", "there is no axis 2");
  check("y %1 (2, 2) float32 = matmul a %0 (2, 3) float32, b %0 (2, 2) float32, accumulate false", "'b' cannot have");
  check("y %1 (5, 2, 2) float32 = matmul a %0 (3, 2, 2) float32, b %0 (3, 2, 2) float32, accumulate false",
        "'y' cannot");
  const std::string geometry = ", geometry.stride [1, 1], geometry.padding [0, 0], geometry.dilation [1, 1], geometry.";
  const std::string conv = "= conv2d x %0 (1, 2, 4, 4) float32, w %0 (1, 2, 3, 3) float32" + geometry;
  check("y %1 (1, 1, 3, 2) float32 " + conv + "groups 1", "'y' cannot have the shape (1, 1, 3, 2) beside 'x' of shape");
  check("y %1 (1, 1, 2, 2) float32 " + conv + "groups 2", "2 groups do not fit");
  check("y %1 (1, 1, 2, 2) float32 = max_pool2d x %0 (1, 1, 4, 4) float32, geometry.kernel [0, 3]", "is missing");
  check(
      "y %1 (1, 1, 4, 4) float32, indices %2 (1, 1, 4, 4) int32 = max_pool2d x %0 (1, 1, 4, 4) float32, "
      "geometry.kernel [0, 1], geometry.stride [1, 1], geometry.padding [0, 0], geometry.dilation [1, 1]",
      "a window cannot have the size 0");
  check(
      "dx %1 (1, 1, 4, 4) float32 = max_pool2d_backward dy %0 (1, 1, 2, 2) float32, indices %0 (1, 1, 2, 2) int32, "
      "geometry.kernel [2, 2], geometry.stride [2, 2], geometry.padding [0, 0], geometry.dilation [1, 1]",
      "'indices' is not what a max_pool2d");
  check("y %1 (3,) int64 = randint state.seed 1, state.offset 0, state.device_offset false, low 3, high 3",
        "there is no integer from 3 to before 3");
  check("y %1 (3, 2) float32 = gather x %0 (2, 1) float32, axis 0, index %0 (3, 2) int64", "'x' of shape (2, 1) must");
  const auto resample = [](const std::string& begin, const std::string& source) {
    return "y %1 (1, 1, 2, 3) float32 = resample2d x %0 (1, 1, 2, 4) float32, rows.size_in 2, rows.size_out 2, "
           "rows.begin [0, 1, 2], rows.source [0, 1], rows.weight [1.0, 1.0], columns.size_in 4, columns.size_out 3, "
           "columns.begin [" +
           begin + "], columns.source [" + source + "], columns.weight [1.0, 1.0, 1.0, 1.0]";
  };
  CHECK(message_of("graph 1, draws 0, eager peak 0 bytes\n%0 = external x, 256 bytes\n" +
                   resample("0, 1, 2, 4", "0, 1, 2, 3") + "\n") == "");
  for (const char* begin : {"0, 3, 1, 4", "1, 2, 3, 4", "0, 1, 2, 3", "0, 1, 4", "0, 1, 2, 5"})
    check(resample(begin, "0, 1, 2, 3"), "the stencil 'columns' does not fit");
  for (const char* source : {"0, 1, 2, 4", "0, -1, 2, 3", "0, 1, 2"})
    check(resample("0, 1, 2, 4", source), "the stencil 'columns' does not fit");
  check("positions %1 (1, 2) int64 = nonzero x %0 (2, 2) bool", "depends on numbers");
}

TEST_CASE("a graph from text runs on arrays that are bound to its buffers", "[graph_text]") {
  const std::string text = kHead +
                           "%1 = result y, 24 bytes\n"
                           "y %1 (2, 3) float32 = unary op neg, x %0 (2, 3) float32, a 0.0, b 0.0  # neg, a.cpp:3\n";
  CHECK_THROWS_WITH(graph::Executor(graph::parse(text)), contains("buffer %0 'x' of the graph is not bound"));
  graph::Graph graph = graph::parse(text);
  CHECK_THROWS_WITH(graph.bind("z", ones({2, 3}).array()), contains("no buffer 'z'"));
  CHECK_THROWS_WITH(graph.bind("x", ones({5}).array()), contains("has 24 bytes in the graph, but 20"));
  CHECK(graph.calls()[0]->origin.where.line == 3);
  const Tensor x = ones({2, 3});
  graph.bind("%0", x.array());
  graph::Executor executor(std::move(graph));
  executor.run();
  CHECK(Tensor(executor.result("y")).equal(-x));
  CHECK_THROWS_WITH(executor.result("z"), contains("no result 'z'"));
}
