// Registration, names, modes, moving, cloning and printing of modules.
#include <gradus/autograd/autograd.h>
#include <gradus/layers/layers.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/layers/printed.h>

#include <functional>

using namespace gradus;
using gradus::test::printed;
using test::contains;

namespace {

struct BlockImpl : nn::Cloneable<BlockImpl> {
  explicit BlockImpl(int64_t channels) : channels(channels) { BlockImpl::reset(); }
  void reset() override {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(channels, channels, 3).padding(1).bias(false)));
    offset = register_buffer("offset", zeros({channels}));
    scale = register_parameter("scale", ones({channels}));
  }
  Tensor forward(const Tensor& x) { return relu(conv(x)) * scale.view({-1, 1, 1}) + offset.view({-1, 1, 1}); }
  int64_t channels;
  nn::Conv2d conv{nullptr};
  Tensor offset, scale;
};
GRADUS_MODULE(Block);

struct NetImpl : nn::Module {
  nn::Sequential features = register_module(
      "features", nn::Sequential(nn::Conv2d(1, 2, 3), nn::ReLU(), Block(2), nn::MaxPool2d(2), nn::Flatten()));
  nn::Linear fc = register_module("fc", nn::Linear(2 * 3 * 3, 4));
  nn::Dropout dropout = register_module("dropout", nn::Dropout(0.25));
  Tensor forward(const Tensor& x) { return fc(dropout(features(x))); }
};
GRADUS_MODULE(Net);

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("parameters, buffers and modules are listed by dotted name in order of registration") {
  Net net;
  CHECK(net->named_parameters().keys() == Names{"features.0.weight", "features.0.bias", "features.2.scale",
                                                "features.2.conv.weight", "fc.weight", "fc.bias"});
  CHECK(net->named_buffers().keys() == Names{"features.2.offset"});
  CHECK(net->named_children().keys() == Names{"features", "fc", "dropout"});
  CHECK(net->named_modules().keys() == Names{"", "features", "features.0", "features.1", "features.2",
                                             "features.2.conv", "features.3", "features.4", "fc", "dropout"});
  CHECK(net->named_modules("net", false).keys().front() == "net.features");
  CHECK(net->parameters().size() == 6);
  CHECK(net->parameters(false).empty());
  CHECK(net->fc->named_parameters(false).keys() == Names{"weight", "bias"});
  CHECK(net->buffers().size() == 1);
  CHECK(net->modules().size() == 10);
  CHECK(net->children().size() == 3);
  CHECK(net->num_parameters() == 2 * 9 + 2 + 2 * 2 * 9 + 2 + 18 * 4 + 4);
  net->fc->weight.set_requires_grad(false);
  CHECK(net->num_parameters(true) == net->num_parameters() - 18 * 4);
  for (const auto& item : net->named_parameters())
    if (item.key() == "fc.bias") CHECK(item.value().is_same(net->fc->bias));
  CHECK(net->fc->weight.is_leaf());
}

TEST_CASE("a module knows its path until its parent is destroyed") {
  nn::Linear linear(2, 2);
  CHECK(linear->path() == "");
  {
    nn::Sequential inner(nn::ReLU(), linear);
    CHECK(linear->path() == "1");
    nn::Sequential outer({{"inner", inner}});
    CHECK(linear->path() == "inner.1");
    CHECK(inner->path() == "inner");
    outer->unregister_module("inner");
    CHECK(linear->path() == "1");
  }
  CHECK(linear->path() == "");
  CHECK(linear->name() == "gradus::nn::LinearImpl");
}

TEST_CASE("invalid names cannot be registered") {
  nn::Module module;
  module.register_parameter("weight", zeros({1}));
  module.register_buffer("mean", zeros({1}));
  module.register_module("fc", nn::Linear(1, 1));
  CHECK_THROWS_WITH(module.register_parameter("weight", zeros({1})), contains("'weight' already defined"));
  CHECK_THROWS_WITH(module.register_buffer("weight", zeros({1})), contains("has the name of a parameter"));
  CHECK_THROWS_WITH(module.register_module("mean", nn::ReLU()), contains("has the name of a parameter or buffer"));
  CHECK_THROWS_WITH(module.register_parameter("fc", zeros({1})), contains("module"));
  CHECK_THROWS_WITH(module.register_parameter("a.b", zeros({1})), contains("dot"));
  CHECK_THROWS_WITH(module.register_buffer("", zeros({1})), contains("not empty"));
  CHECK_THROWS_WITH(module.register_module("none", nn::Linear(nullptr)), contains("empty"));
  CHECK_THROWS_WITH(module.register_module("none", std::shared_ptr<nn::Module>()), contains("null"));
  CHECK_THROWS_WITH(module.modules(), contains("make_shared"));
  CHECK(module.modules(false).size() == 1);
  CHECK_THROWS_AS(module.unregister_module("conv"), IndexError);

  auto self = std::make_shared<nn::Module>();
  CHECK_THROWS_WITH(self->register_module("self", self), contains("contains it"));
}

TEST_CASE("an undefined parameter registers a name without a tensor") {
  nn::Linear linear(nn::LinearOptions(2, 3).bias(false));
  CHECK(linear->named_parameters().keys() == Names{"weight"});
  CHECK_FALSE(linear->bias.defined());
  CHECK(linear(ones({1, 2})).sizes() == Shape({1, 3}));
}

TEST_CASE("holders share and assign modules, and using an empty holder is an error") {
  nn::Linear a(2, 3), b = a, none = nullptr;
  CHECK(a.ptr() == b.ptr());
  CHECK_FALSE(none);
  CHECK(none.is_empty());
  CHECK_THROWS_WITH(none->weight, contains("empty"));
  CHECK_THROWS_AS(none(ones({1, 2})), ValueError);
  none = a;
  CHECK(none.get() == a.get());
  nn::Module& module = *a;
  CHECK(module.as<nn::Linear>() == a.get());
  CHECK(module.as<nn::LinearImpl>() == a.get());
  CHECK(module.as<nn::Conv2d>() == nullptr);
}

TEST_CASE("training mode reaches all modules") {
  Net net;
  CHECK(net->is_training());
  net->eval();
  for (const auto& module : net->modules()) CHECK_FALSE(module->is_training());
  const Tensor x = ones({2, 1, 8, 8});
  CHECK(net(x).equal(net(x)));
  net->train();
  for (const auto& module : net->modules()) CHECK(module->is_training());
}

TEST_CASE("apply visits every module once") {
  Net net;
  Names names;
  net->apply([&](const std::string& name, nn::Module&) { names.push_back(name); }, "net");
  CHECK(names == net->named_modules("net").keys());
  net->apply([](nn::Module& module) {
    if (auto* linear = module.as<nn::Linear>()) nn::init::zeros_(linear->weight);
  });
  CHECK(net->fc->weight.detach().equal(zeros({4, 18})));
}

TEST_CASE("tied parameters and shared modules are listed once, and a replacement takes the name") {
  struct Tied : nn::Module {
    nn::Linear encoder = register_module("encoder", nn::Linear(3, 3)), decoder = register_module("decoder", encoder);
    Tensor weight = register_parameter("weight", encoder->weight);
  };
  Tied net;
  CHECK(net.named_parameters().keys() == Names{"weight", "encoder.bias"});
  CHECK(net.named_modules("", false).keys() == Names{"encoder"});
  CHECK(net.state_dict().keys() == Names{"weight", "encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias"});
  CHECK(net.encoder->path() == "encoder");

  net.decoder = net.replace_module("decoder", nn::Linear(3, 5));
  CHECK(net.named_parameters().keys() == Names{"weight", "encoder.bias", "decoder.weight", "decoder.bias"});
  CHECK(net.decoder->path() == "decoder");
  CHECK(net.encoder->path() == "encoder");
  CHECK_THROWS_AS(net.replace_module("conv", nn::ReLU()), IndexError);
}

TEST_CASE("a module can be replaced by one that it contains") {
  struct Wrapper : nn::Module {
    nn::Linear fc = register_module("fc", nn::Linear(2, 2));
  };
  nn::Module net;
  net.register_module("layer", std::make_shared<Wrapper>());
  const nn::Linear fc = net.named_children()["layer"]->as<Wrapper>()->fc;
  CHECK(fc->path() == "layer.fc");
  net.replace_module("layer", fc);
  CHECK(fc->path() == "layer");
}

TEST_CASE("gradients are cleared") {
  Net net;
  net(ones({2, 1, 8, 8})).sum().backward();
  for (const Tensor& parameter : net->parameters()) CHECK(parameter.grad().defined());
  net->zero_grad(false);
  for (const Tensor& parameter : net->parameters()) CHECK(parameter.grad().equal(zeros(parameter.sizes())));
  net->zero_grad();
  for (const Tensor& parameter : net->parameters()) CHECK_FALSE(parameter.grad().defined());
}

TEST_CASE("moving converts parameters, gradients and buffers, which remain the same tensors") {
  Net net;
  net(ones({2, 1, 8, 8})).sum().backward();
  const Tensor weight = net->fc->weight;
  net->features->at<Block>(2).register_buffer("count", zeros({1}, kLong));
  net->to(kDouble);
  CHECK(net->fc->weight.is_same(weight));
  for (const Tensor& parameter : net->parameters()) {
    CHECK(parameter.dtype() == kDouble);
    CHECK(parameter.grad().dtype() == kDouble);
    CHECK(parameter.requires_grad());
    CHECK(parameter.is_leaf());
  }
  CHECK(net->named_buffers()["features.2.offset"].dtype() == kDouble);
  CHECK(net->named_buffers()["features.2.count"].dtype() == kLong);
  net->zero_grad();
  const Tensor y = net(ones({2, 1, 8, 8}, kDouble));
  y.sum().backward();
  CHECK(weight.grad().dtype() == kDouble);
  net->to(kCPU, kFloat);
  CHECK(weight.dtype() == kFloat);
  net->to(Device("cpu"));
  CHECK_THROWS_AS(net->to(kLong), DTypeError);

  net->to(MemoryFormat::channels_last);
  CHECK(net->features->at<nn::Conv2d>(0).weight.array().is_channels_last());
  CHECK(net->fc->weight.is_contiguous());
}

TEST_CASE("a clone is independent and draws no random numbers") {
  manual_seed(3);
  Block block(2);
  block->eval();
  block->scale.set_requires_grad(false);
  block->to(kDouble);
  const uint64_t draws = default_generator().offset();
  auto copy = std::dynamic_pointer_cast<BlockImpl>(block->clone());
  CHECK(default_generator().offset() == draws);
  REQUIRE(copy);
  CHECK(copy->named_parameters().keys() == block->named_parameters().keys());
  CHECK(copy->named_buffers().keys() == block->named_buffers().keys());
  CHECK_FALSE(copy->is_training());
  CHECK_FALSE(copy->conv->is_training());
  CHECK_FALSE(copy->scale.requires_grad());
  CHECK(copy->conv->weight.equal(block->conv->weight));
  CHECK(copy->conv->weight.dtype() == kDouble);
  CHECK(copy->conv->path() == "conv");
  CHECK(block->conv->path() == "conv");
  CHECK(copy->parameters()[1].is_same(copy->conv->weight));
  nn::init::zeros_(block->conv->weight);
  CHECK_FALSE(copy->conv->weight.equal(block->conv->weight));

  nn::Sequential sequential({{"a", nn::Linear(2, 3)}, {"b", Block(2)}});
  auto other = std::dynamic_pointer_cast<nn::SequentialImpl>(sequential->clone());
  REQUIRE(other);
  CHECK(other->named_parameters().keys() == sequential->named_parameters().keys());
  CHECK(other->at<nn::Linear>(0).weight.equal(sequential->at<nn::Linear>(0).weight));
  CHECK_FALSE(other->at<nn::Linear>(0).weight.is_same(sequential->at<nn::Linear>(0).weight));
  CHECK_THROWS_WITH(Net()->clone(), contains("Cloneable"));
}

namespace {

/// Three nested modules with members that are not parameters. One of the modules is not Cloneable.
struct GainImpl : nn::Cloneable<GainImpl> {
  GainImpl() { GainImpl::reset(); }
  void reset() override { weight = register_parameter("weight", ones({1})); }
  Tensor forward(const Tensor& x) { return x * weight * gain; }
  double gain = 1;
  Tensor weight;
};
GRADUS_MODULE(Gain);

struct PlainImpl : nn::Module {
  Gain gain = register_module("gain", Gain());
};
GRADUS_MODULE(Plain);

struct MiddleImpl : nn::Cloneable<MiddleImpl> {
  MiddleImpl() { MiddleImpl::reset(); }
  void reset() override {
    gain = register_module("gain", Gain());
    gain->gain = 2;
    plain = register_module("plain", Plain());
    layers = register_module("layers", nn::Sequential(Gain(), nn::Dropout(0.1)));
  }
  std::string label = "none";
  Gain gain{nullptr};
  Plain plain{nullptr};
  nn::Sequential layers{nullptr};
};
GRADUS_MODULE(Middle);

struct OuterImpl : nn::Cloneable<OuterImpl> {
  OuterImpl() { OuterImpl::reset(); }
  void reset() override { middle = register_module("middle", Middle()); }
  Middle middle{nullptr};
};
GRADUS_MODULE(Outer);

}  // namespace

TEST_CASE("a clone has the members of all submodules") {
  Outer outer;
  outer->middle->label = "middle";
  outer->middle->gain->gain = 3;
  outer->middle->plain->gain->gain = 4;
  outer->middle->layers->at<Gain>(0).gain = 5;
  outer->middle->layers->at<nn::Dropout>(1).options.p(0.7);
  outer->middle->layers->push_back("late", Gain());  // added after reset()
  outer->middle->gain->eval();
  outer->middle->gain->weight.set_requires_grad(false);
  auto copy = std::dynamic_pointer_cast<OuterImpl>(outer->clone());
  REQUIRE(copy);
  const Middle& middle = copy->middle;
  CHECK(middle->label == "middle");
  CHECK(middle->gain->gain == 3);
  CHECK(middle->plain->gain->gain == 4);
  REQUIRE(middle->layers->size() == 3);
  CHECK(middle->layers->at<Gain>(0).gain == 5);
  CHECK(middle->layers->at<nn::Dropout>(1).options.p() == 0.7);
  CHECK_FALSE(middle->gain->is_training());
  CHECK_FALSE(middle->gain->weight.requires_grad());

  CHECK(middle->path() == "middle");
  CHECK(middle->gain->path() == "middle.gain");
  CHECK(middle->layers->ptr(2)->path() == "middle.layers.late");
  CHECK(copy->named_parameters().keys() == outer->named_parameters().keys());
  // The members of the clone are the registered modules and tensors, and none is shared with the original.
  CHECK(copy->named_modules()["middle.gain"] == middle->gain.ptr());
  CHECK(copy->named_parameters()["middle.gain.weight"].is_same(middle->gain->weight));
  for (const auto& item : copy->named_parameters()) CHECK_FALSE(item->is_same(outer->named_parameters()[item.key()]));
  middle->gain->gain = 9;
  CHECK(outer->middle->gain->gain == 3);
}

TEST_CASE("tied parameters of modules within modules stay tied in a clone") {
  Outer outer;
  auto& layers = *outer->middle->layers;
  layers.push_back(Gain());
  for (GainImpl* tied : {outer->middle->plain->gain.get(), &layers.at<Gain>(2)})
    tied->weight = tied->replace_parameter("weight", outer->middle->gain->weight);
  nn::init::constant_(outer->middle->gain->weight, 7);
  auto copy = std::dynamic_pointer_cast<OuterImpl>(outer->clone());
  REQUIRE(copy);
  const Tensor weight = copy->middle->gain->weight;
  CHECK(copy->middle->plain->gain->weight.is_same(weight));
  CHECK(copy->middle->layers->at<Gain>(2).weight.is_same(weight));
  CHECK(weight.item<float>() == 7);
  CHECK_FALSE(weight.is_same(outer->middle->gain->weight));

  // A module that does not store the result of register_parameter() would train another tensor than its forward uses.
  struct CarelessImpl : nn::Cloneable<CarelessImpl> {
    CarelessImpl() { CarelessImpl::reset(); }
    void reset() override {
      weight = ones({1});
      register_parameter("weight", weight);
    }
    Tensor forward(const Tensor& x) { return x * weight; }
    Tensor weight;
  };
  nn::Sequential careless(std::make_shared<CarelessImpl>(), std::make_shared<CarelessImpl>());
  CHECK(careless->clone()->parameters().size() == 2);
  careless->at<CarelessImpl>(1).weight =
      careless->ptr(1)->replace_parameter("weight", careless->at<CarelessImpl>(0).weight);
  CHECK_THROWS_WITH(careless->clone(), contains("keep what register_parameter() returns"));
}

TEST_CASE("the error names a submodule that cannot be cloned") {
  struct FixedImpl : nn::Cloneable<FixedImpl> {
    FixedImpl() = default;
    FixedImpl(const FixedImpl&) = default;
    void reset() override {}
    Tensor forward(const Tensor& x) { return x * factor; }
    const int factor = 2;
  };
  struct OwnerImpl : nn::Cloneable<OwnerImpl> {
    OwnerImpl() { OwnerImpl::reset(); }
    void reset() override { register_module("part", std::make_shared<FixedImpl>()); }
  };
  auto owner = std::make_shared<OwnerImpl>();
  CHECK(FixedImpl().clone());
  CHECK_THROWS_WITH(owner->clone(), contains("no copy assignment"));
  owner->replace_module("part", Gain());
  CHECK_THROWS_AS(owner->clone(), ValueError);
}

TEST_CASE("a net prints as LibTorch prints it") {
  const std::string net_type = Net()->name(), block_type = Block(2)->name();
  CHECK(printed(Net()) == net_type + R"((
  (features): gradus::nn::Sequential(
    (0): gradus::nn::Conv2d(1, 2, kernel_size=[3, 3], stride=[1, 1])
    (1): gradus::nn::ReLU()
    (2): )" + block_type + R"((
      (conv): gradus::nn::Conv2d(2, 2, kernel_size=[3, 3], stride=[1, 1], padding=[1, 1], bias=false)
    )
    (3): gradus::nn::MaxPool2d(kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], dilation=[1, 1], ceil_mode=false)
    (4): gradus::nn::Flatten(start_dim=1, end_dim=-1)
  )
  (fc): gradus::nn::Linear(in_features=18, out_features=4, bias=true)
  (dropout): gradus::nn::Dropout(p=0.25, inplace=false)
))");
  CHECK(net_type.ends_with("NetImpl"));
  CHECK(printed(nn::ConvReLU2d(nn::ConvReLU2dOptions(4, 8, {3, 5}).stride({2, 1}).dilation(2).groups(2))) ==
        "gradus::nn::ConvReLU2d(4, 8, kernel_size=[3, 5], stride=[2, 1], dilation=[2, 2], groups=2)");
  CHECK(printed(nn::ReLU(true)) == "gradus::nn::ReLU(inplace=true)");
  CHECK(printed(nn::LogSoftmax(1)) == "gradus::nn::LogSoftmax(dim=1)");
  CHECK(printed(nn::Softmax(-1)) == "gradus::nn::Softmax(dim=-1)");
  CHECK(printed(nn::Sigmoid()) == "gradus::nn::Sigmoid()");
  CHECK(printed(nn::Tanh()) == "gradus::nn::Tanh()");
  CHECK(printed(nn::CrossEntropyLoss()) == "gradus::nn::CrossEntropyLoss()");
  CHECK(printed(nn::NLLLoss()) == "gradus::nn::NLLLoss()");
  CHECK(printed(nn::Functional(relu)) == "gradus::nn::Functional()");
}

TEST_CASE("forward takes text, with and without recomputation and hooks") {
  struct Named : nn::Module {
    Tensor forward(const Tensor& x, const std::string& text) { return x * static_cast<double>(text.size()); }
  };
  const auto net = std::make_shared<Named>();
  CHECK(nn::call(*net, ones({1}), "four").item<float>() == 4);
  net->recompute();
  const Tensor x = ones({1}).set_requires_grad(true);
  nn::call(*net, x, "four").backward();
  CHECK(x.grad().item<float>() == 4);
  net->register_forward_pre_hook([](nn::Module&, TensorList& inputs) { inputs[0] = inputs[0] + 1; });
  net->register_forward_hook([](nn::Module&, const TensorList&, TensorList& outputs) { outputs[0] = outputs[0] * 10; });
  const Tensor y = nn::call(*net, x, "four");
  CHECK(y.item<float>() == 80);
  y.backward();
  CHECK(x.grad().item<float>() == 44);
  net->recompute(false);
  CHECK(nn::call(*net, x, "four").item<float>() == 80);
}

TEST_CASE("layers that only call a function are classes with names of their own") {
  struct PointwiseImpl : nn::Conv2dImpl {
    using Conv2dImpl::Conv2dImpl;
  };
  CHECK(printed(*std::make_shared<PointwiseImpl>(1, 1, 1)).starts_with("gradus::nn::Conv2d(1, 1"));
  CHECK(std::make_shared<nn::ReLUImpl>()->name() == "gradus::nn::ReLUImpl");
  const nn::Sequential net(nn::GELU(), nn::Linear(1, 1));
  CHECK_THROWS_WITH(net->at<nn::ReLUImpl>(0), contains("gradus::nn::GELUImpl, not a gradus::nn::ReLUImpl"));
}

TEST_CASE("a moved module passes its children on") {
  struct Pair : nn::Module {
    nn::Linear fc = register_module("fc", nn::Linear(2, 2));
    Tensor forward(const Tensor& x) { return fc(x); }
  };
  nn::Sequential sequential{Pair()};
  CHECK(sequential->at<Pair>(0).fc->path() == "0.fc");
}

TEST_CASE("deeply nested modules do not overflow the stack") {
  struct ShellImpl : nn::Module {
    explicit ShellImpl(std::shared_ptr<nn::Module> inside) : inner(std::move(inside)) {
      if (inner) register_module("inner", inner);
    }
    std::shared_ptr<nn::Module> inner;  // held both as a registered child and as a member, as in built-in containers
  };
  constexpr int depth = 200'000;
  auto core = std::make_shared<nn::LinearImpl>(nn::LinearOptions(2, 1));
  std::weak_ptr<nn::Module> watched = core;
  std::shared_ptr<nn::Module> net = std::move(core);
  for (int i = 0; i < depth; ++i) net = std::make_shared<ShellImpl>(std::move(net));
  CHECK(net->parameters().size() == 2);
  int64_t count = 0;
  net->apply([&](nn::Module&) { ++count; });
  CHECK(count == depth + 1);
  net->to(kDouble);
  CHECK(watched.lock()->path().size() == depth * (std::string("inner.").size()) - 1);
  net.reset();
  CHECK(watched.expired());
}

TEST_CASE("every kind of apply visits the modules in order, with their names") {
  Net net;
  const nn::Module& fixed = *net;
  const Names wanted = net->named_modules("net").keys();
  Names names, by_pointer, by_reference;
  size_t modules = 0, pointers = 0;
  fixed.apply([&](const std::string& name, const nn::Module&) { names.push_back(name); }, "net");
  CHECK(names == wanted);
  net->apply([&](const std::string& name, nn::Module&) { by_reference.push_back(name); }, "net");
  CHECK(by_reference == wanted);
  net->apply([&](const std::string& name, const std::shared_ptr<nn::Module>&) { by_pointer.push_back(name); }, "net");
  CHECK(by_pointer == wanted);
  fixed.apply([&](const nn::Module& module) { CHECK(&module == net->modules()[modules++].get()); });
  CHECK(modules == 10);
  net->apply([&](const std::shared_ptr<nn::Module>& module) { CHECK(module == net->modules()[pointers++]); });
  CHECK(pointers == 10);
  CHECK(net->named_modules("net").keys().front() == "net");
  CHECK(net->named_modules("net", false).size() == 9);
}

TEST_CASE("a module that is registered under several names has the first, at any depth") {
  nn::Linear shared(1, 1), last(2, 2);
  nn::Sequential inner({{"a", shared}, {"b", last}});
  nn::ModuleDict net({{"x", shared}, {"y", inner}, {"z", shared}, {"w", nn::ReLU()}});
  CHECK(net->named_modules().keys() == Names{"", "x", "y", "y.b", "w"});
  CHECK(net->named_parameters().keys() == Names{"x.weight", "x.bias", "y.b.weight", "y.b.bias"});
  CHECK(net->state_dict().size() == 8);
  CHECK(shared->path() == "y.a");  // its first parent
  net->unregister_module("x");
  CHECK(shared->path() == "y.a");
  inner->unregister_module("a");
  CHECK(shared->path().empty());
  CHECK(net->named_modules().keys() == Names{"", "y", "y.b", "z", "w"});
}

TEST_CASE("a clone has all buffers and parameters, also undefined ones, and a copy on the device that is asked for") {
  struct BuffersImpl : nn::Cloneable<BuffersImpl> {
    BuffersImpl() { BuffersImpl::reset(); }
    void reset() override {
      none = register_parameter("none", Tensor());
      first = register_parameter("first", zeros({2}));
      no_buffer = register_buffer("no_buffer", Tensor());
      one = register_buffer("one", zeros({1})), two = register_buffer("two", zeros({2}, kLong));
      last = register_parameter("last", zeros({3}), false);
    }
    Tensor none, first, last, no_buffer, one, two;
  };
  auto module = std::make_shared<BuffersImpl>();
  for (const Tensor& tensor : {module->first, module->last, module->one, module->two}) nn::init::constant_(tensor, 7);
  for (const bool with_device : {false, true}) {
    const auto copy =
        std::dynamic_pointer_cast<BuffersImpl>(with_device ? module->clone(Device("cpu")) : module->clone());
    CHECK_FALSE(copy->none.defined());
    CHECK_FALSE(copy->no_buffer.defined());
    CHECK(copy->first.requires_grad());
    CHECK_FALSE(copy->last.requires_grad());
    using Pair = std::pair<Tensor, Tensor>;
    for (const auto& [ours, theirs] : {Pair{copy->first, module->first},
                                       {copy->last, module->last},
                                       {copy->one, module->one},
                                       {copy->two, module->two}}) {
      CHECK(ours.equal(theirs));
      CHECK(ours.data_ptr() != theirs.data_ptr());
    }
  }
  module->register_buffer("late", zeros({1}));
  CHECK_THROWS_WITH(module->clone(), contains("registered 3 parameters, 3 buffers and 0 modules") &&
                                         contains("the original has 3, 4 and 0"));
}

TEST_CASE("conversions that change nothing keep the data, and others convert gradients, too") {
  nn::Conv2d conv(2, 3, 3);
  conv(ones({1, 2, 4, 4})).sum().backward();
  const void* data = conv->weight.data_ptr();
  const void* gradient = conv->weight.grad().data_ptr();
  conv->to(kFloat), conv->to(Device("cpu")), conv->to(kCPU, kFloat), conv->to(MemoryFormat::contiguous);
  CHECK(conv->weight.data_ptr() == data);
  CHECK(conv->weight.grad().data_ptr() == gradient);
  conv->to(MemoryFormat::channels_last);
  CHECK(conv->weight.array().is_channels_last());
  CHECK(conv->weight.grad().array().is_channels_last());
  CHECK(conv->bias.grad().equal(full({3}, 4.0)));
  CHECK_NOTHROW(nn::Conv1d(2, 3, 3)->to(MemoryFormat::channels_last));
  CHECK_THROWS_WITH(conv->to(kInt), contains("floating") && contains("int32"));
  conv->to(kHalf);
  CHECK(conv->weight.grad().dtype() == kHalf);
}

TEST_CASE("copies and assignments share tensors and children, but no hooks and no place in a parent") {
  struct Part : nn::Module {
    using Module::Module;
  };
  nn::Linear fc(2, 2);
  Part original("Original");
  original.register_module("fc", fc);
  const Tensor weight = original.register_parameter("weight", ones({1})),
               mean = original.register_buffer("mean", ones({1}));
  original.register_forward_hook([](nn::Module&, const TensorList&, TensorList&) {});
  original.eval();
  Part copied(original), assigned("Other");
  assigned.register_module("old", nn::ReLU());
  const auto old = assigned.children()[0];
  CHECK(old->path() == "old");
  assigned = original;
  CHECK(old->path().empty());
  for (const nn::Module* copy : std::initializer_list<const nn::Module*>{&copied, &assigned}) {
    CHECK(copy->name() == "Original");
    CHECK_FALSE(copy->is_training());
    CHECK_FALSE(copy->has_hooks());
    CHECK(copy->named_parameters(false)["weight"].is_same(weight));
    CHECK(copy->named_buffers(false)["mean"].is_same(mean));
    CHECK(copy->children()[0] == fc.ptr());
  }
  const Part& self = assigned;
  assigned = self;
  CHECK(assigned.children().size() == 1);
  CHECK(fc->path() == "fc");
  const Part moved(std::move(original));
  CHECK(moved.name() == "Original");
  CHECK_FALSE(moved.is_training());
  CHECK(moved.has_hooks());
  CHECK(moved.named_parameters().keys() == Names{"weight", "fc.weight", "fc.bias"});
  CHECK(moved.named_buffers().keys() == Names{"mean"});
  CHECK(fc->path() == "fc");
}

TEST_CASE("names of modules, parameters and buffers must differ, whichever is registered first") {
  const auto parameter = [](nn::Module& module) { module.register_parameter("x", ones({1})); };
  const auto buffer = [](nn::Module& module) { module.register_buffer("x", ones({1})); };
  const auto child = [](nn::Module& module) { module.register_module("x", nn::ReLU()); };
  const std::vector<std::function<void(nn::Module&)>> registrations = {parameter, buffer, child};
  for (const auto& first : registrations)
    for (const auto& second : registrations) {
      nn::Module module;
      first(module);
      CHECK_THROWS_WITH(second(module), contains("'x'"));
    }
  nn::Module module("Mine");
  CHECK_THROWS_WITH(module.register_module("", nn::ReLU()), contains("Submodule of Mine") && contains("not empty"));
  CHECK_THROWS_WITH(module.register_buffer("a.b", Tensor()), contains("Buffer name 'a.b' of Mine"));
  const auto root = std::make_shared<nn::Module>(), middle = std::make_shared<nn::Module>(),
             leaf = std::make_shared<nn::Module>();
  root->register_module("middle", middle), middle->register_module("leaf", leaf);
  for (const auto& above : {root, middle, leaf})
    CHECK_THROWS_WITH(leaf->register_module("up", above), contains("contains it"));
}
