// The nodes of exported models, and errors for nets that cannot be exported. onnx_test.py runs the models that the last
// case writes.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gradus/benchmarks/nets.h>
#include <gradus/core/io/npy.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/onnx/exporting.h>

using namespace gradus;
using test::contains;
using test::exported;
using test::ModelFile;
using test::module_of;

namespace {

/// The LeNet of examples/mnist.
struct SimpleConv : nn::Module {
  nn::ConvReLU2d c1 = register_module("c1", nn::ConvReLU2d(1, 16, 5));
  nn::Linear f1 = register_module("f1", nn::Linear(16 * 12 * 12, 64));
  nn::Linear f2 = register_module("f2", nn::Linear(64, 10));

  Tensor forward(const Tensor& images) { return f2(relu(f1(max_pool2d(c1(images), 2).flatten(1)))); }
};

/// An embedding and a bidirectional LSTM of two layers, from words (L, N) to classes.
struct WordNet : nn::Module {
  nn::Embedding embedding = register_module("embedding", nn::Embedding(20, 12));
  nn::LSTM lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(12, 8).num_layers(2).bidirectional(true)));
  nn::Linear fc = register_module("fc", nn::Linear(16, 10));

  Tensor forward(const Tensor& words) {
    const auto [outputs, states] = lstm(embedding(words));
    return fc(outputs.mean({0}) + std::get<0>(states).sum({0}).repeat({1, 2}));
  }
};

/// Position vectors, two encoder layers (the first one with an autoregressive mask), causal attention, and attention in
/// which the second query sees no key. The input has shape (N, L, F).
struct Transformer : nn::Module {
  Tensor positions = register_parameter("positions", randn({6, 16}) * 0.1);
  nn::TransformerEncoderLayer first = register_module(
      "first", nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32)));
  nn::TransformerEncoderLayer second = register_module(
      "second",
      nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(24).activation(kGELU)));
  nn::Linear fc = register_module("fc", nn::Linear(16, 10));
  // Not parameters, but constants of the model.
  Tensor mask = (ones({6, 6}).tril() - 1) * 1e9, seen = arange(6, kLong).ne(1).unsqueeze(1).expand({6, 6});

  Tensor forward(const Tensor& x) {
    const Tensor sequence = (x + positions).transpose(0, 1);  // (L, N, F)
    const Tensor heads = second(first(sequence, mask)).transpose(0, 1).unsqueeze(1);
    const Tensor causal = scaled_dot_product_attention(heads, heads, heads, {}, 0, true);
    const Tensor masked = scaled_dot_product_attention(heads, heads, heads, seen);
    return fc((causal.select(2, 4) + masked.slice(2, 0, 2).sum(2)).squeeze(1));
  }
};

/// All element-wise operators and reductions on an input (N, 10).
Tensor operators(const Tensor& x) {
  const Tensor p = x.abs() + 0.5, q = x.flip(1).abs() + 0.25;
  TensorList terms = {x.neg(),
                      x.sign(),
                      x.floor(),
                      x.ceil(),
                      x.round(),
                      x.trunc(),
                      x.square(),
                      x.exp(),
                      x.expm1(),
                      p.log(),
                      p.log1p(),
                      p.log2(),
                      p.log10(),
                      p.sqrt(),
                      p.rsqrt(),
                      p.reciprocal(),
                      x.sin(),
                      x.cos(),
                      x.erf(),
                      x.relu(),
                      x.sigmoid(),
                      x.tanh(),
                      x.clamp(-0.5, 0.75),
                      x.clamp_min(0.1),
                      hardtanh(x),
                      leaky_relu(x, 0.2),
                      elu(x, 0.7),
                      gelu(x),
                      gelu(x, "tanh"),
                      silu(x),
                      softplus(x, 2),
                      mish(x),
                      log_sigmoid(x),
                      hardswish(x)};
  for (const Tensor& term : TensorList{p - q,
                                       p * q,
                                       p / q,
                                       p.pow(q),
                                       x.pow(2),
                                       2 - x,
                                       1 / p,
                                       maximum(x, q),
                                       minimum(x, q),
                                       p.fmod(q),
                                       x.remainder(q),
                                       x.cumsum(1),
                                       x.softmax(1),
                                       x.log_softmax(1),
                                       where(x > q, x, -q),
                                       (x < q).to(kFloat),
                                       (x <= q).to(kFloat),
                                       (x >= 0).to(kFloat),
                                       ((x == x).logical_and(x != q)).to(kFloat),
                                       x.isnan().logical_not().to(kFloat),
                                       x.isfinite().to(kFloat)})
    terms.push_back(term);
  for (const Tensor& row :
       {x.sum(1, true), x.mean(1, true), x.amax(1, true), x.amin(1, true), p.prod(1, true),
        (x > 0).any(1, true).to(kFloat), (x > -1).all(1, true).to(kFloat), x.argmax(1, true).to(kFloat),
        x.argmin(1, true).to(kFloat), x.index_select(1, tensor({2, 7}, kLong)).sum(1, true),
        x.gather(1, x.argmax(1, true)), x.slice(1, 1, 10, 3).sum(1, true)})
    terms.push_back(row.expand({-1, 10}));
  Tensor sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) sum = sum + terms[i] * (0.3 + 0.01 * static_cast<double>(i));
  return sum;
}

struct Case {
  std::string name;
  std::function<nn::AnyModule()> make;
  std::function<Tensor(int64_t batch)> input;
  int64_t batch_axis = 0;
};

template <class Make>
Case image_net(const std::string& name, Make make, Shape image) {
  const auto input = [image](int64_t batch) {
    Shape shape = image;
    shape.insert(0, batch);
    return randn(shape);
  };
  return {name, [make] { return nn::AnyModule(make()); }, input};
}

std::vector<Case> cases() {
  const auto resnet = [](ResNet18Options options) {
    return [options] { return ResNet18(ResNet18Options(options).width(8)); };
  };
  const auto sequence = [](int64_t batch) { return randn({6, batch, 128}); };
  const auto norms = [] {
    return nn::Sequential(
        nn::Conv2d(3, 8, 3), nn::GroupNorm(2, 8), nn::SiLU(), nn::BatchNorm2d(8), nn::ELU(), nn::AvgPool2d(2),
        nn::InstanceNorm2d(8),
        nn::Upsample(
            nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(kBilinear).align_corners(false)),
        nn::AdaptiveAvgPool2d(2), nn::Flatten(), nn::LayerNorm(nn::LayerNormOptions({32})), nn::Softplus(),
        nn::Linear(32, 10), nn::LogSoftmax(1));
  };
  const auto windows = [] {
    return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(4, 8, 3).stride(2).padding(2).dilation(2).groups(2)), nn::Tanh(),
                          nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1).ceil_mode(true)),
                          nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2})),
                          nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).padding(1)), nn::Flatten(),
                          nn::Linear(8 * 5 * 5, 10));
  };
  return {image_net("pure_linear", benchmarks::pure_linear, {1, 28, 28}),
          image_net("simple_conv", [] { return std::make_shared<SimpleConv>(); }, {1, 28, 28}),
          image_net("lenet", benchmarks::lenet, {1, 28, 28}),
          image_net("conv2_c1", [] { return benchmarks::conv_net(2, 1); }, {1, 28, 28}),
          image_net("stl10_net", benchmarks::stl10_net, {3, 96, 96}),
          image_net("resnet18", resnet(ResNet18Options()), {3, 32, 32}),
          image_net("resnet18_stl10", resnet(ResNet18Options().stem_stride(2).dropout(0.3)), {3, 96, 96}),
          image_net("resnet18_plain", resnet(ResNet18Options().batch_norm(false)), {3, 32, 32}),
          image_net("norms", norms, {3, 12, 12}),
          image_net("windows", windows, {4, 15, 15}),
          {"operators", [] { return module_of(operators); },
           [](int64_t batch) {
             return randn({batch, 10});
           }},
          {"lstm", [] { return nn::AnyModule(std::make_shared<benchmarks::LstmNet>()); }, sequence, 1},
          {"words", [] { return nn::AnyModule(std::make_shared<WordNet>()); },
           [](int64_t batch) {
             return randint(0, 20, {5, batch}, kLong);
           },
           1},
          {"attention", [] { return nn::AnyModule(std::make_shared<benchmarks::AttentionNet>()); }, sequence, 1},
          image_net("transformer", [] { return std::make_shared<Transformer>(); }, {6, 16})};
}

/// Gives biases and statistics other values than those of a new layer.
void shake(nn::Module& model) {
  const NoGradGuard no_grad;
  for (const auto& buffer : model.named_buffers()) {
    if (!buffer.value().is_floating_point()) continue;
    const bool is_variance = buffer.key().ends_with("var");
    buffer.value().copy_(rand(buffer.value().sizes()) * 0.5 + (is_variance ? 0.5 : -0.25));
  }
  for (const Tensor& parameter : model.parameters())
    if (parameter.dim() == 1) parameter.add_(rand(parameter.sizes()) * 0.2);
}

std::string message_of(const std::function<Tensor(const Tensor&)>& f, const Tensor& input = randn({2, 3, 4})) {
  try {
    exported(module_of(f), input);
  } catch (const Error& error) { return error.what(); }
  return "";
}

}  // namespace

TEST_CASE("an exported LeNet has the expected nodes", "[onnx]") {
  const nn::Sequential net = benchmarks::lenet();
  const ModelFile model = exported(nn::AnyModule(net), randn({1, 1, 28, 28}));
  CHECK(model.ir_version == 8);
  CHECK(model.opset == 17);
  CHECK(model.producer == "gradus");
  CHECK(model.producer_version == version());
  CHECK(model.graph == "forward");
  CHECK(model.ops() == std::vector<std::string>{"Conv", "Relu", "MaxPool", "Conv", "Relu", "MaxPool", "Reshape", "Gemm",
                                                "Relu", "Gemm", "Relu", "Gemm", "Identity"});
  CHECK(to_strings(model.inputs) == std::vector<std::string>{"input (batch, 1, 28, 28)"});
  CHECK(to_strings(model.outputs) == std::vector<std::string>{"output (batch, 10)"});
  for (const auto& parameter : net->named_parameters()) {
    REQUIRE(model.weights.count(parameter.key()));
    CHECK(model.weights.at(parameter.key()).equal(parameter.value()));
  }
  CHECK(model.nodes[0].inputs == std::vector<std::string>{"input", "0.weight", "0.bias"});
  CHECK(model.nodes[0].name == "0/Conv_0");
  CHECK_THAT(model.nodes[0].doc, contains("conv2d_relu of 0"));
  CHECK(model.nodes.back().name == "output");
  CHECK(model.nodes.back().doc.empty());
  const ModelFile fixed = exported(nn::AnyModule(net), randn({4, 1, 28, 28}), OnnxOptions().batch_axis(std::nullopt));
  CHECK(to_strings(fixed.inputs) == std::vector<std::string>{"input (4, 1, 28, 28)"});
}

TEST_CASE("an export leaves the mode of each module as it was", "[onnx]") {
  nn::Sequential inner(nn::Linear(3, 3), nn::Dropout()), net(inner, nn::Dropout(), nn::Linear(3, 2));
  net->eval();
  inner->train();
  net[1]->train();
  const ModelFile model = exported(nn::AnyModule(net), randn({2, 3}));
  CHECK(model.ops() == std::vector<std::string>{"Gemm", "Gemm", "Identity"});
  std::vector<bool> modes;
  for (const auto& module : net->modules()) modes.push_back(module->is_training());
  CHECK(modes == std::vector<bool>{false, true, true, true, true, false});
}

TEST_CASE("strides of a recording become ONNX operators", "[onnx]") {
  using Ops = std::vector<std::string>;
  const auto ops = [](const std::function<Tensor(const Tensor&)>& f, const Shape& shape) {
    Ops list = exported(module_of(f), randn(shape)).ops();
    list.pop_back();  // removes the Identity node that names the output
    return list;
  };
  CHECK(ops([](const Tensor& x) { return x.transpose(1, 2).relu(); }, {2, 3, 4}) == Ops{"Transpose", "Relu"});
  CHECK(ops([](const Tensor& x) { return x.flatten(1).relu(); }, {2, 3, 4}) == Ops{"Reshape", "Relu"});
  CHECK(ops([](const Tensor& x) { return x.slice(1, 1, 3).relu(); }, {2, 3, 4}) == Ops{"Slice", "Relu"});
  CHECK(ops([](const Tensor& x) { return x.slice(2, 1, 4, 2).relu(); }, {2, 3, 4}) ==
        Ops{"Reshape", "Slice", "Reshape", "Relu"});
  CHECK(ops([](const Tensor& x) { return x.select(1, 2).relu(); }, {2, 3, 4}) == Ops{"Reshape", "Slice", "Relu"});
  CHECK(ops([](const Tensor& x) { return x + x.mean({1}, true); }, {2, 3}) == Ops{"ReduceMean", "Add"});
  CHECK(ops([](const Tensor& x) { return cat({x, x.relu()}, 1).exp(); }, {2, 3}) == Ops{"Relu", "Concat", "Exp"});
  CHECK(ops([](const Tensor& x) { return x.clone().mul_(2).relu_(); }, {2, 3}) == Ops{"Mul", "Relu"});
  // Simple nodes, where more general ones would give the same numbers.
  CHECK(ops(
            [](const Tensor& x) {
              return x.index_select(1, tensor({0, 2}, kLong)).relu();
            },
            {2, 3}) == Ops{"Gather", "Relu"});
  CHECK(ops([](const Tensor& x) { return pad(x, {1, 2}); }, {2, 3}) == Ops{"Pad"});
  CHECK(ops([](const Tensor& x) { return x.isnan().to(kFloat); }, {2, 3}) == Ops{"IsNaN", "Cast"});
  CHECK(ops([](const Tensor& x) { return x.clamp_min(0.5); }, {2, 3}) == Ops{"Clip"});
  // Parts that are written in any order, or have different strides, are kept apart until a call reads both.
  const auto of_two = [](int64_t start, int64_t middle, int64_t end, int64_t step, bool whole) {
    return [=](const Tensor& x) {
      const Tensor y = empty({x.size(0), 6}), second = y.slice(1, middle, 6, step);
      second.copy_(x.slice(1, 0, second.size(1)).sin());
      y.slice(1, start, end, step).copy_(x.slice(1, 0, y.slice(1, start, end, step).size(1)).exp());
      return whole ? y.relu() : second.relu();
    };
  };
  CHECK(ops(of_two(0, 3, 3, 1, true), {2, 3}) == Ops{"Sin", "Exp", "Concat", "Relu"});
  CHECK(ops(of_two(0, 3, 3, 1, false), {2, 3}) == Ops{"Sin", "Relu"});
  CHECK(ops(of_two(0, 1, 6, 2, false), {2, 3}) == Ops{"Sin", "Relu"});
  CHECK(ops(
            [](const Tensor& x) {
              const Tensor y = empty({8}), a = x.sum(0), second = y.slice(0, 4, 8).view({2, 2});
              y.slice(0, 0, 4).copy_(a.exp());
              second.copy_(a.view({2, 2}).sin());
              return second.relu();
            },
            {2, 4}) == Ops{"ReduceSum", "Reshape", "Sin", "Relu"});
  for (const int64_t stride : {1, 2}) {  // of an axis of size 1, where it does not matter
    const auto of_equal_strides = [stride](const Tensor& x) {
      const Tensor y = empty({8}), a = x.sum(0), second = y.as_strided({1, 4}, {stride, 1}, 4);
      y.as_strided({1, 4}, {stride, 1}, 0).copy_(a.exp().view({1, 4}));
      second.copy_(a.sin().view({1, 4}));
      return second.relu();
    };
    for (const std::string& name : ops(of_equal_strides, {2, 4}))
      CHECK((name == "ReduceSum" || name == "Sin" || name == "Reshape" || name == "Relu"));
  }
  const auto of_rows = [](const Tensor& x) {
    const Tensor y = empty({4, 4}), a = x.sum(0).exp();
    y.slice(0, 0, 1).copy_(a.slice(0, 0, 4).view({1, 4}));
    y.slice(0, 1, 2).copy_(a.slice(0, 4, 8).view({1, 4}));
    y.slice(0, 2, 4).copy_(a.slice(0, 8, 16).view({2, 4}));
    return y.relu();
  };
  const auto of_column = [](const Tensor& x) {
    return x.sum(0).view({4, 1}).gather(0, tensor({2, 1}, kLong).view({2, 1}));
  };
  CHECK(std::ranges::count(ops(of_column, {2, 4}), "Gather") == 1);
  const auto of_rows_of_one = [](const Tensor& x) {
    const Tensor y = empty({6}), a = x.sum(0).exp();
    y.slice(0, 0, 2).view({1, 2}).copy_(a.slice(0, 0, 2).view({1, 2}));
    y.slice(0, 2, 6).view({1, 4}).copy_(a.slice(0, 2, 6).view({1, 4}));
    return y.relu();
  };
  CHECK(std::ranges::count(ops(of_rows_of_one, {2, 6}), "Concat") == 1);
  const auto of_halves = [](const Tensor& x) {
    const Tensor y = empty({12}), a = x.sum(0).exp();
    y.slice(0, 2, 4).copy_(a.slice(0, 2, 4)), y.slice(0, 5, 8).copy_(a.slice(0, 3, 6));
    y.slice(0, 8, 12).copy_(a.slice(0, 0, 4));
    return y.slice(0, 3, 8, 2).sum() * y.slice(0, 5, 12);
  };
  CHECK(std::ranges::count(ops(of_halves, {2, 6}), "Concat") == 1);
  const Ops of_four_rows = ops(of_rows, {2, 16});
  CHECK(std::ranges::count(of_four_rows, "Concat") == 1);
  CHECK(std::ranges::count(of_four_rows, "Where") + std::ranges::count(of_four_rows, "Pad") == 0);
  const ModelFile repeated = exported(module_of([](const Tensor& x) {
                                        return x.unsqueeze(1).expand({-1, 5, -1}).relu();
                                      }),
                                      randn({2, 3}));
  CHECK(to_strings(repeated.outputs) == std::vector<std::string>{"output (batch, 5, 3)"});
}

TEST_CASE("layers become the ONNX operators of their name", "[onnx]") {
  const ModelFile norm = exported(nn::AnyModule(nn::BatchNorm2d(3)), randn({1, 3, 4, 4}));
  CHECK(norm.ops() == std::vector<std::string>{"BatchNormalization", "Identity"});
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) CHECK(norm.weights.contains(name));
  CHECK(exported(nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({4}))), randn({1, 3, 4})).ops() ==
        std::vector<std::string>{"LayerNormalization", "Identity"});
  const auto lstm = [](nn::LSTM layer) {
    const auto names = exported(module_of([layer](const Tensor& x) mutable { return std::get<0>(layer(x)); }),
                                randn({3, 1, 5}), OnnxOptions().batch_axis(1))
                           .ops();
    return std::ranges::count(names, "LSTM");
  };
  CHECK(lstm(nn::LSTM(5, 4)) == 1);
  CHECK(lstm(nn::LSTM(nn::LSTMOptions(5, 4).proj_size(2))) == 0);
}

TEST_CASE("activations become one operator where ONNX has it for the type", "[onnx]") {
  using Ops = std::vector<std::string>;
  const auto ops = [](const std::function<Tensor(const Tensor&)>& f, DType dtype) {
    Ops list = exported(module_of(f), randn({2, 3}, dtype)).ops();
    list.pop_back();  // removes the Identity node that names the output
    return list;
  };
  // Attributes are float32, so for float64 they must be numbers that float32 has.
  const Ops negative_part = {"Mul", "Exp", "Sub", "Mul", "Greater", "Where"}, scaled = {"Mul", "Greater", "Where"};
  for (const double alpha : {0.1, 0.25}) {
    const bool is_exact = alpha == 0.25;
    const auto leaky = [alpha](const Tensor& x) { return leaky_relu(x, alpha); };
    const auto with_elu = [alpha](const Tensor& x) { return elu(x, alpha); };
    CHECK(ops(leaky, kFloat) == Ops{"LeakyRelu"});
    CHECK(ops(leaky, kDouble) == (is_exact ? Ops{"LeakyRelu"} : scaled));
    CHECK(ops(with_elu, kFloat) == Ops{"Elu"});
    CHECK(ops(with_elu, kDouble) == (is_exact ? Ops{"Elu"} : negative_part));
  }
  const auto with_celu = [](double alpha) { return [alpha](const Tensor& x) { return celu(x, alpha); }; };
  CHECK(ops(with_celu(0.5), kFloat) == Ops{"Celu"});
  CHECK(ops(with_celu(1), kFloat) == Ops{"Elu"});
  CHECK(ops(with_celu(0.5), kDouble) == Ops{"Mul", "Exp", "Sub", "Mul", "Greater", "Where"});
  CHECK(ops(with_celu(-0.5), kFloat) == Ops{"Mul", "Exp", "Sub", "Mul", "Greater", "Where"});
  const Ops soft = {"Mul", "Softplus", "Div"}, soft_to_threshold = {"Mul", "Softplus", "Div", "Greater", "Where"};
  for (const double threshold : {19.5, 20.0, 21.0}) {
    const auto with_softplus = [threshold](const Tensor& x) { return softplus(x, 2, threshold); };
    CHECK(ops(with_softplus, kFloat) == (threshold >= 20 ? soft : soft_to_threshold));
    CHECK(ops(with_softplus, kDouble) == soft_to_threshold);
  }
  const auto clamped = [](const Tensor& x) { return x.clamp_max(2); };
  for (const DType dtype : {kFloat, kDouble, kLong, kInt}) {
    const Tensor x = randn({2, 3}).to(dtype);
    CHECK(difference(exported(module_of(clamped), x), {x}, {clamped(x)}) == "");
  }
}

TEST_CASE("errors of the export name operator and line", "[onnx]") {
  CHECK_THAT(message_of([](const Tensor& x) { return x.cumprod(1); }),
             contains("a running product has no counterpart") && contains("cumprod") && contains("models_test.cpp:"));
  CHECK_THAT(message_of([](const Tensor& x) { return rand({2, 3}) + x.sum(); }), contains("'uniform' (rand"));
  for (const int64_t more : {1, 2})  // 3 and 4 elements of a batch of 2, and 4 and 5 of a batch of 3
    CHECK_THAT(message_of([more](const Tensor& x) { return x.reshape({-1}).slice(0, 0, x.size(0) + more).relu(); }),
               contains("does not scale with the batch"));
  CHECK_THAT(message_of([](const Tensor& x) { return x.size(0) == 2 ? x.relu() : x.exp(); }),
             contains("differs from the one with a batch of 3"));
  for (const int64_t more : {2, 3})
    CHECK_THAT(message_of([more](const Tensor& x) { return x.size(0) == more ? x.relu().exp() : x.relu(); }),
               contains("differs from the one with a batch of 3"));
  CHECK_THAT(message_of([](const Tensor& x) { return x.softmax(x.size(0) == 2 ? 1 : 2); }), contains("(softmax"));
  CHECK_THAT(message_of([](const Tensor& x) {
               const Tensor a = x.exp(), b = x.sin();
               return x.size(0) == 2 ? a - b : b - a;
             }),
             contains("(sub"));
  CHECK_THAT(message_of([](const Tensor& x) { return x.relu() * static_cast<double>(x.size(0)); }),
             contains("(mul") && contains("differs from the one with a batch of 3"));
  CHECK_THAT(message_of([](const Tensor& x) {
               return x + arange(x.size(0)).view({-1, 1, 1});
             }),
             contains("differs from the one with a batch of 3"));
  CHECK_THAT(message_of([](const Tensor& x) {
               return x.size(0) == 2 ? x.reshape({-1}) : x.reshape({-1, 4});
             }),
             contains("the number of dimensions depends on the batch"));
  CHECK_THAT(message_of([](const Tensor& x) { return scaled_dot_product_attention(x, x, x, {}, 0.5); }),
             contains("attention with dropout"));
  const auto changed = [](const std::function<void(const Tensor&)>& change) {
    return message_of([change](const Tensor& x) {
      const Tensor y = x.sum(0).exp();  // (3, 4)
      return change(y), y * 2;
    });
  };
  CHECK_THAT(changed([](const Tensor& y) { y.slice(0, 0, 1).uniform_(); }), contains("'uniform'"));
  CHECK_THAT(changed([](const Tensor& y) { y.slice(0, 0, 1).view(kInt).add_(1); }),
             contains("that holds another type"));
  CHECK_THAT(changed([](const Tensor& y) { y.slice(0, 0, 1).view(kInt).zero_(); }),
             contains("that holds another type"));
  for (const int64_t rows : {1, 3})
    CHECK_THAT(message_of([rows](const Tensor& x) { return x.sum(0).exp().slice(0, 0, rows).view(kInt) + 1; }),
               contains("that holds another type"));
  CHECK_THAT(changed([](const Tensor& y) {
               y.view({12}).slice(0, 0, 10).view({2, 5}).mul_(2);
             }),
             contains("across the axes that it was written with"));
  CHECK_THAT(message_of([](const Tensor& x) {
               const Tensor y = empty({6});
               y.slice(0, 0, 3).copy_(x.sum({0, 2}));
               return y.slice(0, 3, 6) * 2;
             }),
             contains("that no call has written"));
  nn::Sequential net({{"noise", nn::Functional([](const Tensor& x) { return dropout(x, 0.5, true); })}});
  CHECK_THROWS_WITH(exported(nn::AnyModule(net), ones({2, 3})),
                    contains("'dropout' (dropout of noise, models_test.cpp:"));
  CHECK_THAT(message_of([](const Tensor& x) { return x * x.sum().item<float>(); }),
             contains("reading a number cannot be part"));
  const test::TemporaryDirectory folder;
  const std::string path = (folder.path() / "model.onnx").string();
  CHECK_THROWS_WITH(export_onnx(nn::AnyModule(), ones({2, 3}), path), contains("needs a model and an input"));
  CHECK_THROWS_WITH(export_onnx(nn::Linear(3, 2), Tensor(), path), contains("needs a model and an input"));
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("models for onnxruntime", "[onnxruntime]") {
  const test::RuntimeFolder folder;
  manual_seed(7);
  for (const Case& c : cases()) {
    INFO(c.name);
    const nn::AnyModule model = c.make();
    shake(*model.ptr());
    export_onnx(model, c.input(1), folder / (c.name + ".onnx"), OnnxOptions().batch_axis(c.batch_axis));
    const ModelFile file = ModelFile::read(folder / (c.name + ".onnx"));
    CHECK(to_strings(file.outputs) == std::vector<std::string>{"output (batch, 10)"});
    for (const auto& parameter : model.ptr()->named_parameters()) CHECK(file.weights.count(parameter.key()));
    const NoGradGuard no_grad;
    model.ptr()->eval();
    for (int64_t batch : {2, 5}) {
      const Tensor input = c.input(batch);
      const Tensor output = model.forward(input);
      CHECK(output.std(0).min().item<double>() > 1e-6);  // the output depends on the input
      CHECK(difference(file, {input}, {output}) == "");
      folder.save(c.name, batch, "input", input.array());
      folder.save(c.name, batch, "output", output.array());
    }
  }
}
