// summary(): shapes, parameters and multiply-adds of a model's layers.
#include <gradus/autograd/autograd.h>
#include <gradus/core/registry.h>
#include <gradus/layers/layers.h>
#include <gradus/tests/catch.h>

#include <sstream>

using namespace gradus;
using test::contains;

namespace {

struct NetImpl : nn::Module {
  nn::Sequential features = register_module(
      "features", nn::Sequential(nn::Conv2d(1, 2, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Dropout(), nn::Flatten()));
  nn::Linear fc = register_module("fc", nn::Linear(2 * 3 * 3, 4));
  Tensor forward(const Tensor& x) { return log_softmax(fc(features(x)), 1); }
};
GRADUS_MODULE(Net);

const nn::LayerSummary& layer(const nn::ModelSummary& summary, const std::string& name) {
  for (const nn::LayerSummary& entry : summary.layers)
    if (entry.name == name) return entry;
  FAIL("no layer " << name);
  return summary.layers.front();
}

}  // namespace

TEST_CASE("a summary lists shapes, parameters and multiply-adds, equal on every backend") {
  for (const std::string& backend_name : backend_names()) {
    if (backend(backend_name).device_type() != DeviceType::cpu) continue;
    const BackendGuard guard(backend_name);
    INFO(backend_name);
    Net net;
    const nn::ModelSummary summary = gradus::summary(net, {2, 1, 8, 8});
    REQUIRE(summary.layers.size() == 8);
    CHECK(summary.layers[0].name.empty());
    CHECK(summary.layers[0].type == "Net");
    CHECK(summary.layers[0].output_shapes == std::vector<Shape>{{2, 4}});
    CHECK(layer(summary, "features").type == "Sequential");
    CHECK(layer(summary, "features").depth == 1);
    const nn::LayerSummary conv = layer(summary, "features.0");
    CHECK(conv.type == "Conv2d");
    CHECK(conv.depth == 2);
    CHECK(conv.calls == 1);
    CHECK(conv.output_shapes == std::vector<Shape>{{2, 2, 6, 6}});
    CHECK(conv.parameters == 2 * 9 + 2);
    CHECK(conv.multiply_adds == 2 * 2 * 36 * 9);
    CHECK(layer(summary, "features.2").output_shapes == std::vector<Shape>{{2, 2, 3, 3}});
    CHECK(layer(summary, "features.2").multiply_adds == 0);
    CHECK(layer(summary, "features.3").output_shapes == std::vector<Shape>{{2, 2, 3, 3}});
    CHECK(layer(summary, "fc").multiply_adds == 2 * 18 * 4);
    CHECK(summary.multiply_adds == conv.multiply_adds + 2 * 18 * 4);
    CHECK(summary.parameters == net->num_parameters());
    CHECK(summary.trainable_parameters == net->num_parameters());
    CHECK(summary.parameter_bytes == 4 * net->num_parameters());
  }
}

TEST_CASE("a summary does not change the model") {
  Net net;
  net->features->ptr(3)->eval();
  net->fc->weight.set_requires_grad(false);
  const nn::ModelSummary summary = gradus::summary(net.ptr(), {1, 1, 8, 8});
  CHECK(summary.trainable_parameters == summary.parameters - 18 * 4);
  CHECK(net->is_training());
  CHECK(net->features->is_training());
  CHECK_FALSE(net->features->ptr(3)->is_training());
  for (const auto& module : net->modules()) CHECK_FALSE(module->has_hooks());
  CHECK_THROWS_WITH(gradus::summary(net, {1, 3, 8, 8}), contains("features.0"));
  for (const auto& module : net->modules()) CHECK_FALSE(module->has_hooks());
  CHECK(net->is_training());
}

TEST_CASE("layers whose forward is called directly have shapes; operators outside of layers count for the model") {
  struct PlainImpl : nn::Module {
    nn::Linear fc = register_module("fc", nn::Linear(6, 4)), unused = register_module("unused", nn::Linear(2, 2));
    Tensor weight = register_parameter("weight", randn({4, 5}));
    Tensor forward(const Tensor& x, const Tensor& y) { return matmul(relu(fc->forward(x)), weight) + y; }
  };
  nn::ModuleHolder<PlainImpl> net;
  const nn::ModelSummary summary = gradus::summary(net, randn({3, 6}), randn({5}));
  CHECK(layer(summary, "fc").output_shapes == std::vector<Shape>{{3, 4}});
  CHECK(layer(summary, "fc").multiply_adds == 3 * 6 * 4);
  CHECK(layer(summary, "unused").output_shapes.empty());
  CHECK(summary.layers[0].multiply_adds == 3 * 4 * 5);
  CHECK(summary.layers[0].parameters == 20);
}

TEST_CASE("a layer whose forward is called directly has the shape of its last operator") {
  struct AttentionImpl : nn::Module {
    nn::MultiheadAttention layer = register_module("layer", nn::MultiheadAttention(8, 2));
    Tensor forward(const Tensor& x) { return std::get<0>(layer->forward(x, x, x, {}, false)); }
  };
  nn::ModuleHolder<AttentionImpl> net;
  CHECK(layer(gradus::summary(net, {5, 3, 8}), "layer").output_shapes == std::vector<Shape>{{5, 3, 8}});
}

TEST_CASE("operators of a layer without a frame count for the layer, which is called with hooks") {
  struct ProductImpl : nn::Module {
    Tensor weight = register_parameter("weight", randn({6, 4}));
    Tensor forward(const Tensor& x) { return matmul(x, weight); }
  };
  const nn::Sequential net(nn::ModuleHolder<ProductImpl>(), nn::Tanh(), nn::Linear(4, 2));
  const nn::ModelSummary summary = gradus::summary(net, {3, 6});
  CHECK(layer(summary, "0").multiply_adds == 3 * 6 * 4);
  CHECK(layer(summary, "2").multiply_adds == 3 * 4 * 2);
  CHECK(summary.layers[0].multiply_adds == 0);
}

TEST_CASE("a tied parameter counts once, and a summary prints as a table") {
  nn::Linear shared(100, 100);
  nn::Sequential net(shared, nn::ReLU(), shared);
  const nn::ModelSummary summary = gradus::summary(net, {1, 100});
  CHECK(summary.parameters == 10100);
  CHECK(layer(summary, "0").calls == 2);
  CHECK(layer(summary, "0").multiply_adds == 20000);
  std::ostringstream text;
  text << summary;
  CHECK(text.str() ==
        "Layer    Type        Output shape  Parameters  Multiply-adds\n"
        "(model)  Sequential  (1, 100)               0              0\n"
        "  0      Linear      (1, 100)          10,100         20,000\n"
        "  1      ReLU        (1, 100)               0              0\n"
        "parameters: 10,100 (39.5 KiB), trainable 10,100; buffers: 0; multiply-adds: 20,000\n");
}

TEST_CASE("a parameter of two modules counts for the first of them") {
  struct TiedImpl : nn::Module {
    nn::Linear first = register_module("first", nn::Linear(4, 6));
    Tensor tied = register_parameter("tied", first->weight);
    Tensor forward(const Tensor& x) { return first(x).matmul(tied); }
  };
  TiedImpl net;
  const nn::ModelSummary summary = gradus::summary(net, {1, 4});
  CHECK(summary.layers[0].parameters == 24);
  CHECK(layer(summary, "first").parameters == 6);
  CHECK((summary.parameters == 30 && summary.trainable_parameters == 30 && summary.parameter_bytes == 120));
}

TEST_CASE("a summary lists deep layers, several outputs and all buffers") {
  struct PairImpl : nn::Module {
    nn::LSTM lstm = register_module("lstm", nn::LSTM(3, 4));
    std::tuple<Tensor, Tensor> forward(const Tensor& x) {
      const auto [output, state] = lstm(x);
      return {output, Tensor()};
    }
  };
  nn::ModuleHolder<PairImpl> pair;
  const nn::ModelSummary two = gradus::summary(pair, {5, 2, 3});
  CHECK(two.layers[0].output_shapes == std::vector<Shape>{{5, 2, 4}, {}});
  CHECK(layer(two, "lstm").output_shapes == std::vector<Shape>{{5, 2, 4}, {1, 2, 4}, {1, 2, 4}});

  nn::Sequential block({{"block", nn::Sequential(nn::BatchNorm1d(3), nn::Linear(3, 2))}}), net({{"net", block}});
  net->to(kDouble);
  const nn::ModelSummary summary = gradus::summary(net, {4, 3});  // zeros of the parameters' type
  CHECK(summary.buffers == 3 + 3 + 1);
  CHECK(summary.parameters == 6 + 8);
  CHECK(summary.parameter_bytes == 8 * 14);
  CHECK(layer(summary, "net.block.1").depth == 3);
  CHECK(layer(summary, "net.block.1").parameters == 8);
  CHECK(summary.layers[0].calls == 1);
  std::ostringstream text;
  text << summary << two;
  CHECK(text.str() ==
        "Layer      Type         Output shape  Parameters  Multiply-adds\n"
        "(model)    Sequential   (4, 2)                 0              0\n"
        "  net      Sequential   (4, 2)                 0              0\n"
        "    block  Sequential   (4, 2)                 0              0\n"
        "      0    BatchNorm1d  (4, 3)                 6              0\n"
        "      1    Linear       (4, 2)                 8             24\n"
        "parameters: 14 (112 B), trainable 14; buffers: 7; multiply-adds: 24\n"
        "Layer    Type  Output shape                     Parameters  Multiply-adds\n"
        "(model)  Pair  (5, 2, 4), ()                             0              0\n"
        "  lstm   LSTM  (5, 2, 4), (1, 2, 4), (1, 2, 4)         144          1,120\n"
        "parameters: 144 (576 B), trainable 144; buffers: 0; multiply-adds: 1,120\n");
  CHECK_THROWS_AS(gradus::summary(net, {4, 3}, kFloat), DTypeError);
  CHECK(layer(gradus::summary(nn::Sequential(nn::Embedding(10, 2)), {4, 3}, kLong), "0").output_shapes ==
        std::vector<Shape>{{4, 3, 2}});
}

TEST_CASE("the numbers of a summary have commas between groups of three digits") {
  for (const auto& [number, text] : {std::pair<int64_t, const char*>{0, "0"},
                                     {999, "999"},
                                     {1000, "1,000"},
                                     {12345, "12,345"},
                                     {999'999, "999,999"},
                                     {1'234'567, "1,234,567"}}) {
    nn::ModelSummary summary;
    summary.parameters = number;
    std::ostringstream stream;
    stream << summary;
    CHECK_THAT(stream.str(), contains("\nparameters: " + std::string(text) + " ("));
  }
}
