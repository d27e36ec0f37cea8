// AnyModule and Sequential with arguments and results of any type, as in LibTorch.
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using test::contains;

namespace {

struct CounterImpl : nn::Module {
  explicit CounterImpl(int start = 0) : start(start) {}
  int forward(int x) { return start + x; }
  int start;
};
GRADUS_MODULE(Counter);

struct DefaultsImpl : nn::Module {
  double forward(int a, int b = 2, const std::string& c = "3") const { return a + b + std::stod(c); }
};
GRADUS_MODULE(Defaults);

struct TwiceImpl : nn::Cloneable<TwiceImpl> {
  void reset() override {}
  std::tuple<Tensor, Tensor> forward(const Tensor& x) { return {x, x * 2}; }
};
GRADUS_MODULE(Twice);

struct SumImpl : nn::Cloneable<SumImpl> {
  void reset() override {}
  Tensor forward(const std::tuple<Tensor, Tensor>& pair) { return std::get<0>(pair) + std::get<1>(pair); }
};
GRADUS_MODULE(Sum);

struct OverloadedImpl : nn::Module {
  Tensor forward(const Tensor& x) { return x + 1; }
  Tensor forward(const Tensor& x, const Tensor& y) { return x + y; }
};
GRADUS_MODULE(Overloaded);

struct TextImpl : nn::Module {
  Tensor forward(std::string a, const std::string& b, std::string&& c) {
    return full({static_cast<int64_t>((a + b + c).size())}, 1.0);
  }
};
GRADUS_MODULE(Text);

}  // namespace

TEST_CASE("AnyModule calls a forward of any signature") {
  nn::AnyModule any{Counter(10)};
  CHECK(any.forward<int>(5) == 15);
  CHECK_THROWS_WITH(any.forward<float>(5), contains("float") && contains("int"));
  CHECK_THROWS_WITH(any.forward<int>(5.0), contains("argument 0 of forward is int, got double"));
  CHECK_THROWS_WITH(any.forward<int>(), contains("takes 1 arguments") && contains("got 0"));
  CHECK_THROWS_AS(any.forward(ones({2})), ValueError);

  any = std::make_shared<DefaultsImpl>();
  CHECK(any.forward<double>(1) == 6);
  CHECK(any.forward<double>(1, 3) == 7);
  CHECK(any.forward<double>(1, 3, std::string("5")) == 9);
  CHECK_THROWS_AS(any.forward<double>(), ValueError);
  CHECK_THROWS_AS(any.forward<double>(1, 2, std::string("3"), 4), ValueError);

  any = nn::AnyModule(Text());
  CHECK(any.forward(std::string("a"), std::string("bc"), std::string("def")).numel() == 6);
  any = nn::AnyModule(Overloaded());
  CHECK(any.forward(ones({2})).equal(full({2}, 2.0)));
  CHECK_THROWS_AS(any.forward(ones({2}), ones({2})), ValueError);
}

TEST_CASE("AnyModule returns its module") {
  nn::AnyModule any;
  CHECK(any.is_empty());
  CHECK_THROWS_AS(any.ptr(), ValueError);
  CHECK_THROWS_AS(any.get<CounterImpl>(), ValueError);
  CHECK_THROWS_AS(any.type_info(), ValueError);
  CHECK_THROWS_AS(any.forward<int>(1), ValueError);

  const Counter counter(3);
  any = nn::AnyModule(counter);
  CHECK(any.get<CounterImpl>().start == 3);
  CHECK(any.get<Counter>().get() == counter.get());
  CHECK(any.ptr<CounterImpl>() == counter.ptr());
  CHECK(any.ptr() == counter.ptr());
  CHECK(any.type_info() == typeid(CounterImpl));
  CHECK_THROWS_WITH(any.get<nn::LinearImpl>(), contains("CounterImpl") && contains("LinearImpl"));

  nn::AnyValue value(5);
  CHECK(value.get<int>() == 5);
  CHECK(value.try_get<int64_t>() == nullptr);
  CHECK_THROWS_WITH(value.get<std::string>(), contains("int"));
  CHECK(nn::AnyValue("text").get<const char*>() == std::string("text"));
}

TEST_CASE("Sequential passes results of any type to the next module") {
  nn::Sequential counters(Counter(1), Counter(2), Counter(3));
  CHECK(counters->forward<int>(1) == 7);
  CHECK_THROWS_AS(counters->forward<float>(1), ValueError);
  CHECK(counters[1]->as<Counter>()->start == 2);
  CHECK(counters->ptr<CounterImpl>(2)->start == 3);

  nn::Sequential pairs(nn::Linear(3, 4), Twice(), Sum());
  const Tensor x = randn({2, 3});
  const Tensor wanted = pairs->at<nn::Linear>(0).forward(x) * 3;
  CHECK(pairs->forward(x).allclose(wanted));
  CHECK(pairs(x).allclose(wanted));
  auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(pairs->clone());
  CHECK(copy->forward(x).allclose(wanted));

  nn::LSTM lstm(3, 4);
  nn::Sequential recurrent(lstm);
  using State = std::tuple<Tensor, Tensor>;
  const auto [output, state] = recurrent->forward<std::tuple<Tensor, State>>(randn({5, 2, 3}));
  CHECK(output.sizes() == Shape({5, 2, 4}));
  CHECK(std::get<1>(state).sizes() == Shape({1, 2, 4}));

  counters->extend(std::vector<std::shared_ptr<CounterImpl>>{std::make_shared<CounterImpl>(4)});
  CHECK(counters->forward<int>(1) == 11);
  CHECK_THROWS_AS(nn::Sequential()->forward<int>(), ValueError);
}

TEST_CASE("calls of an AnyModule run hooks and recomputation") {
  Twice pair;
  int calls = 0;
  pair->register_forward_hook([&](nn::Module&, const TensorList&, TensorList& outputs) {
    ++calls;
    for (Tensor& output : outputs) output = output + 1;
  });
  const Tensor x = ones({2});
  CHECK(nn::Sequential(pair, Sum())->forward(x).equal(full({2}, 5.0)));
  CHECK(calls == 1);

  nn::Sequential net(nn::Linear(2, 2), Twice(), Sum());
  const Tensor kept = net->forward(x);
  net[2]->recompute();
  const Tensor again = net->forward(x);
  CHECK(again.equal(kept));
  const Tensor weight = net->at<nn::Linear>(0).weight;
  CHECK(autograd::grad({again.sum()}, {weight})[0].equal(autograd::grad({kept.sum()}, {weight})[0]));
}
