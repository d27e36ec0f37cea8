// The half copies of parameters that optimizers write and autocast reads: same bits as conversions, whoever writes the
// parameters.
#include <algorithm>

#include <gradus/autograd/mixed_precision/half_copy.h>
#include <gradus/core/runtime/observer.h>
#include <gradus/core/runtime/recorded_memory.h>
#include <gradus/gradus.h>
#include <gradus/graph/executor.h>
#include <gradus/graph/recorder.h>
#include <gradus/tests/catch.h>

using namespace gradus;
using namespace gradus::test;
using amp::Autocast;
using training::StaticStep;
using training::StaticStepOptions;

namespace {

// Counts the conversions that operators ask for.
class Conversions final : public Observer {
 public:
  Conversions() { add_observer(this); }
  ~Conversions() override { remove_observer(this); }
  void on_end(const ObservedEvent& event) override {
    count += event.kind == ObservedEvent::Kind::op && event.name == std::string_view("to");
  }
  int count = 0;
};

template <class F>
int conversions_of(const F& run) {
  const Conversions conversions;
  run();
  return conversions.count;
}

bool has_half_copy(const Tensor& parameter) {
  const auto copy = amp::detail::exchange_half_copy(parameter, nullptr);
  amp::detail::exchange_half_copy(parameter, copy);
  return copy != nullptr;
}

// A net in a half type whose input needs no conversion, and steps on it.
struct Trained {
  DType half = kBFloat16;
  bool copies = true;
  nn::Sequential net = make_net();
  optim::AdamW optimizer{net->parameters(), optim::AdamWOptions(0.01)};
  amp::GradScaler scaler{amp::GradScalerOptions().init_scale(1024).enabled(half == kHalf)};

  static nn::Sequential make_net() {
    manual_seed(4);
    return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 8, 3)), nn::BatchNorm2d(8), nn::ReLU(), nn::Flatten(),
                          nn::Linear(8 * 4 * 4, 16), nn::ReLU(), nn::Linear(16, 4));
  }
  Tensor forward(const Tensor& x) {
    const Autocast autocast(kCPU, half, true, copies);
    return net->forward(x);
  }
  Tensor loss_of(const Tensor& x) { return cross_entropy(forward(x).to(kFloat), tensor({0, 1, 2, 3}, kLong)); }
  Tensor step(const Tensor& x) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(x);
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    return loss.detach();
  }
  // Of the conv and both linear layers: weights and biases.
  static constexpr int kCast = 6;
  int conversions() {
    const NoGradGuard no_grad;
    const Tensor x = ones({4, 3, 6, 6}).to(half);
    return conversions_of([&] { forward(x); });
  }
};

TensorList numbers_of(const nn::Sequential& net) {
  TensorList numbers;
  for (const Tensor& parameter : net->parameters()) numbers.push_back(parameter.detach().clone());
  return numbers;
}

void check_equal(const TensorList& a, const TensorList& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(a[i].equal(b[i]));
}

// What forward gives is what freshly converted parameters give.
void check_up_to_date(Trained& trained) {
  const NoGradGuard no_grad;
  const Tensor x = rand({4, 3, 6, 6}).to(trained.half), with = trained.forward(x);
  const bool copies = std::exchange(trained.copies, false);
  CHECK(with.equal(trained.forward(x)));
  trained.copies = copies;
}

}  // namespace

TEST_CASE("half copies: a step converts no parameter that the optimizer wrote, and has the bits of conversions") {
  for (const char* backend : {"naive", "openmp"})
    for (DType half : {kBFloat16, kHalf}) {
      const BackendGuard guard(backend);
      Trained with{.half = half}, without{.half = half, .copies = false};
      manual_seed(1);
      CHECK(with.conversions() == Trained::kCast);
      for (int i = 0; i < 4; ++i) {
        const Tensor x = rand({4, 3, 6, 6}).to(half);
        CHECK(with.step(x).equal(without.step(x)));
        CHECK(with.conversions() == 0);
        check_up_to_date(with);
      }
      check_equal(numbers_of(with.net), numbers_of(without.net));
      CHECK(without.conversions() == Trained::kCast);
      for (const Tensor& parameter : without.net->parameters()) CHECK_FALSE(has_half_copy(parameter));
    }
}

TEST_CASE("half copies: there are none without autocast") {
  Trained trained;
  for (int i = 0; i < 2; ++i) {
    cross_entropy(trained.net->forward(rand({4, 3, 6, 6})), tensor({0, 1, 2, 3}, kLong)).backward();
    trained.optimizer.step();
  }
  trained.conversions();  // nor of evaluation alone
  for (const Tensor& parameter : trained.net->parameters()) CHECK_FALSE(has_half_copy(parameter));
}

TEST_CASE("half copies: a write by hand, set_data, a loaded state and another layout count") {
  Trained trained, other;
  const Tensor x = rand({4, 3, 6, 6}).to(kBFloat16);
  trained.step(x), trained.step(x), other.step(rand({4, 3, 6, 6}).to(kBFloat16));
  const Tensor weight = trained.net->parameters()[0];
  SECTION("a write") {
    const NoGradGuard no_grad;
    weight.mul_(2);
    CHECK(trained.conversions() == 1);
  }
  SECTION("a write by a view") {
    const NoGradGuard no_grad;
    weight[0].zero_();
    CHECK(trained.conversions() == 1);
  }
  SECTION("set_data") {
    weight.set_data(weight.detach() * 3);
    CHECK(trained.conversions() == 1);
  }
  SECTION("a loaded state") {
    trained.net->load_state_dict(other.net->state_dict());
    trained.optimizer.load_state_dict(other.optimizer.state_dict());
    CHECK(trained.conversions() == Trained::kCast);
  }
  SECTION("another layout") {
    trained.net->to(MemoryFormat::channels_last);
    CHECK(trained.conversions() >= 1);
  }
  check_up_to_date(trained);
  trained.step(x);
  CHECK(trained.conversions() == 0);
  check_up_to_date(trained);
}

TEST_CASE("half copies: a step that the scaler skips leaves them as they are") {
  Trained trained{.half = kHalf};
  const Tensor x = rand({4, 3, 6, 6}).to(kHalf);
  trained.step(x);
  const TensorList before = numbers_of(trained.net);
  trained.step(x * INFINITY);
  CHECK(trained.net->parameters()[0].equal(before[0]));
  CHECK(trained.conversions() == 0);
  check_up_to_date(trained);
}

TEST_CASE("half copies: optimizers and tensors that share a parameter") {
  Trained trained;
  const Tensor x = rand({4, 3, 6, 6}).to(kBFloat16);
  optim::SGD second(trained.net->parameters(), 0.1);
  trained.step(x);
  second.step();                                   // with the gradients of the first
  CHECK(trained.conversions() == Trained::kCast);  // nothing has asked for copies since
  check_up_to_date(trained);
  trained.step(x);
  CHECK(trained.conversions() == 0);

  // Two tensors of the same numbers: the optimizer writes one of them.
  const Tensor tied = trained.net->parameters()[4].detach().requires_grad_();
  const auto product = [&] {
    const Autocast autocast(kCPU);
    return linear(ones({1, 128}).to(kBFloat16), tied);
  };
  product();
  trained.step(x);
  CHECK(product().equal(linear(ones({1, 128}).to(kBFloat16), tied.detach().to(kBFloat16))));
}

TEST_CASE("half copies: a graph that is kept has the weights of its forward") {
  const Tensor x = rand({4, 3, 6, 6}).to(kBFloat16);
  const auto gradient = [&](bool step_between) {
    manual_seed(3);
    const nn::Sequential net(nn::Linear(6, 8), nn::ReLU(), nn::Linear(8, 2));
    optim::SGD optimizer(net->parameters(), 0.1);
    const auto loss_of = [&](const Tensor& input) {
      const Autocast autocast(kCPU);
      return net->forward(input).to(kFloat).square().sum();
    };
    for (int i = 0; i < 2; ++i) loss_of(x).backward(), optimizer.step();
    const Tensor input = x.detach().requires_grad_(), loss = loss_of(input);
    loss.backward({}, /*retain_graph=*/true);
    if (step_between) optimizer.step();
    input.zero_grad();
    loss.backward();
    return input.grad();
  };
  CHECK(gradient(true).equal(gradient(false)));
}

TEST_CASE("half copies: recorded steps read them, with the bits of conversions") {
  enum class Change { none, by_hand, clamped, raw_replay };
  const auto train = [](Change change, bool copies, bool recorded) {
    Trained trained{.copies = copies};
    const auto one = [&](const TensorList& batch) -> TensorList {
      const Tensor loss = trained.loss_of(batch[0]);
      trained.optimizer.zero_grad();
      loss.backward();
      trained.optimizer.step();
      const NoGradGuard no_grad;
      if (change == Change::clamped)
        for (const Tensor& parameter : trained.net->parameters()) parameter.clamp_(-0.05, 0.05);
      return {loss};
    };
    StaticStep step(kCPU, {&trained.optimizer}, one, StaticStepOptions().enabled(recorded));
    const TensorList parameters = trained.net->parameters();
    std::unique_ptr<graph::Executor> halve;
    if (change == Change::raw_replay) {
      graph::Recorder recorder;
      const NoGradGuard no_grad;
      parameters[0].mul_(0.5);
      halve = std::make_unique<graph::Executor>(recorder.finish());
    }
    manual_seed(2);
    TensorList results;
    for (int i = 0; i < 6; ++i) {
      const NoGradGuard no_grad;
      if (change == Change::by_hand && i % 2 == 1) parameters[0].mul_(0.5);
      if (halve && i % 2 == 1) halve->run();
      const Tensor x = rand({4, 3, 6, 6}).to(kBFloat16);
      const AutoGradMode grad(true);
      results.push_back(step({x})[0].detach().clone());
      check_up_to_date(trained);
    }
    if (recorded && copies) {
      const auto& calls = step.executor()->graph().calls();
      const auto conversions = std::count_if(calls.begin(), calls.end(), [](const auto& call) {
        return call->name == std::string_view("copy") && call->operands[0].layout.dtype == kFloat &&
               call->operands[1].layout.dtype == kBFloat16;
      });
      CHECK(conversions - 1 == (change == Change::clamped ? Trained::kCast : 0));  // one is of the logits' gradient
    }
    for (const Tensor& parameter : parameters) results.push_back(parameter.detach());
    return results;
  };
  for (Change change : {Change::none, Change::by_hand, Change::clamped, Change::raw_replay}) {
    INFO("change " << static_cast<int>(change));
    const TensorList expected = train(change, false, false);
    check_equal(train(change, true, false), expected);
    check_equal(train(change, true, true), expected);
  }
}

TEST_CASE("half copies: a recording without RecordedHalfCopies reads none, so that each replay has its weights") {
  const Tensor x = rand({4, 3, 6, 6}).to(kBFloat16);
  Trained trained;
  trained.step(x), trained.step(x);
  CHECK(trained.conversions() == 0);
  const NoGradGuard no_grad;
  const Tensor y = empty({4, 4}, kBFloat16);
  graph::Recorder recorder;
  CHECK(trained.conversions() == Trained::kCast);
  y.copy_(trained.forward(x));
  graph::Executor replays(recorder.finish());
  for (const Tensor& parameter : trained.net->parameters()) parameter.mul_(2);
  replays.run();
  trained.copies = false;
  CHECK(y.equal(trained.forward(x)));
}

TEST_CASE("half copies: those of a recorded step are the ones that it read") {
  const Tensor x = rand({4, 3, 6, 6}).to(kBFloat16);
  Trained trained;
  const TensorList parameters = trained.net->parameters();
  trained.step(x), trained.step(x);
  int64_t bytes = 0;  // of the copies of the conv's and the linear layers' parameters
  for (const size_t i : {0, 1, 4, 5, 6, 7}) bytes += counted_bytes(2 * parameters[i].numel(), DeviceType::cpu);
  const auto bytes_read = [](amp::detail::RecordedHalfCopies copies, Trained* reader) {
    {
      const graph::Recorder recorder;
      if (reader) CHECK(reader->conversions() == 0);
    }
    copies.end_recording();
    return copies.bytes();
  };
  CHECK(bytes_read(amp::detail::RecordedHalfCopies(parameters), &trained) == bytes);
  CHECK(bytes_read(amp::detail::RecordedHalfCopies(parameters), nullptr) == 0);

  // A step that is recorded for its memory plan has copies of all float32 parameters before its optimizer wrote any.
  Trained fresh;
  TensorList planned = fresh.net->parameters();
  planned.insert(planned.begin(), ones({2}, kDouble));
  CHECK(fresh.conversions() == Trained::kCast);
  CHECK(bytes_read(amp::detail::RecordedHalfCopies(planned, kBFloat16), &fresh) == bytes);
  CHECK_FALSE(has_half_copy(planned.front()));
}

TEST_CASE("half copies: steps recorded before there was one leave none behind") {
  Trained trained;
  const Tensor x = rand({4, 3, 6, 6});
  StaticStep wide(kCPU, {&trained.optimizer}, [&](const TensorList& batch) -> TensorList {
    trained.optimizer.zero_grad();
    const Tensor loss = cross_entropy(trained.net->forward(batch[0]), tensor({0, 1, 2, 3}, kLong));
    loss.backward();
    trained.optimizer.step();
    return {loss};
  });
  for (int i = 0; i < 2; ++i) wide({x});
  REQUIRE(wide.executor());
  trained.step(x.to(kBFloat16));
  CHECK(trained.conversions() == 0);
  wide({x});
  CHECK(trained.conversions() == Trained::kCast);
  check_up_to_date(trained);
}

TEST_CASE("half gradients: whoever looks sees float32, with the bits of conversions") {
  enum class Look { none, between, twice, hook, post_hook, clip, bound, engine };
  const auto train = [](Look look, bool copies) {
    Trained trained{.copies = copies};
    const TensorList parameters = trained.net->parameters();
    TensorList seen;
    const auto see = [&](const Tensor& gradient) {
      CHECK(gradient.dtype() == kFloat);
      seen.push_back(gradient.detach().clone());
    };
    if (look == Look::hook)
      parameters[0].register_hook([&](const Tensor& gradient) { return see(gradient), gradient * 2; });
    if (look == Look::post_hook)
      parameters[0].register_post_accumulate_grad_hook([&](const Tensor& leaf) { see(leaf.grad()); });
    if (look == Look::bound)
      for (const Tensor& parameter : parameters) parameter.bind_grad(Array::empty_like(parameter.array()));
    manual_seed(6);
    for (int i = 0; i < 4; ++i) {
      const Tensor x = rand({4, 3, 6, 6}).to(kBFloat16);
      trained.optimizer.zero_grad();
      trained.loss_of(x).backward();
      if (look == Look::twice) trained.loss_of(x * 2).backward();
      if (look == Look::between || look == Look::bound)
        for (const Tensor& parameter : parameters) see(parameter.grad());
      if (look == Look::clip) nn::utils::clip_grad_norm_(parameters, 0.1);
      if (look == Look::engine) see(autograd::grad({trained.loss_of(x)}, {parameters[0]})[0]);
      trained.optimizer.step();
      if (look == Look::none || look == Look::twice)
        for (const Tensor& parameter : parameters) see(parameter.grad());
    }
    for (const Tensor& parameter : parameters) seen.push_back(parameter.detach());
    return seen;
  };
  for (Look look :
       {Look::none, Look::between, Look::twice, Look::hook, Look::post_hook, Look::clip, Look::bound, Look::engine}) {
    INFO("look " << static_cast<int>(look));
    check_equal(train(look, true), train(look, false));
  }
}

TEST_CASE("half gradients: the optimizer reads them as backward made them") {
  Trained trained;
  const Tensor x = rand({4, 3, 6, 6}).to(kBFloat16);
  trained.step(x), trained.step(x);
  int halves = 0;
  for (const Tensor& parameter : trained.net->parameters())
    halves += amp::detail::has_half_gradient(*parameter.impl()->meta);
  CHECK(halves == Trained::kCast);
  CHECK(has_half_copy(trained.net->parameters()[0]));
  const Tensor weight = trained.net->parameters()[0];
  CHECK(weight.grad().dtype() == kFloat);
  CHECK(weight.grad().strides() == weight.strides());
  CHECK_FALSE(amp::detail::has_half_gradient(*weight.impl()->meta));
  trained.optimizer.zero_grad();
  for (const Tensor& parameter : trained.net->parameters()) CHECK_FALSE(parameter.grad().defined());
}

TEST_CASE("half gradients: leaves of another type, with hooks or with a gradient get converted ones") {
  struct HalfBackward : autograd::Function<HalfBackward> {
    static Tensor forward(AutogradContext*, const Tensor& x) { return x * 2; }
    static TensorList backward(AutogradContext*, const TensorList& dy) { return {dy[0].to(kBFloat16)}; }
  };
  const auto is_half_after = [](const Tensor& leaf) {
    HalfBackward::apply(leaf).sum().backward();
    return amp::detail::has_half_gradient(*leaf.impl()->meta);
  };
  const Tensor plain = ones({3}).requires_grad_(), wide = ones({3}, kDouble).requires_grad_();
  const Tensor hooked = ones({3}).requires_grad_();
  DType seen = kByte;
  hooked.register_hook([&](const Tensor& gradient) { return seen = gradient.dtype(), Tensor(); });
  CHECK(is_half_after(plain));
  CHECK_FALSE(is_half_after(wide));
  CHECK_FALSE(is_half_after(hooked));
  CHECK(seen == kFloat);
  CHECK_FALSE(is_half_after(plain));  // the second gradient is added to the first in float32
  CHECK(plain.grad().equal(full({3}, 2.0)));
  CHECK(wide.grad().equal(ones({3}, kDouble)));
  CHECK(hooked.grad().equal(ones({3})));
}

TEST_CASE("half gradients: those of several casts of a parameter are added in float32") {
  const auto gradient = [](bool copies) {
    Trained trained{.copies = copies};
    const Tensor x = rand({4, 3, 6, 6}).to(kBFloat16);
    trained.step(x), trained.step(x);
    trained.optimizer.zero_grad();
    (trained.loss_of(x) + trained.loss_of(x * 2)).backward();  // in two regions of autocast
    TensorList gradients;
    for (const Tensor& parameter : trained.net->parameters()) gradients.push_back(parameter.grad());
    return gradients;
  };
  manual_seed(8);
  const TensorList with = gradient(true);
  manual_seed(8);
  check_equal(with, gradient(false));
}

TEST_CASE("half gradients: recordings take none of before, and a recorded step that adds to one adds at each run") {
  const Tensor x = rand({4, 3, 6, 6}).to(kBFloat16);
  Trained raw;
  raw.step(x), raw.step(x);
  {
    graph::Recorder recorder;
    CHECK_THROWS_WITH(raw.loss_of(x).backward(), contains("zero_grad()") && contains("from before it"));
  }
  const auto train = [&](bool copies) {
    Trained trained{.copies = copies};
    trained.step(x), trained.step(x);
    StaticStep step(kCPU, {&trained.optimizer}, [&](const TensorList& batch) -> TensorList {
      trained.optimizer.zero_grad();
      trained.loss_of(batch[0]).backward();
      const Tensor loss = trained.loss_of(batch[0] * 2);
      loss.backward();
      trained.optimizer.step();
      return {loss};
    });
    TensorList results;
    for (int i = 0; i < 4; ++i) results.push_back(step({x})[0].detach().clone());
    return results;
  };
  check_equal(train(true), train(false));
}
