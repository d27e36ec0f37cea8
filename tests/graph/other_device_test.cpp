// Recorded steps on a device other than the CPU. The device is a fake one, with the host's memory and openmp's kernels.
// The results of recorded steps equal those of eager steps bit for bit, recording does not use the device, and lockstep
// compares steps on two devices.
#include <gradus/inspect/lockstep.h>
#include <gradus/tests/distributed/fake_device.h>
#include <gradus/tests/graph/support.h>

using namespace gradus;
using test::contains;

namespace {

const Device kOther(kCUDA, 0);

/// Runs openmp's kernels on operands that are marked as being on the other device.
class OtherBackend final : public BackendInterceptor<OtherBackend> {
 public:
  std::string_view name() const override { return "other"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  template <class... Params>
  void call(const char* name, void (Backend::*method)(Params...), std::type_identity_t<Params>... arguments) {
    runtime(DeviceType::cuda).synchronize(0);  // waits for queued copies
    if (is_recording(DeviceType::cuda) && !test::FakeRuntime::is_capturing()) ++calls_outside_captures;
    std::vector<Storage> pieces;
    for (size_t bytes : workspace) pieces.push_back(Storage::allocate(bytes, kOther));
    for (const Storage& piece : pieces) addresses.push_back(static_cast<const char*>(piece.data()));
    (backend("openmp").*method)(arguments...);
    const auto look_at = [&](const auto& view) {
      if (!(view.device == kOther)) throw ValueError(std::string(name) + " was given an operand elsewhere");
      if constexpr (std::is_same_v<decltype(view), const MutableView&>)
        if (is_wrong && std::string_view(name) == "unary") view.template as<float>()[0] += 0.1f;
    };
    (for_each_operand(arguments, look_at), ...);
  }
  bool is_wrong = false;
  int calls_outside_captures = 0;      // of a recording
  std::vector<size_t> workspace;       // bytes of the pieces that each call allocates
  std::vector<const char*> addresses;  // of these pieces
};

/// The backend of the fake device. Null on a machine with a GPU, for which tests/cuda has the same cases.
OtherBackend* other_backend() {
  static OtherBackend* const made = [] {
    if (!test::use_fake_device()) return static_cast<OtherBackend*>(nullptr);
    auto backend = std::make_unique<OtherBackend>();
    OtherBackend* const pointer = backend.get();
    register_backend(std::move(backend));
    return pointer;
  }();
  return made || test::skip("a machine without CUDA devices") ? made : nullptr;
}

/// A convolution and an encoder layer, whose attention and dropouts draw random numbers.
struct MixedNet : nn::Module {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 4, 3)));
  nn::TransformerEncoderLayer encoder = register_module("encoder", nn::TransformerEncoderLayer(8, 2));
  nn::Linear fc = register_module("fc", nn::Linear(8, 10));

  Tensor forward(const Tensor& x) {
    const Tensor y = relu(conv(x)).flatten(2).permute({2, 0, 1}).reshape({-1, x.size(0), 8});
    return fc(encoder(y).mean({0}));
  }
};

struct MixedTraining {
  explicit MixedTraining(Device device) : device(device) {
    net.to(device);
    optimizer = std::make_unique<optim::AdamW>(net.parameters(), optim::AdamWOptions(1e-2));
  }
  Tensor step(const Tensor& x, const Tensor& target) {
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(net.forward(x), target) * tensor({2.0f}).to(device);
    loss.sum().backward();
    optimizer->step();
    return loss;
  }
  const Device device;
  MixedNet net;
  std::unique_ptr<optim::AdamW> optimizer;
};

}  // namespace

TEST_CASE("static steps on another device equal eager ones bit for bit") {
  if (!other_backend()) return;
  const auto train = [](bool recorded) {
    manual_seed(7);
    MixedTraining training(kOther);
    training::StaticStep step(
        kOther, {training.optimizer.get()},
        [&](const TensorList& batch) -> TensorList {
          return {training.step(batch[0], batch[1]), tensor({7.0f}).to(kOther)};
        },
        training::StaticStepOptions().enabled(recorded));
    TensorList results;
    for (int64_t size : {2, 3, 2}) {  // no size twice in a row, because the second run of a recording would be captured
      const TensorList of_step = step({randn({size, 2, 6, 6}), randint(0, 10, {size}, kLong)});
      for (const Tensor& result : of_step) results.push_back(result.detach().clone().cpu());
    }
    CHECK((step.executor() != nullptr) == recorded);
    if (recorded) CHECK(step.executor()->graph().device() == kOther);
    for (const Tensor& parameter : training.net.parameters()) results.push_back(parameter.detach().cpu());
    results.push_back(rand({2}));
    return results;
  };
  const TensorList eager = train(false), recorded = train(true);
  REQUIRE(recorded.size() == eager.size());
  for (size_t i = 0; i < eager.size(); ++i) CHECK(recorded[i].equal(eager[i]));
}

TEST_CASE("lockstep compares across devices and finds a wrong kernel on the other one") {
  OtherBackend* const other = other_backend();
  if (!other) return;
  for (const Device device : {Device(kCPU), kOther}) {
    INFO(device.str());
    manual_seed(7);
    MixedTraining training(device);
    const Tensor x = randn({2, 2, 6, 6}).to(device), target = randint(0, 10, {2}, kLong).to(device);
    const auto step = [&] { training.step(x, target); };
    step();
    graph::Recorder recorder(device);
    step();
    graph::Executor executor(recorder.finish());
    training.optimizer->zero_grad();
    const auto compared_with = [&](Backend& b) {
      const auto found = graph::lockstep(executor, current_backend(device.type()), b);
      return found ? found->str() : "";
    };
    CHECK(compared_with(backend("openmp")) == "");
    CHECK(compared_with(*other) == "");
    const auto eager = graph::lockstep(executor, step);
    CHECK((eager ? eager->str() : "") == "");
    other->is_wrong = true;
    CHECK_THAT(compared_with(device.is_cpu() ? static_cast<Backend&>(*other) : backend("openmp")),
               contains("unary (relu, other_device_test.cpp:"));
    other->is_wrong = false;
  }
}

TEST_CASE("a recording on another device keeps values from the host, and errors name the operator") {
  if (!other_backend()) return;
  const Tensor before = ones({4}).to(kOther);
  const auto message_of = [](const auto& step) -> std::string {
    try {
      graph::Recorder recorder(kOther);
      step();
      recorder.finish();
    } catch (const Error& error) { return error.what(); }
    CHECK_FALSE(runtime(DeviceType::cuda).capturing());
    return "";
  };
  CHECK(message_of([&] { (before * (tensor({1.0f, 2.0f}).sum() * 2).to(kOther)).sum(); }) == "");
  CHECK(message_of([&] { CHECK(ones({3}).sum().item<float>() == 3); }) == "");  // computed on the host
  CHECK_THAT(message_of([&] { (before * 2).sum().item<float>(); }), contains("[item] reading a number"));
  CHECK_THAT(message_of([&] { (before * 2).str(); }), contains("printing a tensor"));
  CHECK_THAT(message_of([&] { (before * 2).cpu(); }), contains("[to] a copy between devices"));
  CHECK_THAT(message_of([&] { before.copy_(ones({4})); }), contains("[copy_]") && contains("values from the host"));
  CHECK_THAT(message_of([&] {
               const Tensor numbers = ones({4}).to(kOther);
               numbers.copy_(zeros({4}));
             }),
             contains("only into a new array, and only once"));
  CHECK_THAT(message_of([&] { (before * 2).copy_(zeros({4})); }), contains("'mul' at") && contains("from the host"));
  CHECK_THAT(message_of([&] { ones({4}).to(kOther).add_(1); }), contains("'add_' at") && contains("from the host"));
  CHECK_THAT(message_of([&] { zeros({2}, TensorOptions(kFloat).device(Device(kCUDA, 1))); }),
             contains("'zeros' at") && contains("cuda:1, the recorded step is on cuda:0"));
  const float number = 1;
  const auto copy_to = [&](const Tensor& x) { return record_copy(x.data_ptr(), kOther, &number, kCPU, sizeof number); };
  CHECK_FALSE(copy_to(before));
  CHECK(message_of([&] { CHECK(copy_to(empty({1}, TensorOptions(kFloat).device(kOther)))); }) == "");
  graph::Recorder recorder;
  CHECK_THROWS_WITH(Storage::allocate_pinned(8), contains("page-locked memory cannot be part of a recorded step"));
}

TEST_CASE("workspace of kernels on another device is in the arena, as far as the recording knows it") {
  OtherBackend* const other = other_backend();
  if (!other) return;
  const Tensor x = ones({100}).to(kOther);
  Tensor y;
  other->calls_outside_captures = 0;
  // The addresses of the pieces that each call gets in the first run, relative to the call's workspace; -1 for others.
  const auto places_of = [&](const std::vector<size_t>& pieces) {
    other->workspace = {1000, 100};
    graph::Graph graph = test::graph_of([&] { y = x * 2 + 1; }, kOther);
    graph.set_result(y.array());
    REQUIRE(graph.calls().size() == 2);
    for (const auto& call : graph.calls()) {
      CHECK(call->workspace_bytes == 1024 + 512);
      CHECK(call->scratch_bytes == 1024 + 512);
      CHECK(call->scratch.size() == 2);
      // The memory after the list holds a piece that fits, which a run must not use.
      call->scratch.push_back(call->scratch[0]);
      call->scratch.pop_back();
    }
    graph::Executor executor(std::move(graph));
    CHECK(executor.plan().bytes == 2 * 512 + 1536);
    const graph::Buffer* const buffer = executor.graph().buffer_of(y.data_ptr());
    const char* const arena = buffer->memory - executor.plan().offsets[buffer - executor.graph().buffers().data()];
    other->workspace = pieces, other->addresses.clear();
    executor.run();
    other->workspace.clear();
    CHECK(Tensor(executor.result(y.array())).cpu().equal(ones({100}) * 3));
    std::vector<std::ptrdiff_t> places;
    for (size_t i = 0; i < other->addresses.size(); ++i) {
      const std::ptrdiff_t place =
          other->addresses[i] - arena - static_cast<std::ptrdiff_t>(executor.plan().scratch[i / pieces.size()]);
      places.push_back(place >= 0 && place < 1536 ? place : -1);
    }
    return places;
  };
  using Places = std::vector<std::ptrdiff_t>;
  CHECK(places_of({1000, 100}) == Places{0, 1024, 0, 1024});
  CHECK(places_of({1024, 512}) == Places{0, 1024, 0, 1024});
  CHECK(places_of({1025, 512}) == Places{-1, 1024, -1, 1024});
  CHECK(places_of({1, 1, 1}) == Places{0, 1024, -1, 0, 1024, -1});
  CHECK(other->calls_outside_captures == 0);
  CHECK_FALSE(test::FakeRuntime::is_capturing());
}

TEST_CASE("the two gradients of a convolution on another device are two calls unless they share a mask") {
  if (!other_backend()) return;
  const auto gradients_of = [](const Tensor& x, const Tensor& w, bool has_relu, bool recorded) {
    const Tensor bias = zeros({3}, TensorOptions(kFloat).device(kOther)), used[] = {x, w};
    const auto step = [&] { (has_relu ? conv2d_relu(x, w, bias) : conv2d(x, w)).square().sum().backward(); };
    TensorList gradients;
    if (!recorded) {
      step();
      for (const Tensor& tensor : used)
        if (tensor.requires_grad()) gradients.push_back(tensor.grad().cpu());
    } else {
      graph::Graph graph = test::graph_of(step, kOther);
      const bool is_split = x.requires_grad() && w.requires_grad() && !has_relu;
      CHECK(test::calls_named(graph, "conv2d_backward_data") == is_split);
      CHECK(test::calls_named(graph, "conv2d_bias_relu_backward") == 1);
      for (const Tensor& tensor : used)
        if (tensor.requires_grad()) graph.set_result(tensor.grad().array());
      graph::Executor executor(std::move(graph));
      executor.run();
      for (const Tensor& tensor : used)
        if (tensor.requires_grad()) gradients.push_back(Tensor(executor.result(tensor.grad().array())).cpu());
    }
    return gradients;
  };
  const Tensor x = randn({1, 2, 5, 5}).to(kOther), w = randn({3, 2, 3, 3}).to(kOther);
  for (const bool has_relu : {false, true})
    for (const int wanted : {1, 2, 3}) {  // the gradient of x, of w, or both
      const auto gradients = [&](bool recorded) {
        return gradients_of(x.detach().requires_grad_(wanted != 2), w.detach().requires_grad_(wanted != 1), has_relu,
                            recorded);
      };
      const TensorList eager = gradients(false), got = gradients(true);
      for (size_t i = 0; i < eager.size(); ++i) CHECK(got[i].equal(eager[i]));
    }
}

TEST_CASE("a recording on another device does not start within a capture and knows arrays without values") {
  if (!other_backend()) return;
  runtime(DeviceType::cuda).begin_capture();
  CHECK_THROWS_WITH(graph::Recorder(kOther), contains("already capturing a graph"));
  runtime(DeviceType::cuda).end_capture();

  Tensor kept;
  graph::Graph graph = test::graph_of([&] { kept = empty({3}, TensorOptions(kFloat).device(kOther)); }, kOther);
  CHECK_THROWS_WITH(graph.check_released(), contains("an array of 12 bytes that the step made without computing"));
}

TEST_CASE("each replay of a captured graph has new draws, and only a complete capture is replayed") {
  if (!other_backend()) return;
  static int announced;
  announced = 0;
  on_capture([] { ++announced; });
  Generator generator(3);
  const GeneratorGuard guard(generator);
  generator.next();
  cuda::Graph graph;
  CHECK_THROWS_WITH(graph.replay(), contains("nothing to replay"));
  CHECK_THROWS_WITH(graph.capture_end(), contains("without capture_begin"));
  const auto fails = [&] {
    generator.next();
    throw ValueError("not captured");
  };
  CHECK_THROWS_WITH(graph.capture(fails), contains("not captured"));
  CHECK_FALSE(test::FakeRuntime::is_capturing());
  CHECK_THROWS_WITH(graph.replay(), contains("nothing to replay"));
  CHECK_FALSE(generator.next().device_offset);
  CHECK(announced == 2);

  const uint64_t* offset = nullptr;
  graph.capture([&] {
    CHECK(test::FakeRuntime::is_capturing());
    CHECK_THROWS_WITH(graph.capture_begin(), contains("already holds a capture"));
    generator.next();
    cuda::Graph();  // a graph without a capture ends none
    offset = generator.next().device_offset;
  });
  REQUIRE(offset);
  CHECK(announced == 4);
  CHECK_FALSE(test::FakeRuntime::is_capturing());
  CHECK_FALSE(generator.next().device_offset);
  CHECK_THROWS_WITH(graph.capture_begin(), contains("already holds a capture"));
  CHECK_THROWS_WITH(graph.capture_end(), contains("without capture_begin"));
  const uint64_t counted = replay_count();
  const int replays = test::FakeGraph::replays;
  for (uint64_t i = 0; i < 2; ++i) {
    graph.replay();
    runtime(DeviceType::cuda).synchronize(0);
    CHECK(*offset == 3 + 2 * i);
  }
  CHECK(generator.offset() == 7);
  CHECK(replay_count() == counted + 2);
  CHECK(test::FakeGraph::replays == replays + 2);

  graph.reset();
  CHECK_THROWS_WITH(graph.replay(), contains("nothing to replay"));
  graph.capture([&] { generator.next(); });
  graph.replay();
  CHECK(generator.offset() == 8);
  {
    cuda::Graph begun;
    begun.capture_begin();
    CHECK(test::FakeRuntime::is_capturing());
  }
  CHECK_FALSE(test::FakeRuntime::is_capturing());
  cuda::Graph begun;
  begun.capture_begin();
  begun.reset();
  CHECK_FALSE(test::FakeRuntime::is_capturing());
  on_capture(nullptr);
}

TEST_CASE("a captured step is replayed for its batch size and captured again after changes") {
  if (!other_backend()) return;
  const Tensor w = ones({2}, TensorOptions(kFloat).device(kOther)).requires_grad_();
  optim::SGD optimizer({w}, optim::SGDOptions(0.5));
  int calls = 0;
  bool fails = false;
  Storage input;  // of the call that fails
  training::CapturedStep step(
      kOther, {&optimizer},
      [&](const TensorList& batch) -> TensorList {
        ++calls;
        REQUIRE(batch.size() == 1);
        if (fails) {
          input = batch[0].array().storage();
          throw ValueError("not captured");
        }
        return batch;
      },
      training::CapturedStepOptions().warm_up(2));
  test::FakeGraph::replays = 0;
  // Runs a step and checks how often the function has been called and the graph has been replayed since the beginning.
  const auto run = [&](int64_t size, int expected_calls, int expected_replays, bool is_captured) {
    INFO("call " << expected_calls << ", replay " << expected_replays);
    const Tensor x = randn({size});
    CHECK(step({x})[0].cpu().equal(x));
    CHECK(calls == expected_calls);
    CHECK(test::FakeGraph::replays == expected_replays);
    CHECK(step.captured() == is_captured);
  };
  const auto set_momentum = [&](double momentum) {
    static_cast<optim::SGDOptions&>(optimizer.param_groups()[0].options()).momentum(momentum);
  };
  run(4, 1, 0, false);
  run(4, 2, 0, false);
  run(3, 3, 0, false);
  run(4, 4, 0, false);
  run(4, 5, 0, false);
  run(4, 6, 1, true);  // two eager steps with batches of 4 have gone before
  run(4, 6, 2, true);
  run(3, 7, 2, true);
  run(4, 7, 3, true);
  optimizer.set_lr(0.25);
  run(4, 7, 4, true);
  set_momentum(0.5);
  run(3, 8, 4, true);
  run(4, 9, 5, true);
  w.requires_grad_(false);
  run(3, 10, 5, true);
  run(4, 11, 5, false);
  run(4, 12, 5, false);
  run(4, 13, 6, true);
  set_momentum(0.25);
  fails = true;
  CHECK_THROWS_WITH(step({randn({4})}), contains("not captured"));
  CHECK_FALSE(step.captured());
  CHECK(input.use_count() == 1);  // the step keeps no input of a capture that failed
  fails = false;
  run(4, 15, 6, false);
  run(4, 16, 6, false);
  run(4, 17, 7, true);
  step.reset();
  run(4, 18, 7, false);
  step.give_up();
  for (int i = 0; i < 4; ++i) run(4, 19 + i, 7, false);
}

TEST_CASE("a scale is updated in a capture by the steps of that capture, after eager ones that are not finished") {
  if (!other_backend()) return;
  const auto parameter = [] { return ones({2}, TensorOptions(kFloat).device(kOther)).requires_grad_(); };
  const Tensor w = parameter(), v = parameter();
  using Parameters = std::vector<Tensor>;
  optim::SGD optimizers[] = {optim::SGD(Parameters{w}, 0.5), optim::SGD(Parameters{v}, 0.5)};  // in order of addresses
  optim::SGD &first = optimizers[0], &second = optimizers[1];
  amp::GradScaler scaler(amp::GradScalerOptions().init_scale(4).growth_interval(1));
  const auto backward = [&] {
    first.zero_grad(), second.zero_grad();
    scaler.scale((w * v).sum()).backward();
  };
  backward();
  scaler.step(first), scaler.step(second);
  scaler.update();
  CHECK(scaler.get_scale() == 8);
  backward();
  scaler.unscale_(first);
  runtime(DeviceType::cuda).begin_capture();
  scaler.step(second);
  scaler.update();
  CHECK_THROWS_WITH(scaler.update(), contains("no gradients were looked at"));
  runtime(DeviceType::cuda).end_capture();
}

TEST_CASE("copies between devices convert types, and read and write elements in any order") {
  if (!other_backend()) return;
  const Tensor host = arange(6).to(kFloat).view({2, 3});
  const auto there = [](const Shape& shape, DType type) { return zeros(shape, TensorOptions(type).device(kOther)); };
  for (const DType type : {kFloat, kDouble, kLong}) {
    INFO(name(type));
    const Tensor dense = there({2, 3}, type), turned = there({3, 2}, type), gaps = there({2, 6}, type);
    dense.copy_(host);
    turned.t().copy_(host);
    gaps.slice(1, 0, 6, 2).copy_(host);
    CHECK(dense.cpu().equal(host.to(type)));
    CHECK(turned.cpu().equal(host.t().to(type)));
    CHECK(gaps.cpu().equal(cat({host.view({2, 3, 1}), zeros({2, 3, 1})}, 2).view({2, 6}).to(type)));
    const Tensor back = zeros({3, 2}, kDouble);
    back.t().copy_(gaps.slice(1, 0, 6, 2));
    CHECK(back.equal(host.t().to(kDouble)));
    const Tensor rows = there({2, 3}, type);
    rows.copy_(host[1]);  // broadcast
    CHECK(rows.cpu().equal(host[1].expand({2, 3}).to(type)));
  }
}

TEST_CASE("a number on the host is either operand of a tensor on another device") {
  if (!other_backend()) return;
  const Tensor x = tensor({1.0f, 4.0f}).to(kOther), counts = tensor({1, 4}).to(kOther), number = full({}, 2.5);
  CHECK((number - x).cpu().equal(tensor({1.5f, -1.5f})));
  CHECK((x - number).cpu().equal(tensor({-1.5f, 1.5f})));
  CHECK((number / x).cpu().equal(tensor({2.5f, 0.625f})));
  CHECK((number > x).cpu().equal(tensor({true, false})));
  CHECK((number - counts).cpu().equal(tensor({1.5f, -1.5f})));  // the type is that of a promotion
  CHECK((counts - number).cpu().equal(tensor({-1.5f, 1.5f})));
  CHECK((number - x).device() == kOther);
}

TEST_CASE("a recorded step on another device detects autocast for it") {
  if (!other_backend()) return;
  nn::Linear layer(4, 4);
  layer->to(kOther);
  training::StaticStep step(kOther, {}, [&](const TensorList& batch) -> TensorList { return {layer(batch[0])}; });
  const auto run = [&] { return step({ones({2, 4})})[0].dtype(); };
  CHECK((run() == kFloat && run() == kFloat && step.executor()));
  const amp::Autocast autocast(kCUDA, kBFloat16);
  CHECK((run() == kBFloat16 && !step.executor()));
}
