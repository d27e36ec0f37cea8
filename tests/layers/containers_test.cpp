// ModuleList, ModuleDict, ParameterList, ParameterDict, and tied parameters.
#include <gradus/autograd/autograd.h>
#include <gradus/layers/layers.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/layers/printed.h>

using namespace gradus;
using gradus::test::printed;
using test::contains;

namespace {

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a ModuleList holds modules by position") {
  nn::Linear first(2, 3);
  nn::ModuleList list(first, nn::ReLU());
  list->push_back(nn::Linear(3, 4));
  CHECK(list->size() == 3);
  CHECK(list->named_parameters().keys() == Names{"0.weight", "0.bias", "2.weight", "2.bias"});
  CHECK(list->ptr(0) == first.ptr());
  CHECK((*list)[0] == first.ptr());
  CHECK(&list->at<nn::Linear>(0) == first.get());
  CHECK_THROWS_AS(list->at<nn::ReLU>(0), ValueError);
  CHECK_THROWS_AS(list->ptr(3), IndexError);

  Tensor x = randn({1, 2});
  for (const auto& module : *list) {
    if (auto* linear = module->as<nn::Linear>()) x = linear->forward(x);
    else x = module->as<nn::ReLU>()->forward(x);
  }
  CHECK(x.sizes() == Shape({1, 4}));

  list->insert(1, nn::Identity());
  CHECK(list->size() == 4);
  CHECK(list->at<nn::Linear>(3).path() == "3");
  CHECK(list->ptr(1)->as<nn::Identity>());
  CHECK_THROWS_AS(list->insert(5, nn::ReLU()), IndexError);
  CHECK_THROWS_AS(list->push_back(std::shared_ptr<nn::Module>()), ValueError);
  CHECK_THROWS_AS(list->push_back(nn::Linear(nullptr)), ValueError);
  const std::shared_ptr<nn::Module> any_module = first;
  CHECK(any_module == first.ptr());

  nn::ModuleList more;
  CHECK(more->is_empty());
  more->extend(*list);
  more->extend(*nn::Sequential(nn::Tanh(), nn::Sigmoid()));
  CHECK(more->size() == 6);
  CHECK(more->ptr(0) == first.ptr());
}

TEST_CASE("a ModuleDict holds modules by name, in order") {
  nn::ModuleDict dict({{"digits", nn::Linear(8, 10)}, {"act", nn::ReLU()}});
  dict->insert("sign", nn::Linear(8, 2));
  CHECK(dict->keys() == Names{"digits", "act", "sign"});
  CHECK(dict->size() == 3);
  CHECK(dict->contains("act"));
  CHECK_FALSE(dict->contains("relu"));
  CHECK(dict->at<nn::Linear>("sign").options.out_features() == 2);
  CHECK_THROWS_AS(dict->at<nn::Linear>("act"), ValueError);
  CHECK_THROWS_AS((*dict)["relu"], IndexError);
  CHECK(dict->named_parameters().keys() == Names{"digits.weight", "digits.bias", "sign.weight", "sign.bias"});

  dict->insert("act", nn::Tanh());
  CHECK(dict->keys() == Names{"digits", "act", "sign"});
  CHECK((*dict)["act"]->as<nn::Tanh>());
  const auto popped = dict->pop("digits");
  CHECK(popped->as<nn::Linear>());
  CHECK(popped->path() == "");
  CHECK_THROWS_AS(dict->pop("digits"), IndexError);
  nn::ModuleDict other;
  other->update(*dict);
  CHECK(other->items().size() == 2);
  CHECK(other->values()[0] == dict["act"]);
  CHECK(other->begin()->key() == dict->begin()->key());
  other->update(std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>>{{"more", nn::ReLU().ptr()}});
  CHECK(other->size() == 3);
  other->clear();
  CHECK(other->empty());
}

TEST_CASE("ParameterList and ParameterDict register what they hold") {
  nn::ParameterList list(randn({2}, requires_grad()), randn({3}));
  list->append(ones({1}, kLong));
  CHECK(list->size() == 3);
  CHECK(list->named_parameters().keys() == Names{"0", "1", "2"});
  CHECK((*list)[0].requires_grad());
  CHECK_FALSE((*list)[1].requires_grad());
  CHECK_THROWS_AS((*list)[3], IndexError);
  Tensor sum = zeros({});
  for (const auto& item : *list) sum = sum + item.value().sum();
  CHECK(sum.requires_grad());

  nn::ParameterDict dict;
  dict->insert("a", randn({2}, requires_grad()));
  dict->insert("b", randn({3}));
  const Tensor other = randn({4}, requires_grad());
  dict->insert("b", other);
  CHECK(dict->keys() == Names{"a", "b"});
  CHECK((*dict)["b"].is_same(other));
  CHECK(dict->named_parameters()["b"].is_same(other));
  CHECK_THROWS_AS((*dict)["c"], IndexError);

  auto copy = std::dynamic_pointer_cast<nn::ParameterDictImpl>(dict->clone());
  CHECK((*copy)["b"].equal(other));
  CHECK_FALSE((*copy)["b"].is_same(other));
  CHECK((*copy)["b"].is_same(copy->named_parameters()["b"]));
  CHECK(printed(list) ==
        "gradus::nn::ParameterList(\n"
        "(0): Parameter containing: [Float of size [2]]\n"
        "(1): Parameter containing: [Float of size [3]]\n"
        "(2): Parameter containing: [Long of size [1]]\n)");

  nn::ParameterList more(randn({2}));
  *list += *more;
  CHECK(list->size() == 4);
  CHECK(list[3].is_same(more[0]));
  CHECK(list->named_parameters().keys().back() == "3");
  CHECK(dict->pop("a").requires_grad());
  CHECK_THROWS_AS(dict->pop("a"), IndexError);
  CHECK(dict->named_parameters().keys() == Names{"b"});
  nn::ParameterDict twin;
  twin->update(*dict);
  CHECK(twin["b"].is_same(other));
  CHECK(twin->begin()->key() == "b");
  twin->clear();
  CHECK(twin->parameters().empty());
}

TEST_CASE("clones of containers are independent and keep repeated entries shared") {
  nn::Linear shared(3, 3);
  nn::Sequential sequential(shared, nn::ReLU(), shared);
  auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(sequential->clone());
  CHECK(copy->parameters().size() == 2);
  CHECK(copy->ptr(0) == copy->ptr(2));
  CHECK(copy->ptr(0) != sequential->ptr(0));
  const Tensor x = randn({2, 3});
  CHECK(copy->forward(x).equal(sequential(x)));

  nn::ModuleList list(shared, nn::Conv2d(1, 2, 3), shared);
  list->eval();
  auto list_copy = std::dynamic_pointer_cast<nn::ModuleListImpl>(list->clone(Device("cpu")));
  CHECK(list_copy->parameters().size() == 4);
  CHECK(list_copy->ptr(0) == list_copy->ptr(2));
  CHECK(list_copy->at<nn::Conv2d>(1).weight.equal(list->at<nn::Conv2d>(1).weight));
  CHECK_FALSE(list_copy->is_training());
  CHECK_FALSE(list_copy->ptr(1)->is_training());

  nn::ModuleDict dict({{"a", shared}, {"b", shared}});
  auto dict_copy = std::dynamic_pointer_cast<nn::ModuleDictImpl>(dict->clone());
  CHECK(dict_copy->keys() == Names{"a", "b"});
  CHECK((*dict_copy)["a"] == (*dict_copy)["b"]);
  CHECK((*dict_copy)["a"] != shared.ptr());
}

TEST_CASE("a parameter that is registered twice is tied") {
  struct AutoencoderImpl : nn::Cloneable<AutoencoderImpl> {
    explicit AutoencoderImpl(bool tie_in_reset) : tie_in_reset(tie_in_reset) { AutoencoderImpl::reset(); }
    void reset() override {
      encoder = register_module("encoder", nn::Linear(nn::LinearOptions(3, 3).bias(false)));
      decoder = register_module("decoder", nn::Linear(nn::LinearOptions(3, 3).bias(false)));
      if (tie_in_reset) tie();
    }
    void tie() { decoder->weight = decoder->replace_parameter("weight", encoder->weight); }
    Tensor forward(const Tensor& x) { return decoder(encoder(x)); }
    bool tie_in_reset;
    nn::Linear encoder{nullptr}, decoder{nullptr};
  };
  nn::ModuleHolder<AutoencoderImpl> net(true);
  CHECK(net->named_parameters().keys() == Names{"encoder.weight"});
  CHECK(net->num_parameters() == 9);
  CHECK(net->state_dict().keys() == Names{"encoder.weight", "decoder.weight"});
  const Tensor x = randn({2, 3});
  net(x).sum().backward();
  const Tensor both = net->encoder->weight.grad();
  CHECK(net->decoder->weight.grad().is_same(both));
  net->to(kDouble);
  CHECK(net->decoder->weight.is_same(net->encoder->weight));
  CHECK(net->decoder->weight.dtype() == kDouble);

  auto copy = std::dynamic_pointer_cast<AutoencoderImpl>(net->clone());
  CHECK(copy->decoder->weight.is_same(copy->encoder->weight));
  CHECK_FALSE(copy->encoder->weight.is_same(net->encoder->weight));
  CHECK_THROWS_AS(net->replace_parameter("weight", x), IndexError);

  nn::ModuleHolder<AutoencoderImpl> late(false);
  CHECK(late->clone()->parameters().size() == 2);
  late->tie();
  auto late_copy = std::dynamic_pointer_cast<AutoencoderImpl>(late->clone());
  CHECK(late_copy->parameters().size() == 1);
  CHECK(late_copy->decoder->weight.is_same(late_copy->encoder->weight));
  CHECK(late_copy->decoder->weight.equal(late->encoder->weight));
}

TEST_CASE("a module with two names for a parameter of another module keeps both in a clone") {
  struct PairImpl : nn::Cloneable<PairImpl> {
    PairImpl() { PairImpl::reset(); }
    void reset() override {
      a = register_parameter("a", ones({2}));
      b = register_parameter("b", a);
    }
    Tensor forward(const Tensor& x) { return x * a + b; }
    Tensor a, b;
  };
  nn::Sequential net{nn::ModuleHolder<PairImpl>(), nn::ModuleHolder<PairImpl>()};
  const Tensor first = net->at<PairImpl>(0).a;
  auto& second = net->at<PairImpl>(1);
  second.a = second.replace_parameter("a", first), second.b = second.replace_parameter("b", first);
  const auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone());
  REQUIRE(copy);
  const Tensor of_copy = copy->at<PairImpl>(0).a;
  CHECK_FALSE(of_copy.is_same(first));
  for (const size_t i : {0, 1}) {
    CHECK(copy->at<PairImpl>(i).a.is_same(of_copy));
    CHECK(copy->at<PairImpl>(i).b.is_same(of_copy));
  }
}

TEST_CASE("a parameter that reset() leaves undefined cannot be tied by a clone") {
  const nn::LinearOptions options = nn::LinearOptions(2, 2).bias(false);
  nn::Sequential net(nn::Linear(2, 2), nn::Linear(options));
  auto& second = net->at<nn::Linear>(1);
  second.bias = second.replace_parameter("bias", net->at<nn::Linear>(0).bias);
  CHECK_THROWS_WITH(net->clone(), contains("does not tie 'bias' to another parameter"));
}

TEST_CASE("Identity, Unflatten, custom names, and printing of containers") {
  const Tensor x = randn({2, 12});
  CHECK(nn::Identity()(x).is_same(x));
  CHECK(nn::Unflatten(1, std::vector<int64_t>{3, -1})(x).sizes() == Shape({2, 3, 4}));
  CHECK(nn::Unflatten(nn::UnflattenOptions(-1, {2, 6}))(x).sizes() == Shape({2, 2, 6}));
  CHECK_THROWS_AS(nn::Unflatten(1, std::vector<int64_t>{5, 2})(x), ShapeError);
  CHECK(printed(nn::Unflatten(1, std::vector<int64_t>{3, 4})) ==
        "gradus::nn::Unflatten(dim=1, unflattened_size={3, 4})");
  CHECK(nn::Module("Generator").name() == "Generator");
  CHECK(printed(nn::Module("Generator")) == "Generator");
  CHECK(printed(nn::ModuleDict({{"body", nn::ModuleList(nn::Identity())}, {"act", nn::ReLU()}})) ==
        R"(gradus::nn::ModuleDict(
  (body): gradus::nn::ModuleList(
    (0): gradus::nn::Identity()
  )
  (act): gradus::nn::ReLU()
))");
}

TEST_CASE("apply takes modules by reference, by pointer and with their names") {
  nn::Sequential net(nn::Linear(2, 2), nn::ReLU());
  std::vector<const nn::Module*> seen;
  net->apply([&](const std::shared_ptr<nn::Module>& module) { seen.push_back(module.get()); });
  CHECK(seen == std::vector<const nn::Module*>{net.get(), net->ptr(0).get(), net->ptr(1).get()});
}

TEST_CASE("parts of a Sequential that are recomputed may touch but not overlap") {
  nn::Sequential net;
  for (int i = 0; i < 8; ++i) net->push_back(nn::Linear(3, 3));
  net->push_back(nn::Tanh());
  const Tensor x = randn({2, 3});
  const Tensor wanted = net(x);
  const TensorList gradients = autograd::grad({wanted.sum()}, net->parameters());
  using Part = std::pair<size_t, size_t>;
  for (const Part& part : {Part{0, 1}, {0, 2}, {4, 5}, {4, 6}, {7, 8}, {7, 9}}) {
    net->keep_all();
    net->recompute_part(6, 7), net->recompute_part(2, 4);
    net->recompute_part(part.first, part.second);
    const Tensor y = net(x);
    CHECK(y.equal(wanted));
    const TensorList again = autograd::grad({y.sum()}, net->parameters());
    for (size_t i = 0; i < again.size(); ++i) CHECK(again[i].equal(gradients[i]));
    CHECK_THROWS_AS(net->recompute_part(part.first, part.second), ValueError);
  }
  net->keep_all();
  net->recompute_part(6, 7), net->recompute_part(2, 4);
  for (const Part& part :
       {Part{2, 4}, {2, 3}, {3, 4}, {1, 3}, {3, 5}, {1, 5}, {0, 9}, {5, 7}, {6, 8}, {5, 8}, {6, 7}}) {
    CAPTURE(part.first, part.second);
    CHECK_THROWS_WITH(net->recompute_part(part.first, part.second), contains("overlap"));
  }
  CHECK_THROWS_AS(net->recompute_part(8, 10), IndexError);
  CHECK_THROWS_AS(net->recompute_part(5, 5), ValueError);
  CHECK_THROWS_AS(net->recompute_part(5, 4), ValueError);
  // A clone keeps all activations.
  const auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone());
  CHECK_NOTHROW(copy->recompute_part(0, 9));
  CHECK(copy->forward(x).equal(wanted));
}

TEST_CASE("modules are inserted into a ModuleList at any position, under the names of their positions") {
  for (size_t position = 0; position <= 3; ++position) {
    nn::ModuleList list(nn::Linear(1, 1), nn::Linear(2, 2), nn::Linear(3, 3));
    list->insert(position, nn::Linear(9, 9));
    std::vector<int64_t> sizes = {1, 2, 3}, found;
    sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(position), 9);
    for (size_t i = 0; i < list->size(); ++i) found.push_back(list->at<nn::Linear>(i).options.in_features());
    CHECK(found == sizes);
    CHECK(list->named_children().keys() == Names{"0", "1", "2", "3"});
    for (size_t i = 0; i < 4; ++i) {
      CHECK(list->named_children()[i].value() == list->ptr(i));
      CHECK(list->ptr(i)->path() == std::to_string(i));
    }
  }
  nn::ModuleList list{nn::ReLU()};
  CHECK_THROWS_WITH(list->insert(2, nn::ReLU()), contains("position 2") && contains("ModuleList of 1"));
  CHECK_THROWS_WITH(list->ptr(1), contains("index 1") && contains("ModuleList of 1"));
  CHECK_THROWS_WITH(list->insert(0, std::shared_ptr<nn::Module>()), contains("null"));
  CHECK(list->size() == 1);
}

TEST_CASE("messages and prints of containers name what they hold") {
  CHECK_THROWS_WITH(nn::ParameterList(ones({1}))[1], contains("index 1") && contains("ParameterList of 1"));
  CHECK_THROWS_WITH(nn::AnyModule().ptr(), contains("empty"));
  CHECK_THROWS_WITH(nn::Sequential(nn::ReLU(), nn::ReLU())->forward(ones({1}), ones({1})),
                    contains("ReLU") && contains("takes 1 arguments") && contains("got 2"));
  nn::ParameterDict dict;
  dict->insert("scalar", ones({}));
  dict->insert("matrix", ones({2, 3}, kDouble));
  CHECK(printed(dict) ==
        "gradus::nn::ParameterDict(\n"
        "(scalar): Parameter containing: [Float of size []]\n"
        "(matrix): Parameter containing: [Double of size [2, 3]]\n)");
}

TEST_CASE("clones of containers have the mode, names and gradients' flags of their originals") {
  nn::Sequential net({{"in", nn::Linear(2, 2)}, {"out", nn::Dropout(0.5)}});
  net->eval();
  net->at<nn::Linear>(0).bias.set_requires_grad(false);
  const auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone());
  CHECK(copy->size() == 2);
  CHECK(copy->named_children().keys() == Names{"in", "out"});
  CHECK_FALSE(copy->is_training());
  CHECK_FALSE(copy->ptr(1)->is_training());
  CHECK_FALSE(copy->at<nn::Linear>(0).bias.requires_grad());
  nn::ParameterList list(randn({2}, requires_grad()), randn({3}));
  list->eval();
  const auto list_copy = std::dynamic_pointer_cast<nn::ParameterListImpl>(list->clone());
  CHECK(list_copy->size() == 2);
  CHECK_FALSE(list_copy->is_training());
  for (size_t i = 0; i < 2; ++i) {
    CHECK((*list_copy)[i].equal(list[i]));
    CHECK((*list_copy)[i].requires_grad() == list[i].requires_grad());
    CHECK_FALSE((*list_copy)[i].is_same(list[i]));
  }
}

TEST_CASE("each module of a clone is in the mode of its original, also one that reset() makes") {
  struct PlainImpl : nn::Module {};  // cannot be cloned alone
  struct BlockImpl : nn::Cloneable<BlockImpl> {
    BlockImpl() { BlockImpl::reset(); }
    void reset() override {
      layers = register_module("layers", nn::Sequential(nn::Linear(2, 2)));
      plain = register_module("plain", std::make_shared<PlainImpl>());
    }
    Tensor forward(const Tensor& x) { return layers(x); }
    nn::Sequential layers{nullptr};
    std::shared_ptr<PlainImpl> plain;
  };
  for (int modes = 0; modes < 16; ++modes) {
    nn::ModuleHolder<BlockImpl> block;
    const auto original = block->modules();
    for (size_t i = 0; i < original.size(); ++i) original[i]->train((modes >> i & 1) != 0);
    const auto copy = block->clone()->modules();
    REQUIRE((copy.size() == 4 && original.size() == 4));
    for (size_t i = 0; i < copy.size(); ++i) CHECK(copy[i]->is_training() == ((modes >> i & 1) != 0));
  }
}
