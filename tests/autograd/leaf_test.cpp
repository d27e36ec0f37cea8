// Leaves and their gradients: accumulation, gradients bound to storage, hooks.
#include <functional>
#include <vector>

#include <gradus/autograd/autograd.h>
#include <gradus/core/registry.h>
#include <gradus/tests/autograd/tensors.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/changed_results.h>

using namespace gradus;
using namespace gradus::test;

TEST_CASE("leaves are tensors made by the user, results have history") {
  const Tensor x = leaf({1, 2}), constant = numbers({3, 4});
  const Tensor y = x * constant;
  CHECK((x.is_leaf() && x.requires_grad() && !x.grad_fn()));
  CHECK((constant.is_leaf() && !constant.requires_grad()));
  CHECK((!y.is_leaf() && y.requires_grad()));
  CHECK(std::string(y.grad_fn()->name()) == "Mul");
  CHECK(!(constant * 2).requires_grad());
  CHECK(!(x > 0).requires_grad());

  SECTION("requires_grad is for leaves of floating types") {
    CHECK_THROWS_AS(y.set_requires_grad(false), AutogradError);
    CHECK_NOTHROW(y.set_requires_grad(true));
    CHECK_THROWS_AS(tensor({1, 2}).set_requires_grad(true), DTypeError);
    CHECK(constant.set_requires_grad(true).requires_grad());
    CHECK(!constant.set_requires_grad(false).requires_grad());
  }
  SECTION("copies of a handle are the same tensor") {
    const Tensor same = x;
    (same * 2).sum().backward();
    CHECK(x.grad().equal(numbers({2, 2})));
    CHECK(same.is_same(x));
    CHECK(!same.is_same(x.detach()));
  }
  SECTION("NoGradGuard disables recording and can be nested") {
    {
      const NoGradGuard no_grad;
      CHECK(!(x * 2).requires_grad());
      {
        const AutoGradMode again(true);
        CHECK((x * 2).requires_grad());
      }
      CHECK(!(x * 2).requires_grad());
    }
    CHECK((x * 2).requires_grad());
  }
  SECTION("detach drops the history and shares data and version") {
    const Tensor z = y.detach();
    CHECK((z.is_leaf() && !z.requires_grad()));
    CHECK(z.data_ptr() == y.data_ptr());
    z.fill_(7);
    CHECK(y.version() == z.version());
    CHECK(y.equal(numbers({7, 7})));
  }
  SECTION("detach_ turns a result into a leaf") {
    y.detach_();
    CHECK((y.is_leaf() && !y.requires_grad()));
    CHECK_THROWS_AS(x.view({2, 1}).detach_(), AutogradError);
  }
}

TEST_CASE("gradients accumulate over passes until zeroed") {
  const Tensor x = leaf({1, 2});
  (x * x).sum().backward();
  CHECK(x.grad().equal(numbers({2, 4})));
  (3 * x).sum().backward();
  CHECK(x.grad().equal(numbers({5, 7})));
  CHECK(!x.grad().requires_grad());

  SECTION("a gradient that the user holds is not changed") {
    const Tensor held = x.grad();
    x.sum().backward();
    CHECK(held.equal(numbers({5, 7})));
    CHECK(x.grad().equal(numbers({6, 8})));
  }
  SECTION("zero_grad drops the gradient or sets it to zero") {
    x.zero_grad(false);
    CHECK(x.grad().equal(numbers({0, 0})));
    x.zero_grad();
    CHECK(!x.grad().defined());
  }
  SECTION("mutable_grad takes any tensor") {
    x.mutable_grad() = numbers({10, 10});
    x.sum().backward();
    CHECK(x.grad().equal(numbers({11, 11})));
  }
  SECTION("the gradient given to backward is not aliased") {
    const Tensor dy = numbers({1, 1}), z = leaf({0, 0});
    z.backward(dy);
    z.backward(dy);
    CHECK(dy.equal(numbers({1, 1})));
    CHECK(z.grad().equal(numbers({2, 2})));
    CHECK(z.grad().data_ptr() != dy.data_ptr());
  }
  SECTION("two leaves with the same gradient do not share its memory") {
    const Tensor a = leaf({1, 2}), b = leaf({3, 4});
    (a + b).backward(numbers({1, 1}));
    CHECK(a.grad().data_ptr() != b.grad().data_ptr());
    a.sum().backward();
    CHECK(a.grad().equal(numbers({2, 2})));
    CHECK(b.grad().equal(numbers({1, 1})));
  }
}

TEST_CASE("non-leaves retain a gradient on request") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * x, z = y * 3;
  CHECK_THROWS_AS(numbers({1}).retain_grad(), AutogradError);
  y.retain_grad();
  y.retain_grad();
  CHECK(y.retains_grad());
  x.retain_grad();  // a leaf keeps its gradient anyway
  CHECK(!x.retains_grad());
  z.sum().backward();
  CHECK(y.grad().equal(numbers({3, 3})));
  CHECK(!z.grad().defined());

  SECTION("the tensor may be destroyed before the pass") {
    const Tensor w = x * x;
    { w.mul(2).retain_grad(); }
    w.sum().backward();
    CHECK(x.grad().equal(numbers({8, 16})));
  }
}

TEST_CASE("a gradient is accumulated into bound storage") {
  const Tensor x = leaf({1, 2});
  const Tensor bucket = full({4}, 9.0, kDouble);
  const Array slot = bucket.slice(0, 1, 3).array();
  x.bind_grad(slot);
  CHECK(!x.grad().defined());

  (x * x).sum().backward();  // overwrites the storage
  CHECK(x.grad().data_ptr() == slot.data());
  CHECK(bucket.equal(numbers({9, 2, 4, 9})));
  (x * x).sum().backward();  // adds to it
  CHECK(bucket.equal(numbers({9, 4, 8, 9})));

  x.zero_grad();  // grad() is undefined, but stays bound
  CHECK(!x.grad().defined());
  x.sum().backward();
  CHECK(x.grad().data_ptr() == slot.data());
  CHECK(bucket.equal(numbers({9, 1, 1, 9})));

  SECTION("a gradient accumulated before moves into the storage") {
    const Tensor y = leaf({1, 2});
    y.sum().backward();
    y.bind_grad(slot);
    CHECK(bucket.equal(numbers({9, 1, 1, 9})));
    CHECK(y.grad().equal(numbers({1, 1})));
  }
  SECTION("a tensor with new data is not bound") {
    x.zero_grad();
    x.set_data(numbers({5, 6, 7}));
    (x * x).sum().backward();
    CHECK(x.grad().equal(numbers({10, 12, 14})));
    CHECK(bucket.equal(numbers({9, 1, 1, 9})));
  }
  SECTION("bound storage must match the tensor") {
    CHECK_THROWS_AS(x.bind_grad(zeros({3}, kDouble).array()), Error);
    CHECK_THROWS_AS(x.bind_grad(zeros({2}, kFloat).array()), Error);
    CHECK_THROWS_AS((x * 2).bind_grad(slot), AutogradError);
  }
  SECTION("gradients with create_graph are an error") {
    const Tensor y = (x * x * x).sum();
    CHECK_THROWS_AS(y.backward({}, true, true), AutogradError);
  }
}

TEST_CASE("a gradient is added in place if nothing else holds the one that is there, and neither has a history") {
  const Tensor x = leaf({1, 2});
  const auto add = [&](bool create_graph) { (x * x).sum().backward({}, create_graph, create_graph); };
  add(false);
  const void* const memory = x.grad().data_ptr();
  add(false);
  CHECK(x.grad().data_ptr() == memory);
  CHECK(x.grad().equal(numbers({4, 8})));
  {
    const Tensor held = x.grad();
    add(false);
    CHECK(held.equal(numbers({4, 8})));
    CHECK(x.grad().equal(numbers({6, 12})));
  }
  CHECK_FALSE(x.grad().requires_grad());
  add(true);
  CHECK(x.grad().detach().equal(numbers({8, 16})));
  REQUIRE(x.grad().requires_grad());
  CHECK(autograd::grad({x.grad().sum()}, {x}, {}, true)[0].equal(numbers({2, 2})));
  add(true);
  CHECK(autograd::grad({x.grad().sum()}, {x}, {}, true)[0].equal(numbers({4, 4})));
  add(false);
  CHECK(x.grad().detach().equal(numbers({12, 24})));
  x.zero_grad();
}

TEST_CASE("gradients have the strides of their tensors") {
  const Tensor x(randn({3, 4}).t().array(), true);
  (x * ones({4, 3})).sum().backward();
  CHECK(x.grad().strides() == x.strides());
  x.sum().backward();
  CHECK(x.grad().strides() == x.strides());
  CHECK(x.grad().equal(full({4, 3}, 2.0)));

  const Tensor w(randn({2, 3, 4, 5}).contiguous(MemoryFormat::channels_last).array(), true);
  (w * randn({2, 3, 4, 5})).sum().backward();
  CHECK(w.grad().is_contiguous(MemoryFormat::channels_last));
}

TEST_CASE("tensor hooks see and replace gradients") {
  const Tensor x = leaf({1, 2});
  std::vector<std::string> calls;

  SECTION("on a leaf, in order of registration") {
    x.register_hook([&](const Tensor& g) {
      calls.push_back("double");
      return g * 2;
    });
    x.register_hook([&](const Tensor& g) {
      calls.push_back("look");
      CHECK(g.equal(numbers({2, 2})));
      return Tensor();
    });
    x.sum().backward();
    CHECK(x.grad().equal(numbers({2, 2})));
    CHECK(calls == std::vector<std::string>{"double", "look"});
  }
  SECTION("once, for the summed gradient") {
    int count = 0;
    x.register_hook([&](const Tensor&) {
      ++count;
      return Tensor();
    });
    (x * x + x).sum().backward();
    CHECK(count == 1);
    CHECK(x.grad().equal(numbers({3, 5})));
  }
  SECTION("on a result, before its node's backward") {
    const Tensor y = x * 3;
    y.register_hook([](const Tensor& g) { return g * 10; });
    y.sum().backward();
    CHECK(x.grad().equal(numbers({30, 30})));
  }
  SECTION("a removed hook is not called") {
    const Tensor y = x * 3;
    const unsigned on_leaf = x.register_hook([](const Tensor& g) { return g * 10; });
    const unsigned on_result = y.register_hook([](const Tensor& g) { return g * 10; });
    x.remove_hook(on_leaf);
    y.remove_hook(on_result);
    y.sum().backward();
    CHECK(x.grad().equal(numbers({3, 3})));
  }
  SECTION("a hook may remove itself or add another hook") {
    const Tensor y = x * 3;
    unsigned on_leaf = 0, on_result = 0;
    std::vector<double> kept(100, 1.0);
    on_leaf = x.register_hook([&, kept](const Tensor& g) {
      x.remove_hook(on_leaf);
      return g * kept[50];
    });
    on_result = y.register_hook([&, kept](const Tensor& g) {
      y.remove_hook(on_result);
      for (int i = 0; i < 20; ++i) y.register_hook([](const Tensor&) { return Tensor(); });
      return g * kept[50];
    });
    y.sum().backward({}, true);
    y.sum().backward();
    CHECK(x.grad().equal(numbers({6, 6})));
  }
  SECTION("grad() and backward with inputs run the hooks of leaves") {
    int accumulated = 0;
    x.register_hook([](const Tensor& g) { return g * 2; });
    x.register_post_accumulate_grad_hook([&](const Tensor&) { ++accumulated; });
    CHECK(autograd::grad({(x * 3).sum()}, {x})[0].equal(numbers({6, 6})));
    CHECK((accumulated == 0 && !x.grad().defined()));
    (x * 3).sum().backward({}, false, false, TensorList{x});
    CHECK(x.grad().equal(numbers({6, 6})));
    CHECK(accumulated == 1);
  }
  SECTION("a hook that returns a wrong shape is an error") {
    const unsigned id = x.register_hook([](const Tensor&) { return zeros({1}); });
    CHECK_THROWS_AS(x.sum().backward(), AutogradError);
    x.remove_hook(id);
    const Tensor y = x * 3;
    y.register_hook([](const Tensor&) { return zeros({5}); });
    CHECK_THROWS_AS(y.sum().backward(), Error);
  }
  SECTION("an exception reaches the caller") {
    x.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("stop here"); });
    CHECK_THROWS_WITH(x.sum().backward(), contains("stop here"));
    CHECK(!x.grad().defined());
  }
  SECTION("tensors that do not require gradients cannot have hooks") {
    CHECK_THROWS_AS(numbers({1}).register_hook([](const Tensor& g) { return g; }), AutogradError);
  }
}

TEST_CASE("post-accumulate hooks run after the gradient is accumulated") {
  const Tensor x = leaf({1, 2});
  int calls = 0;
  const unsigned id = x.register_post_accumulate_grad_hook([&](const Tensor& parameter) {
    ++calls;
    CHECK(parameter.is_same(x));
    CHECK(parameter.grad().defined());
    // An optimizer that runs during the backward pass.
    const NoGradGuard no_grad;
    parameter.sub_(parameter.grad());
    parameter.zero_grad();
  });
  (x * 3 + x).sum().backward();
  CHECK(calls == 1);
  CHECK(x.detach().equal(numbers({-3, -2})));
  CHECK(!x.grad().defined());

  x.remove_hook(id);
  x.sum().backward();
  CHECK(calls == 1);
  CHECK_THROWS_AS(x.remove_hook(id), IndexError);
  CHECK_THROWS_AS((x * 2).register_post_accumulate_grad_hook([](const Tensor&) {}), AutogradError);
}

TEST_CASE("set_data replaces a tensor's data") {
  const Tensor x = leaf({1, 2});
  x.sum().backward();
  x.set_data(numbers({5, 6, 7}));
  CHECK(x.requires_grad());
  CHECK(x.detach().equal(numbers({5, 6, 7})));
  x.zero_grad();
  (x * x).sum().backward();
  CHECK(x.grad().equal(numbers({10, 12, 14})));
}

TEST_CASE("nodes of several operators have the name of theirs") {
  const Tensor x = leaf({1, 2}), places = tensor({0, 1}),
               image = ones({1, 1, 2, 2}, dtype(kDouble).requires_grad(true));
  const Tensor filter = ones({1, 1, 1, 1}, kDouble);
  const auto name_of = [](const Tensor& y) { return std::string(y.grad_fn()->name()); };
  CHECK(name_of(x.scatter(0, places, x)) == "Scatter");
  CHECK(name_of(x.scatter_add(0, places, x)) == "ScatterAdd");
  CHECK(name_of(x.sum()) == "Sum");
  CHECK(name_of(x.mean()) == "Mean");
  CHECK(name_of(x.softmax(0)) == "Softmax");
  CHECK(name_of(x.log_softmax(0)) == "LogSoftmax");
  CHECK(name_of(conv2d(image, filter)) == "Conv2d");
  CHECK(name_of(conv2d_relu(image, filter)) == "Conv2dReLU");
  CHECK(name_of(batch_norm(image, {}, {}, {}, {}, true)) == "Normalize");
  CHECK(name_of(batch_norm_relu(image, {}, {}, {}, {}, true)) == "NormalizeReLU");
  CHECK(name_of(x.exp()) == "exp");
  CHECK(name_of(x.std()) == "Std");
  CHECK(name_of(x.var()) == "Var");
  CHECK(name_of(x.clamp(-0.5, 0.5)) == "clamp");  // one kernel, unless a bound is a tensor
  CHECK(name_of((x * 1).clamp_(-0.5, 0.5)) == "clamp");
  CHECK(name_of(x.clamp(numbers({0, 1}))) == "Where");
  CHECK(name_of((x * 1).clamp_(numbers({0, 1}))) == "Copy");
  CHECK(name_of(x.index_select(0, places)) == "IndexSelect");
  CHECK(name_of(x.gather(0, places)) == "Gather");
  CHECK(name_of(x.index_add(0, places, x)) == "IndexAdd");
  CHECK(name_of(index_copy(x, 0, places, x)) == "IndexCopy");
  CHECK(name_of(maximum(x, x)) == "Maximum");
  CHECK(name_of(minimum(x, x)) == "Minimum");
  CHECK(name_of(fmod(x, x)) == "fmod");
  CHECK(name_of(remainder(x, x)) == "remainder");
  CHECK(name_of(cat({x, x})) == "Cat");
  for (const Tensor& part : x.split(1)) CHECK(name_of(part) == "Split");
  for (const Tensor& part : x.unbind()) CHECK(name_of(part) == "Unbind");
  const Tensor matrix = ones({2, 2}, dtype(kDouble).requires_grad(true));
  CHECK(name_of(addmm(matrix, matrix, matrix)) == "AddMM");  // one operator, unless it scales or converts
  CHECK(name_of(addmm(x, matrix, matrix)) == "AddMM");
  CHECK(name_of(addmm(matrix, matrix, matrix, 2)) == "Add");
  CHECK(name_of(addmm(matrix, matrix, matrix, 1, 2)) == "Add");
  CHECK(name_of(addmm(matrix.to(kFloat), matrix, matrix)) == "Add");
}

TEST_CASE("a view that was made before its base required gradients does not require them") {
  const Tensor base = numbers({1, 2}), view = base.slice(0, 0, 1);
  base.set_requires_grad(true);
  CHECK_FALSE(view.requires_grad());
  CHECK(base.slice(0, 0, 1).requires_grad());
}

TEST_CASE("gradients of windows that overlap are added up, also in windows of two elements") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6});
  const auto gradient = [&](const Shape& size, const Strides& stride, int64_t offset) {
    return autograd::grad({x.as_strided(size, stride, offset).sum()}, {x})[0];
  };
  CHECK(gradient({2, 2}, {1, 1}, 0).equal(numbers({1, 2, 1, 0, 0, 0})));
  CHECK(gradient({2, 2}, {1, 1}, 3).equal(numbers({0, 0, 0, 1, 2, 1})));
  CHECK(gradient({2, 2, 2}, {1, 1, 2}, 0).equal(numbers({1, 2, 2, 2, 1, 0})));
  CHECK(gradient({4, 3}, {1, 1}, 0).equal(numbers({1, 2, 3, 3, 2, 1})));
  CHECK(gradient({3, 2}, {0, 2}, 1).equal(numbers({0, 3, 0, 3, 0, 0})));
}

TEST_CASE("an undefined tensor has no properties, and what needs a tensor says that it is undefined") {
  const Tensor none;
  CHECK_FALSE((none.defined() || none.requires_grad() || none.is_view() || none.is_inference() || none.retains_grad()));
  CHECK(none.is_leaf());
  CHECK_FALSE((none.grad().defined() || none.grad_fn()));
  CHECK((none.output_nr() == 0 && none.use_count() == 0));
  CHECK(none.is_same(Tensor()));
  CHECK_FALSE(none.is_same(ones({1})));
  const std::vector<std::function<void()>> calls = {[&] { none.array(); },
                                                    [&] { none.sizes(); },
                                                    [&] { none.dtype(); },
                                                    [&] { none.device(); },
                                                    [&] { none.set_requires_grad(true); },
                                                    [&] { none.mutable_grad(); },
                                                    [&] { none.remove_hook(0); },
                                                    [&] { none.set_data(ones({1})); },
                                                    [&] { ones({1}).set_data(none); },
                                                    [&] { none.detach(); },
                                                    [&] { none.item<int>(); },
                                                    [&] { none.backward(); },
                                                    [&] { none.clone(); },
                                                    [&] { none.to(kDouble); },
                                                    [&] { none.index({0}); },
                                                    [&] { none.bind_grad(ones({1}).array()); },
                                                    [&] { none.equal(ones({1})); },
                                                    [&] { ones({1}).equal(none); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    CAPTURE(i);
    CHECK_THROWS_WITH(calls[i](), contains("undefined"));
  }
  CHECK_NOTHROW(none.zero_grad());
}

TEST_CASE("a gradient is added to the one that the leaf has at the end of the addition") {
  const Tensor x = leaf({1, 2});
  bool armed = false;  // the next addition replaces the leaf's gradient, as another thread might
  ChangedResults replacing(backend("naive"), [&](std::string_view operation, const MutableView&) {
    if (operation == "binary" && armed) armed = false, x.mutable_grad() = numbers({100, 200});
  });
  const BackendGuard guard(replacing);
  const auto step = [&] { x.square().sum().backward({}, true, /*create_graph=*/true); };
  step();
  CHECK(x.grad().detach().equal(numbers({2, 4})));
  const Tensor y = x.square().sum();
  x.register_hook([&](const Tensor& dx) { return armed = true, dx; });  // just before the accumulation
  y.backward({}, true, true);
  CHECK_FALSE(armed);
  CHECK(x.grad().detach().equal(numbers({102, 204})));
  x.mutable_grad() = Tensor();  // its graph would keep the leaf, and the leaf its gradient
}
