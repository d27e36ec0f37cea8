// Autocast guards: what they nest, keep and leave alone.
#include <gradus/gradus.h>

#include <thread>

#include <gradus/autograd/function.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using amp::Autocast;
using amp::CastRule;

namespace {

Tensor parameter(const Shape& shape) { return rand(shape).requires_grad_(); }

// Counts the operators of a name.
class Counter final : public Observer {
 public:
  explicit Counter(std::string name) : name_(std::move(name)) { add_observer(this); }
  ~Counter() override { remove_observer(this); }
  void on_end(const ObservedEvent& event) override {
    count += event.kind == ObservedEvent::Kind::op && event.name == name_;
  }
  int count = 0;

 private:
  const std::string name_;
};

}  // namespace

TEST_CASE("the lists of both devices") {  // first here, because they are made when they are first used
  struct List {
    CastRule cpu, cuda;
    std::vector<const char*> ops;
  };
  using enum CastRule;
  const std::vector<List> lists = {
      {lower, lower, {"addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv2d_relu", "conv_transpose1d"}},
      {lower, lower, {"conv_transpose2d", "linear", "lstm", "matmul", "mm", "prelu", "scaled_dot_product_attention"}},
      {none, lower, {"einsum", "gru", "gru_cell", "lstm_cell", "rnn", "rnn_cell"}},
      {keep, lower, {"addmv", "mv"}},
      {keep, widest, {"dot"}},
      {none, widest, {"bilinear", "cross", "index_put", "scatter_add", "tensordot"}},
      {widest, none, {"index_copy"}},
      {none, float32, {"exp", "expm1", "log", "log10", "log1p", "log2", "pow", "reciprocal"}},
      {none, float32, {"rsqrt", "softplus", "tan"}},
      {none, float32, {"cosine_similarity", "group_norm", "interpolate", "layer_norm", "log_softmax", "logsumexp"}},
      {none, float32, {"norm", "softmax", "softmin", "pairwise_distance"}},
      {none, float32_result, {"cumprod", "cumsum", "sum"}},
      {float32, float32_result, {"prod"}},
      {float32, float32, {"binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy"}},
      {float32, float32, {"hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "local_response_norm"}},
      {float32, float32, {"margin_ranking_loss", "mse_loss", "multi_margin_loss", "nll_loss", "poisson_nll_loss"}},
      {float32, float32, {"smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss"}},
      {float32, refused, {"binary_cross_entropy"}},
      {float32, none, {"trace"}},
      {none, none, {"relu", "add", "max_pool2d", "batch_norm", "batch_norm_relu", "sigmoid", "tanh", "view", "to"}}};
  for (const List& list : lists)
    for (const char* op : list.ops) {
      CAPTURE(op);
      CHECK(amp::cast_rule(kCPU, op) == list.cpu);
      CHECK(amp::cast_rule(kCUDA, op) == list.cuda);
    }
}

TEST_CASE("autocast is on within its guard, guards nest, and false switches it off") {
  const Tensor a = rand({3, 4}), b = rand({4, 5});
  CHECK(matmul(a, b).dtype() == kFloat);
  {
    const Autocast outer(kCPU);
    CHECK(Autocast::is_enabled(kCPU));
    CHECK_FALSE(Autocast::is_enabled(kCUDA));
    CHECK(matmul(a, b).dtype() == kBFloat16);
    {
      const Autocast inner(kCPU, kHalf);
      CHECK(matmul(a, b).dtype() == kHalf);
      const Autocast off(kCPU, kBFloat16, /*enabled=*/false);
      CHECK_FALSE(Autocast::is_enabled(kCPU));
      CHECK(matmul(a, b).dtype() == kFloat);
    }
    CHECK(matmul(a, b).dtype() == kBFloat16);
    const Autocast other_device(kCUDA);
    CHECK(matmul(a, b).dtype() == kBFloat16);
  }
  CHECK(matmul(a, b).dtype() == kFloat);
  const Autocast other_device(kCUDA);
  CHECK(matmul(a, b).dtype() == kFloat);
}

TEST_CASE("autocast belongs to its thread, and an exception ends it") {
  const Tensor a = rand({3, 4}), b = rand({4, 5});
  try {
    const Autocast autocast(kCPU);
    std::thread([&] { CHECK(matmul(a, b).dtype() == kFloat); }).join();
    matmul(a, a);
    FAIL("the sizes do not fit");
  } catch (const ShapeError& error) { CHECK_THAT(error.what(), contains("[matmul]")); }
  CHECK(matmul(a, b).dtype() == kFloat);
}

TEST_CASE("autocast leaves float64, integers and operators in place alone") {
  const Autocast autocast(kCPU);
  const Tensor wide = rand({3, 3}, kDouble), whole = ones({3, 3}, kLong), x = rand({3, 3});
  CHECK(matmul(wide, wide).dtype() == kDouble);
  CHECK(mse_loss(wide, wide).dtype() == kDouble);
  CHECK(matmul(whole, whole).dtype() == kLong);
  CHECK(whole.sum().dtype() == kLong);
  CHECK(x.add_(x.to(kBFloat16)).dtype() == kFloat);
  CHECK(x.view({9}).dtype() == kFloat);
}

TEST_CASE("autocast adds a residual of another type as PyTorch's three operators do") {
  const Tensor x = rand({4, 3, 2, 2}).to(kBFloat16), residual = rand({4, 3, 2, 2}), w = rand({3}), b = rand({3});
  const auto fused = [&](const Tensor& r) { return batch_norm_relu(x, {}, {}, w, b, true, 0.1, 1e-5, r); };
  CHECK_THROWS_AS(fused(residual), DTypeError);
  const Autocast autocast(kCPU);
  CHECK(fused(residual).dtype() == kFloat);
  CHECK(fused(residual).equal(relu(batch_norm(x, {}, {}, w, b, true) + residual)));
  CHECK(fused(residual.to(kBFloat16)).dtype() == kBFloat16);
}

TEST_CASE("autocast on the cpu widens the types of index_copy, but not those of index_put") {
  const Tensor half = rand({3}).to(kBFloat16), wide = rand({3}), places = tensor({2, 0, 1});
  const Autocast autocast(kCPU);
  CHECK_THROWS_AS(index_put(half, {places}, wide), DTypeError);
  CHECK_THROWS_AS(index_put(wide, {places}, half), DTypeError);
  CHECK(index_copy(half, 0, places, wide).dtype() == kFloat);
  CHECK(index_copy(wide, 0, places, half).dtype() == kFloat);
}

TEST_CASE("autocast to another type is an error") {
  CHECK_THROWS_AS(Autocast(kCPU, kFloat), DTypeError);
  CHECK_THROWS_WITH(Autocast(kCPU, kDouble), contains("float16 or bfloat16") && contains("float64"));
  CHECK_FALSE(Autocast::is_enabled(kCPU));
}

TEST_CASE("gradients come back in the type of what was cast") {
  const Tensor x = parameter({3, 4}), w = parameter({5, 4}), b = parameter({5});
  Tensor loss;
  {
    const Autocast autocast(kCPU);
    loss = cross_entropy(relu(linear(x, w, b)), tensor({0, 4, 2}, kLong));
  }
  CHECK(loss.dtype() == kFloat);
  loss.backward();
  for (const Tensor& leaf : {x, w, b}) CHECK(leaf.grad().dtype() == kFloat);

  // The same by hand: the types of the forward operators are those of backward.
  const Tensor x2 = x.detach().requires_grad_(), w2 = w.detach().requires_grad_(), b2 = b.detach().requires_grad_();
  const Tensor y = relu(linear(x2.to(kBFloat16), w2.to(kBFloat16), b2.to(kBFloat16))).to(kFloat);
  cross_entropy(y, tensor({0, 4, 2}, kLong)).backward();
  CHECK(x.grad().equal(x2.grad()));
  CHECK(w.grad().equal(w2.grad()));
  CHECK(b.grad().equal(b2.grad()));
}

TEST_CASE("backward does the same within the guard") {
  const auto gradient = [](bool within) {
    manual_seed(3);
    const Tensor x = parameter({8, 8});
    std::optional<Autocast> autocast;
    autocast.emplace(kCPU);
    const Tensor y = matmul(x, x).to(kFloat).square().sum();
    if (!within) autocast.reset();
    y.backward();
    if (within) CHECK(matmul(x, x).dtype() == kBFloat16);
    return x.grad();
  };
  CHECK(gradient(true).equal(gradient(false)));
}

TEST_CASE("second derivatives go through casts") {
  const Tensor x = tensor({0.5, 1.0}).requires_grad_();
  const Autocast autocast(kCPU);
  const Tensor y = (matmul(x, diag(x)) * x).sum();  // x³
  const Tensor g = autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
  const Tensor h = autograd::grad({g.sum()}, {x})[0];
  CHECK(g.dtype() == kFloat);
  CHECK(g.detach().allclose(tensor({0.75, 3.0}), 0.01));
  CHECK(h.allclose(tensor({3.0, 6.0}), 0.01));
}

TEST_CASE("a parameter is cast once in a guard, until it changes") {
  const Tensor x = rand({3, 4}), w = parameter({4, 4});
  // Each product casts x, which is no parameter, and w where it is not kept.
  const auto casts_of = [](auto&& run) {
    Counter casts("to");
    run();
    return casts.count;
  };
  {
    const Autocast autocast(kCPU);
    CHECK(casts_of([&] { matmul(x, w); }) == 2);
    CHECK(casts_of([&] { matmul(x, w); }) == 1);
    {
      const Autocast inner(kCPU);
      CHECK(casts_of([&] { matmul(x, w); }) == 1);
    }
    CHECK(casts_of([&] { matmul(x, w); }) == 1);
    const Tensor before = matmul(x, w).detach();
    {
      const NoGradGuard no_grad;
      w.mul_(2);
    }
    CHECK(casts_of([&] { CHECK(matmul(x, w).detach().equal(before * 2)); }) == 2);
    const Autocast uncached(kCPU, kBFloat16, true, /*cache_enabled=*/false);
    CHECK(casts_of([&] { matmul(x, w); }) == 2);
  }
  const Autocast next(kCPU);
  CHECK(casts_of([&] { matmul(x, w); }) == 2);
}

TEST_CASE("a cast that was kept without history serves no recorded step") {
  const Tensor x = rand({3, 4}), w = parameter({4, 4});
  const Autocast autocast(kCPU);
  {
    const NoGradGuard no_grad;
    CHECK_FALSE(matmul(x, w).requires_grad());
  }
  matmul(x, w).sum().backward();
  REQUIRE(w.grad().defined());
  matmul(x, w).sum().backward();  // and the kept one serves several passes
  CHECK(w.grad().allclose(x.sum({0}).unsqueeze(1).expand({4, 4}) * 2, 0.02));
}

TEST_CASE("a checkpointed function runs again in the types of its first run") {
  const auto gradients = [](bool checkpointed) {
    manual_seed(9);
    const Tensor x = parameter({4, 6}), w = parameter({6, 6});
    const auto block = [&](const Tensor& h) { return softmax(matmul(h, w), 1).to(kFloat); };
    Tensor y;
    {
      const Autocast autocast(kCPU);
      y = checkpointed ? autograd::checkpoint(block, x) : block(x);
    }
    y.square().sum().backward();
    CHECK_FALSE(Autocast::is_enabled(kCPU));
    return TensorList{x.grad(), w.grad()};
  };
  const TensorList with = gradients(true), without = gradients(false);
  CHECK(with[0].equal(without[0]));
  CHECK(with[1].equal(without[1]));
}

namespace {
struct Square : autograd::Function<Square> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    CHECK(Autocast::is_enabled(kCPU));
    return matmul(x, x);
  }
  static TensorList backward(AutogradContext* context, const TensorList& dy) {
    CHECK_FALSE(Autocast::is_enabled(kCPU));
    const Tensor x = context->get_saved_variables()[0], d = dy[0].to(kFloat);
    return {matmul(d, x.t()) + matmul(x.t(), d)};
  }
};
}  // namespace

TEST_CASE("operators of the user's own run under autocast, their backward without") {
  const Tensor x = parameter({3, 3});
  const Autocast autocast(kCPU);
  const Tensor y = Square::apply(x);
  CHECK(y.dtype() == kBFloat16);
  y.sum().backward();
  const Tensor ones3 = ones({3, 3});
  const Autocast off(kCPU, {}, false);
  CHECK(x.grad().allclose(matmul(ones3, x.detach().t()) + matmul(x.detach().t(), ones3), 1e-5));
}

TEST_CASE("a net learns in bfloat16") {
  const auto last_loss = [](bool half) {
    manual_seed(1);
    nn::Sequential net(nn::Linear(2, 16), nn::Tanh(), nn::Linear(16, 2));
    optim::Adam optimizer(net->parameters(), optim::AdamOptions(0.05));
    const Tensor x = tensor({{0, 0}, {0, 1}, {1, 0}, {1, 1}}).to(kFloat), labels = tensor({0, 1, 1, 0}, kLong);
    Tensor loss;
    for (int step = 0; step < 100; ++step) {
      optimizer.zero_grad();
      {
        const Autocast autocast(kCPU, kBFloat16, half);
        loss = cross_entropy(net->forward(x), labels);
      }
      loss.backward();
      optimizer.step();
    }
    for (const Tensor& weight : net->parameters()) CHECK(weight.dtype() == kFloat);
    return loss.item<double>();
  };
  CHECK(last_loss(true) < 0.02);
  CHECK(last_loss(false) < 0.02);
}
