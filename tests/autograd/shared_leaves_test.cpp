// Backward passes of several threads that meet in leaves or in a shared graph.
#include <atomic>
#include <barrier>
#include <thread>

#include <gradus/autograd/autograd.h>
#include <gradus/autograd/function.h>
#include <gradus/tests/catch.h>

using namespace gradus;

namespace {

constexpr int kPasses = 4, kRounds = 150;
constexpr double kTotal = kPasses * kRounds;

// Runs body(thread) in kPasses threads that start at the same time; rethrows the exception of the first thread that
// failed.
void at_once(const std::function<void(int)>& body) {
  std::barrier start(kPasses);
  std::vector<std::exception_ptr> errors(kPasses);
  std::vector<std::thread> threads;
  for (int i = 0; i < kPasses; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        body(i);
      } catch (...) { errors[static_cast<size_t>(i)] = std::current_exception(); }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

void at_once_repeatedly(const std::function<void()>& body) {
  at_once([&](int) {
    for (int round = 0; round < kRounds; ++round) body();
  });
}

Tensor parameter(DType type = kDouble) { return ones({3, 5}, dtype(type).requires_grad(true)); }

bool holds(const Tensor& gradient, double value) {
  return gradient.defined() && gradient.equal(full_like(gradient, value));
}

}  // namespace

TEST_CASE("threads accumulate into one leaf without losing gradients") {
  const Tensor w = parameter();
  SECTION("into a new or a reused gradient") {
    at_once_repeatedly([&] { w.sum().backward(); });
    CHECK(holds(w.grad(), kTotal));
  }
  SECTION("into bound storage") {
    const Array slot = ones({3, 5}, kDouble).array();
    w.bind_grad(slot);
    at_once_repeatedly([&] { (w * 2).sum().backward(); });
    CHECK(holds(w.grad(), 2 * kTotal));
    CHECK(holds(Tensor(slot), 2 * kTotal));
  }
  SECTION("into a gradient that the user holds") {
    w.sum().backward();
    const Tensor held = w.grad();
    at_once_repeatedly([&] { w.sum().backward(); });
    CHECK(holds(w.grad(), kTotal + 1));
    CHECK(holds(held, 1));
  }
  SECTION("into a leaf named as an input of backward") {
    const Tensor v = parameter();
    at_once_repeatedly([&] { (w * v).sum().backward({}, std::nullopt, false, {w}); });
    CHECK(holds(w.grad(), kTotal));
    CHECK_FALSE(v.grad().defined());
  }
  SECTION("into a gradient with a history") {
    at_once([&](int) {
      for (int round = 0; round < 20; ++round) (w * w * w).sum().backward({}, true, true);
    });
    CHECK(holds(w.grad().detach(), 3 * 20 * kPasses));
    CHECK(holds(autograd::grad({w.grad().sum()}, {w})[0], 6 * 20 * kPasses));
    w.zero_grad();  // a gradient with a history and its leaf form a reference cycle
  }
}

TEST_CASE("threads add the first gradient of a leaf") {
  for (int round = 0; round < 100; ++round) {
    const Tensor w = parameter();
    if (round % 2) w.bind_grad(zeros({3, 5}, kDouble).array());
    at_once([&](int) { (w + w).sum().backward(); });
    REQUIRE(holds(w.grad(), 2 * kPasses));
  }
}

TEST_CASE("threads add gradients of a half type under autocast") {
  const Tensor x = ones({2, 5}), held = parameter(kFloat);
  const auto pass = [&](const Tensor& w) {
    const amp::Autocast autocast(kCPU, kBFloat16);
    linear(x, w).sum().backward();
  };
  for (int round = 0; round < 50; ++round) {
    const Tensor w = parameter(kFloat);
    at_once([&](int) { pass(w); });
    REQUIRE(holds(w.grad(), 2 * kPasses));
    w.zero_grad();
    pass(w);
    // All threads convert the half gradient when they first read it.
    at_once([&](int) {
      if (!holds(w.grad(), 2)) throw ValueError("another gradient");
    });
  }
  at_once_repeatedly([&] { pass(held); });
  CHECK(holds(held.grad(), 2 * kTotal));
}

TEST_CASE("threads call hooks while others are added and removed") {
  const Tensor w = parameter();
  std::atomic<int> seen = 0, done = 0;
  w.register_hook([&](const Tensor& gradient) {
    ++seen;
    return gradient * 2;
  });
  w.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    ++done;
    const NoGradGuard no_grad;
    const autograd::GradLock lock(leaf);
    if (leaf.grad().sum().item<double>() < 30) throw ValueError("a gradient is missing");
  });
  at_once_repeatedly([&] {
    const unsigned look = w.register_hook([](const Tensor&) {});
    const unsigned after = w.register_post_accumulate_grad_hook([](const Tensor&) {});
    w.sum().backward();
    w.remove_hook(look);
    w.remove_hook(after);
  });
  CHECK(seen == kTotal);
  CHECK(done == kTotal);
  CHECK(holds(w.grad(), 2 * kTotal));
}

TEST_CASE("hooks of a leaf run without holding its lock") {
  const Tensor w = parameter();
  std::barrier all(kPasses);
  w.register_hook([&](const Tensor&) { all.arrive_and_wait(); });  // each call waits until all passes are in the hook
  w.register_post_accumulate_grad_hook([&](const Tensor&) { all.arrive_and_wait(); });
  at_once([&](int) { w.sum().backward(); });
  CHECK(holds(w.grad(), kPasses));
}

TEST_CASE("a hook that removes itself does not hide the next one") {
  const Tensor w = parameter();
  int first = 0, second = 0;
  unsigned id = 0;
  id = w.register_hook([&](const Tensor&) { ++first, w.remove_hook(id); });
  w.register_hook([&](const Tensor&) { ++second; });
  const Tensor y = w * 1;
  unsigned of_result = 0;
  of_result = y.register_hook([&](const Tensor&) { ++first, y.remove_hook(of_result); });
  y.register_hook([&](const Tensor&) { ++second; });
  y.sum().backward();
  CHECK(first == 2);
  CHECK(second == 2);
}

TEST_CASE("a gradient that a hook keeps is copied") {
  const Tensor w = parameter();
  const Tensor kept = full({3, 5}, 7, kDouble);
  w.register_hook([&](const Tensor&) { return kept; });
  w.sum().backward();
  w.sum().backward();
  w.zero_grad(false);
  CHECK(holds(kept, 7));
}

TEST_CASE("threads run backward on one retained graph") {
  const Tensor w = parameter();
  const Tensor x = w * 2;
  SECTION("from several losses") {
    const Tensor h = (x * x).exp().log();  // 4 w w
    at_once_repeatedly([&] { (h * 3).sum().backward({}, true); });
    CHECK(holds(w.grad().div(kTotal).round(), 24));
  }
  SECTION("with retain_grad and hooks") {
    const Tensor h = x * x;
    std::atomic<int> seen = 0;
    h.retain_grad();
    h.register_hook([&](const Tensor&) { ++seen; });
    at_once_repeatedly([&] {
      x.retain_grad();
      const unsigned id = h.register_hook([](const Tensor&) {});
      h.sum().backward({}, true);
      h.remove_hook(id);
    });
    CHECK(holds(h.grad(), kTotal));
    CHECK(holds(x.grad(), 4 * kTotal));
    CHECK(holds(w.grad(), 8 * kTotal));
    CHECK(seen == kTotal);
  }
  SECTION("while tensors that retain gradients are destroyed") {
    const Tensor loss = (x * x).sum();
    at_once_repeatedly([&] {
      Tensor result = x * x;
      result.retain_grad();
      const Tensor sum = result.sum();
      std::thread destroyer([result = std::move(result)]() mutable { result = Tensor(); });
      sum.backward({}, true);
      destroyer.join();
    });
    CHECK(holds(w.grad(), 8 * kTotal));
  }
  SECTION("under create_graph") {
    const Tensor h = x * x * x;  // 8 w³
    at_once_repeatedly([&] {
      const Tensor slope = autograd::grad({h.sum()}, {w}, {}, true, true)[0];
      if (!holds(autograd::grad({slope.sum()}, {w}, {}, true)[0], 48)) throw ValueError("another second derivative");
    });
  }
  SECTION("with a checkpoint and dropout") {
    const auto part = [](const Tensor& at) { return dropout(at.exp(), 0.5, true); };
    const Tensor h = autograd::checkpoint(part, x);
    const Tensor expected = autograd::grad({h.sum()}, {w}, {}, true)[0];
    at_once([&](int) {
      for (int round = 0; round < 20; ++round) {
        randn({4});  // draws of other threads have no effect
        if (!autograd::grad({h.sum()}, {w}, {}, true, round % 2 == 0)[0].detach().equal(expected))
          throw ValueError("another mask");
      }
    });
  }
}

TEST_CASE("threads that use one graph without retaining it succeed or get an error") {
  for (int round = 0; round < 50; ++round) {
    const Tensor w = parameter();
    const auto part = [](const Tensor& at) { return at.exp() * at; };
    const Tensor loss = (round % 2 ? autograd::checkpoint(part, w * w) : part(w * w)).sum();
    std::atomic<int> passes = 0;
    at_once([&](int) {
      try {
        loss.backward();
        ++passes;
      } catch (const AutogradError&) {}
    });
    REQUIRE(passes >= 1);
  }
}

namespace {

struct CountedSquare : autograd::Function<CountedSquare> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    context->saved_data["calls"] = 0;
    return x * x;
  }
  static TensorList backward(AutogradContext* context, const TensorList& dy) {
    autograd::SavedValue& calls = context->saved_data["calls"];
    calls = calls.toInt() + 1;
    return {2 * context->get_saved_variables()[0] * dy[0]};
  }
};

}  // namespace

TEST_CASE("calls of a user-defined function are serialized") {
  const Tensor w = parameter();
  const Tensor y = CountedSquare::apply(w);
  at_once_repeatedly([&] { y.sum().backward({}, true); });
  CHECK(holds(w.grad(), 2 * kTotal));
}

TEST_CASE("threads run forward and backward at once, with separate grad modes") {
  const Tensor w = parameter(), base = ones({15}, dtype(kDouble).requires_grad(true));
  at_once([&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      if (thread % 2) {
        const NoGradGuard no_grad;
        if ((w * base.view({3, 5})).requires_grad()) throw ValueError("the mode of another thread");
      } else {
        (w * base.view({3, 5})).sum().backward();
      }
    }
  });
  CHECK(holds(w.grad(), kTotal / 2));
  CHECK(holds(base.grad(), kTotal / 2));
}
