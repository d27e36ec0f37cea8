// State dicts, and modules in safetensors files.
#include <gradus/autograd/archive.h>
#include <gradus/autograd/autograd.h>
#include <gradus/core/io/safetensors.h>
#include <gradus/layers/layers.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

#include <fstream>

using namespace gradus;
using test::contains;

namespace {

nn::Sequential make_net() {
  return nn::Sequential({{"conv", nn::Conv2d(1, 2, 3)}, {"flatten", nn::Flatten()}, {"fc", nn::Linear(8, 3)}});
}

struct TiedImpl : nn::Module {
  nn::Linear encoder = register_module("encoder", nn::Linear(3, 3)),
             decoder = register_module("decoder", nn::Linear(3, 3));
  TiedImpl() { decoder = replace_module("decoder", encoder.ptr()); }
};
GRADUS_MODULE(Tied);

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a state dict holds detached views of every tensor") {
  nn::Sequential net = make_net();
  const nn::StateDict state = net->state_dict();
  CHECK(state.keys() == Names{"conv.weight", "conv.bias", "fc.weight", "fc.bias"});
  CHECK_FALSE(state["fc.weight"].requires_grad());
  CHECK(state["fc.weight"].data_ptr() == net->at<nn::Linear>(2).weight.data_ptr());
}

TEST_CASE("a state dict is copied from one net to another") {
  nn::Sequential net = make_net(), other = make_net();
  const Tensor weight = other->at<nn::Linear>(2).weight;
  CHECK_FALSE(weight.equal(net->at<nn::Linear>(2).weight));
  const uint32_t version = weight.version();
  const nn::IncompatibleKeys keys = other->load_state_dict(net->state_dict());
  CHECK(keys.missing_keys.empty());
  CHECK(keys.unexpected_keys.empty());
  CHECK(weight.equal(net->at<nn::Linear>(2).weight));
  CHECK(weight.requires_grad());
  CHECK(weight.is_leaf());
  CHECK(weight.version() > version);
  const Tensor x = randn({4, 1, 4, 4});
  CHECK(net(x).equal(other(x)));

  other->to(kDouble);
  other->load_state_dict(net->state_dict());  // converted to the other type
  CHECK(other->at<nn::Linear>(2).weight.dtype() == kDouble);
}

TEST_CASE("long keys are shortened in messages, long lists of keys are not") {
  nn::Sequential net = make_net();
  nn::StateDict state = net->state_dict();
  for (int i = 0; i < 300; ++i) state.insert("key number " + std::to_string(i), ones({1}));
  CHECK_THROWS_WITH(net->load_state_dict(state), contains("'key number 0'") && contains("'key number 299'"));
  state = net->state_dict();
  state.insert(std::string(100'000, 'x'), ones({1}));
  try {
    net->load_state_dict(state);
    FAIL("no error");
  } catch (const ValueError& error) { CHECK(std::string(error.what()).size() < 1000); }
}

TEST_CASE("errors of a state that does not fit name the keys, and nothing is changed") {
  nn::Sequential net = make_net();
  const Tensor before = net->at<nn::Linear>(2).weight.detach().clone();
  nn::StateDict state = make_net()->state_dict();
  SECTION("missing and unexpected keys") {
    state.erase("fc.bias");
    state.insert("extra.weight", zeros({1}));
    CHECK_THROWS_AS(net->load_state_dict(state), ValueError);
    CHECK_THROWS_WITH(net->load_state_dict(state),
                      contains("missing keys: 'fc.bias'") && contains("unexpected keys: 'extra.weight'"));
    CHECK(net->at<nn::Linear>(2).weight.equal(before));
    const nn::IncompatibleKeys keys = net->load_state_dict(state, false);
    CHECK(keys.missing_keys == Names{"fc.bias"});
    CHECK(keys.unexpected_keys == Names{"extra.weight"});
    CHECK(net->at<nn::Linear>(2).weight.equal(state["fc.weight"]));
  }
  SECTION("sizes") {
    state["fc.weight"] = zeros({3, 9});
    CHECK_THROWS_AS(net->load_state_dict(state, false), ShapeError);
    CHECK_THROWS_WITH(net->load_state_dict(state), contains("'fc.weight'") && contains("(3, 9)") && contains("(3, 8)"));
    CHECK(net->at<nn::Linear>(2).weight.equal(before));
  }
}

TEST_CASE("a net is restored from a file") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("net.safetensors");
  nn::Sequential net = make_net(), other = make_net();
  net->to(MemoryFormat::channels_last);
  save(net, path);
  load(other, path);
  const Tensor x = randn({4, 1, 4, 4});
  CHECK(net(x).allclose(other(x)));
  CHECK(other->at<nn::Conv2d>(0).weight.equal(net->at<nn::Conv2d>(0).weight));

  nn::Linear unlike(8, 3);
  CHECK_THROWS_WITH(load(unlike, path), contains("missing keys: 'weight', 'bias'"));
  CHECK_THROWS_AS(load(other, directory.file("none.safetensors")), IoError);
  std::ofstream(directory.file("text.safetensors")) << "no tensors here";
  CHECK_THROWS_AS(load(other, directory.file("text.safetensors")), IoError);
}

TEST_CASE("tied tensors are stored once and are tied after loading") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("tied.safetensors");
  Tied net;
  save(net, path);
  CHECK(io::load_safetensors(path).size() == 2);

  Tied other;
  load(other, path);
  CHECK(other->encoder->weight.equal(net->encoder->weight));
  CHECK(other->decoder.ptr() == other->encoder.ptr());

  // A net with the same names whose weights are not tied loads both weights from this file. Without the file's
  // metadata, it lacks one of them.
  nn::Sequential untied({{"encoder", nn::Linear(3, 3)}, {"decoder", nn::Linear(3, 3)}});
  load(untied, path);
  CHECK(untied->at<nn::Linear>(1).weight.equal(net->encoder->weight));
  nn::StateDict once;
  for (const auto& [name, array] : io::load_safetensors(path)) once.insert(name, Tensor(array));
  CHECK_NOTHROW(other->load_state_dict(once));
  CHECK_THROWS_AS(untied->load_state_dict(once), ValueError);
}

TEST_CASE("files are compatible with PyTorch's safetensors", "[pytorch]") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("net.safetensors");
  SECTION("files written by gradus") {
    Tied net;
    save_safetensors(*net, path);
    const io::Safetensors file = io::load_safetensors_with_metadata(path);
    CHECK(file.metadata ==
          io::Metadata{{"format", "pt"}, {"encoder.bias", "decoder.bias"}, {"encoder.weight", "decoder.weight"}});
    CHECK(file.tensors.contains("decoder.weight"));
  }
  SECTION("a tied tensor may be stored under one or both names, with or without metadata") {
    const Array weight = randn({3, 3}).array(), bias = randn({3}).array();
    const auto check = [&](const std::vector<std::pair<std::string, Array>>& tensors, const io::Metadata& metadata) {
      io::save_safetensors(path, tensors, metadata);
      Tied net;
      load_safetensors(*net, path);
      CHECK(net->encoder->weight.equal(Tensor(weight)));
      CHECK(net->decoder->bias.equal(Tensor(bias)));
    };
    check({{"encoder.weight", weight}, {"encoder.bias", bias}}, {{"format", "pt"}});
    check({{"decoder.weight", weight}, {"encoder.bias", bias}}, {});
    check({{"encoder.weight", weight}, {"encoder.bias", bias}, {"decoder.weight", weight}, {"decoder.bias", bias}}, {});
  }
  SECTION("metadata that happen to name a tensor tie nothing") {
    nn::Linear net(8, 3);
    io::save_safetensors(path, {{"weight", net->weight.array()}, {"bias", net->bias.array()}}, {{"best", "weight"}});
    CHECK_NOTHROW(load_safetensors(*net, path));
  }
  SECTION("half precision is converted") {
    nn::Linear net(2, 1);
    io::save_safetensors(path, {{"weight", tensor({1.5, -2.0}).to(kHalf).view({1, 2}).array()},
                                {"bias", tensor({0.25}).to(kBFloat16).array()}});
    load_safetensors(*net, path);
    CHECK(net->weight.dtype() == kFloat);
    CHECK(net->weight.equal(tensor({1.5f, -2.0f}).view({1, 2})));
    CHECK(net->bias.item<float>() == 0.25f);
  }
}

TEST_CASE("load_state_dict: states from before num_batches_tracked load strictly, as in PyTorch", "[layers]") {
  nn::Sequential net(nn::Conv2d(1, 2, 1), nn::BatchNorm2d(2), nn::BNReLU2d(2),
                     nn::Sequential(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(2).track_running_stats(true))));
  net->train();
  net->forward(ones({2, 1, 3, 3}));
  nn::StateDict old;
  for (const auto& item : net->state_dict())
    if (item.key().find("num_batches_tracked") == std::string::npos) old.append(item.key(), *item + 1);
  const nn::IncompatibleKeys keys = net->load_state_dict(old);
  CHECK(keys.missing_keys.empty());
  CHECK(keys.unexpected_keys.empty());
  CHECK(net->state_dict()["1.running_mean"].equal(old["1.running_mean"]));
  CHECK(net->state_dict()["1.num_batches_tracked"].item<int64_t>() == 1);  // keeps its value
  nn::BatchNorm1d alone(3);
  CHECK(alone
            ->load_state_dict(
                {{"weight", ones({3})}, {"bias", ones({3})}, {"running_mean", ones({3})}, {"running_var", ones({3})}})
            .missing_keys.empty());
  // No other key may be missing, and a buffer with that name in another module is an ordinary buffer.
  nn::StateDict less = old;
  less.erase("1.running_var");
  CHECK_THROWS_WITH(net->load_state_dict(less), test::contains("missing keys: '1.running_var'"));
  struct CounterImpl : nn::Module {
    Tensor count = register_buffer("num_batches_tracked", zeros({}, kLong));
  };
  CHECK_THROWS_AS(std::make_shared<CounterImpl>()->load_state_dict(nn::StateDict()), ValueError);
}

TEST_CASE("only tensors of the same elements in the same order are tied in a file") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("views.safetensors");
  const Tensor whole = arange(0, 16, kFloat).view({4, 4}), apart = zeros({4, 4});
  struct ViewsImpl : nn::Module {};
  const auto stored = [&](const Tensor& a, const Tensor& b) {
    const auto module = std::make_shared<ViewsImpl>();
    module->register_buffer("a", a), module->register_buffer("b", b);
    save_safetensors(*module, path);
    const io::Safetensors file = io::load_safetensors_with_metadata(path);
    const auto loaded = std::make_shared<ViewsImpl>();
    loaded->register_buffer("a", zeros(a.sizes(), a.dtype())),
        loaded->register_buffer("b", zeros(b.sizes(), b.dtype()));
    load_safetensors(*loaded, path);
    CHECK(loaded->named_buffers()["a"].equal(a));
    CHECK(loaded->named_buffers()["b"].equal(b));
    return file.tensors.size();
  };
  CHECK(stored(whole, whole) == 1);
  CHECK(stored(whole, whole.view({4, 4})) == 1);
  CHECK(stored(whole, whole.t()) == 2);
  CHECK(stored(whole, whole.view({2, 8})) == 2);
  CHECK(stored(whole[0], whole[1]) == 2);
  CHECK(stored(whole.narrow(0, 0, 2), whole) == 2);
  CHECK(stored(whole, apart) == 2);
  CHECK(stored(zeros({0}), zeros({0})) == 2);
  CHECK(stored(whole.narrow(0, 0, 0), whole.narrow(0, 0, 0)) == 2);
}

TEST_CASE("a state lacks a tensor unless it has another name of the same tensor") {
  const Tensor whole = ones({4, 4});
  struct ViewsImpl : nn::Module {};
  const auto missing = [&](const Tensor& a, const Tensor& b) {
    const auto module = std::make_shared<ViewsImpl>();
    module->register_buffer("a", a), module->register_buffer("b", b);
    return module->load_state_dict({{"a", zeros(a.sizes(), a.dtype())}}, false).missing_keys;
  };
  CHECK(missing(whole, whole).empty());
  CHECK(missing(whole, whole.view({4, 4})).empty());
  CHECK(missing(whole, whole.t()) == Names{"b"});
  CHECK(missing(whole, whole.view({2, 8})) == Names{"b"});
  CHECK(missing(whole[0], whole[1]) == Names{"b"});
  CHECK(missing(whole[0], whole[0].clone()) == Names{"b"});
}

TEST_CASE("the message about a state lists every key and all sizes, and undefined tensors") {
  nn::Sequential net(nn::Linear(2, 3), nn::Linear(3, 1));
  nn::StateDict state = net->state_dict();
  state.erase("0.bias"), state.erase("1.bias");
  state.insert("x", ones({1})), state.insert("y", ones({1}));
  CHECK_THROWS_WITH(net->load_state_dict(state),
                    contains("the state does not fit gradus::nn::SequentialImpl:\n  missing keys: '0.bias', '1.bias'\n"
                             "  unexpected keys: 'x', 'y'\n(strict = false"));
  state["0.weight"] = Tensor();
  state["1.weight"] = ones({3});
  CHECK_THROWS_WITH(net->load_state_dict(state),
                    contains("missing keys: '0.bias', '1.bias'") &&
                        contains("'0.weight': the state has no tensor, the module (3, 2)") &&
                        contains("'1.weight': the state has (3,), the module (1, 3)"));
  CHECK_THROWS_WITH(net->load_state_dict(state, false), !contains("missing"));
}

TEST_CASE("a module is a part of an archive") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("parts.safetensors");
  Tied net;
  nn::Linear other(3, 3);
  serialize::OutputArchive all, part, second;
  net->save(part), other->save(second);
  all.write("net", part), all.write("network", second);
  all.save_to(path);
  serialize::InputArchive archive, inner;
  archive.load_from(path);
  REQUIRE(archive.try_read("net", inner));
  Tied loaded;
  loaded->load(inner);
  CHECK(loaded->decoder->weight.equal(net->decoder->weight));
  CHECK(loaded->encoder->bias.equal(net->encoder->bias));
  nn::Sequential untied({{"encoder", nn::Linear(3, 3)}, {"decoder", nn::Linear(3, 3)}});
  untied->load(inner);
  CHECK(untied->at<nn::Linear>(0).weight.equal(net->encoder->weight));
  CHECK(untied->at<nn::Linear>(1).weight.equal(net->encoder->weight));
  CHECK_THROWS_AS(other->load(inner), ValueError);
}
