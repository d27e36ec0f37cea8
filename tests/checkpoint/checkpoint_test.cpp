// Tests that loading a checkpoint file restores everything bit by bit, or throws an error and changes nothing.
#include <gradus/core/io/safetensors.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

#include <cmath>
#include <limits>

using namespace gradus;
using test::contains;
using training::Checkpoint;
using training::State;

namespace {

struct NetImpl : nn::Module {
  nn::Linear fc1 = register_module("fc1", nn::Linear(4, 8)), fc2 = register_module("fc2", nn::Linear(8, 3));
  Tensor forward(const Tensor& x) { return fc2(dropout(relu(fc1(x)), 0.3)); }
};
GRADUS_MODULE(Net);

struct TiedImpl : nn::Module {
  nn::Linear encoder = register_module("encoder", nn::Linear(3, 3)),
             decoder = register_module("decoder", nn::Linear(3, 3));
  TiedImpl() { decoder = replace_module("decoder", encoder.ptr()); }
};
GRADUS_MODULE(Tied);

/// A small training run with all kinds of parts, and a step that draws random numbers.
struct Run {
  Net net;
  optim::Adam adam{net->parameters(), optim::AdamOptions(0.01)};
  optim::OneCycleLR schedule{adam, optim::OneCycleLROptions(0.1, 20)};
  optim::AveragedParameters average{net, 0.9};
  Generator generator{17};
  Tensor loss_sum = zeros({}, dtype(kDouble));
  int64_t step = 0;
  double best = std::numeric_limits<double>::infinity();
  std::string note = "fresh";
  Checkpoint checkpoint;

  Run() {
    checkpoint.add("model", *net).add("optimizer", adam).add("generator", default_generator()).add("own", generator);
    checkpoint.add("schedule", schedule).add("average", average);
    checkpoint.add("loss sum", loss_sum).value("step", step).value("best", best).value("note", note);
    checkpoint.setting("batch size", 16);
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i, ++step) {
      const Tensor x = rand({16, 4});
      const Tensor loss = (net(x) - x.narrow(1, 0, 3)).pow(2).mean();
      adam.zero_grad();
      loss.backward();
      adam.step();
      schedule.step();
      average.update();
      loss_sum.add_(loss.detach());
      best = std::min(best, loss.item<double>());
      note = "step " + std::to_string(step);
      generator.next();
    }
  }
  /// Returns the whole state of the run as bytes.
  std::string bytes(const test::TemporaryDirectory& directory) const {
    checkpoint.save(directory.file("bytes"));
    const io::Bytes bytes = io::read_file(directory.file("bytes"));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

}  // namespace

TEST_CASE("a run that goes on from a checkpoint ends with the same bits", "[checkpoint]") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("run.safetensors");
  manual_seed(1);
  Run whole;
  whole.train(3);
  whole.checkpoint.save(path);
  whole.train(4);
  const std::string end = whole.bytes(directory);

  manual_seed(99);
  Run resumed;
  resumed.train(1);
  resumed.checkpoint.load(path);
  CHECK(resumed.step == 3);
  CHECK(resumed.note == "step 2");
  resumed.train(4);
  const bool same = resumed.bytes(directory) == end;
  CHECK(same);
  CHECK(resumed.generator.offset() == 7);

  const auto values = Checkpoint::values_of(path);
  CHECK(values["step"] == "3");
  CHECK(values["note"] == "step 2");
  CHECK_FALSE(resumed.checkpoint.load_if_there(directory.file("none")));
  CHECK(resumed.checkpoint.load_if_there(path));
  CHECK(resumed.step == 3);
}

TEST_CASE("any reader of safetensors can show the content of a checkpoint file", "[checkpoint]") {
  const test::TemporaryDirectory directory;
  Run run;
  run.train(1);
  run.checkpoint.save(directory.file("run"));
  const io::Safetensors file = io::load_safetensors_with_metadata(directory.file("run"));
  CHECK(Tensor(file.tensors.at("model.fc2.weight")).equal(run.net->fc2->weight));
  CHECK(file.tensors.contains("optimizer.state.0.exp_avg"));
  CHECK(file.metadata.at("kind:optimizer") == "gradus::optim::Adam");
  CHECK(file.metadata.at("kind:model") == "module");
  CHECK(file.metadata.at("setting:batch size") == "16");
  CHECK(file.metadata.at("gradus:version") == version());
}

TEST_CASE("tied tensors are stored once in a checkpoint too", "[checkpoint]") {
  const test::TemporaryDirectory directory;
  Tied net, other;
  Checkpoint().add("model", *net).save(directory.file("tied"));
  CHECK(io::load_safetensors(directory.file("tied")).size() == 2);
  Checkpoint().add("model", *other).load(directory.file("tied"));
  CHECK(other->encoder->weight.equal(net->encoder->weight));
  CHECK(other->decoder->weight.is_same(other->encoder->weight));
}

TEST_CASE("values of every type come back exactly", "[checkpoint]") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("values");
  int small = -7;
  uint64_t large = std::numeric_limits<uint64_t>::max();
  double tenth = 0.1, nothing = std::numeric_limits<double>::quiet_NaN(), least = 5e-324;
  float third = 1.0f / 3;
  bool yes = true;
  std::string text = "a \"quoted\"\nline, ünïcödé";
  Checkpoint checkpoint;
  checkpoint.value("small", small).value("large", large).value("tenth", tenth).value("nothing", nothing);
  checkpoint.value("least", least).value("third", third).value("yes", yes).value("text", text);
  checkpoint.save(path);
  small = 0, large = 0, tenth = 0, nothing = 0, least = 1, third = 0, yes = false, text.clear();
  checkpoint.load(path);
  CHECK(small == -7);
  CHECK(large == std::numeric_limits<uint64_t>::max());
  CHECK(tenth == 0.1);
  CHECK(std::isnan(nothing));
  CHECK(least == 5e-324);
  CHECK(third == 1.0f / 3);
  CHECK(yes);
  CHECK(text == "a \"quoted\"\nline, ünïcödé");
}

TEST_CASE("a checkpoint file of another kind of run is refused and changes nothing", "[checkpoint]") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("run");
  manual_seed(1);
  Run run;
  run.train(2);
  const auto refused = [&](const auto& message) {
    const std::string before = run.bytes(directory);
    CHECK_THROWS_WITH(run.checkpoint.load(path), contains("load checkpoint '" + path + "'"));
    CHECK_THROWS_WITH(run.checkpoint.load(path), message);
    const bool unchanged = run.bytes(directory) == before;
    CHECK(unchanged);
  };
  // The files below are of another run, in which some parts, values or settings differ.
  Run other;
  other.train(3);
  SECTION("other settings") {
    Checkpoint saved;
    saved.add("model", *other.net).add("ema", *other.net).value("step", other.step).value("loss", other.best);
    saved.setting("batch size", 32).save(path);
    CHECK_THROWS_AS(run.checkpoint.load(path), ValueError);
    refused(contains("setting 'batch size' is 32 in the file, 16 in this run") &&
            contains("the file has no part 'optimizer'") && contains("this run has no part 'ema'") &&
            contains("the file has no value 'note'") && contains("this run has no value 'loss'"));
  }
  /// A run's Checkpoint in which one part or one value is replaced by another.
  const auto save_with = [&](const char* changed, auto&& change) {
    Checkpoint saved;
    const auto is = [&](const char* name) { return std::string(changed) == name; };
    if (is("model")) change(saved);
    else saved.add("model", *other.net);
    if (is("optimizer")) change(saved);
    else saved.add("optimizer", other.adam);
    saved.add("generator", default_generator()).add("own", other.generator);
    saved.add("schedule", other.schedule).add("average", other.average);
    if (is("loss sum")) change(saved);
    else saved.add("loss sum", other.loss_sum);
    if (is("step")) change(saved);
    else saved.value("step", other.step);
    saved.value("best", other.best).value("note", other.note).setting("batch size", 16);
    saved.save(path);
  };
  SECTION("another optimizer") {
    optim::SGD sgd(other.net->parameters(), optim::SGDOptions(0.1));
    save_with("optimizer", [&](Checkpoint& saved) { saved.add("optimizer", sgd); });
    refused(contains("part 'optimizer' is gradus::optim::SGD in the file, gradus::optim::Adam in this run"));
  }
  SECTION("other shapes") {
    nn::Sequential net({{"fc1", nn::Linear(4, 9)}, {"fc2", nn::Linear(9, 3)}});
    save_with("model", [&](Checkpoint& saved) { saved.add("model", *net); });
    CHECK_THROWS_AS(run.checkpoint.load(path), ShapeError);
    refused(contains(": model]") && contains("'fc1.weight'") && contains("(9, 4)") && contains("(8, 4)"));
  }
  SECTION("missing and unexpected parameters") {
    nn::Sequential net({{"fc1", nn::Linear(4, 8)}, {"fc3", nn::Linear(8, 3)}});
    save_with("model", [&](Checkpoint& saved) { saved.add("model", *net); });
    refused(contains("missing keys: 'fc2.weight'") && contains("'fc3.weight'"));
  }
  SECTION("an optimizer of other parameters, after the model was read") {
    Net wide;
    wide->fc1 = wide->replace_module("fc1", nn::Linear(4, 7).ptr());
    optim::Adam adam(wide->fc1->parameters(), optim::AdamOptions(0.1));
    wide->fc1(rand({2, 4})).sum().backward();
    adam.step();
    save_with("optimizer", [&](Checkpoint& saved) { saved.add("optimizer", adam); });
    refused(contains(": optimizer]") && contains("state.0.exp_avg"));
  }
  SECTION("a tensor of another shape") {
    save_with("loss sum", [&](Checkpoint& saved) { saved.add("loss sum", zeros({2})); });
    refused(contains("'value' must have shape ()") && contains("(2"));
  }
  SECTION("a value of another type, read last") {
    std::string word = "many";
    save_with("step", [&](Checkpoint& saved) { saved.value("step", word); });
    refused(contains("value 'step' is not a number of its type: 'many'"));
  }
  SECTION("files that are no checkpoints") {
    save_safetensors(*other.net, path);
    refused(contains("contains tensors but is not a checkpoint"));
    CHECK_THROWS_WITH(Checkpoint::values_of(path), contains("contains tensors but is not a checkpoint"));
    std::filesystem::remove(path);
    CHECK_THROWS_AS(run.checkpoint.load(path), IoError);
    refused(contains("No such file"));
    io::write_file(path, "some text");
    refused(contains("is not a safetensors file"));
  }
  SECTION("other versions") {
    other.checkpoint.save(path);
    io::Safetensors file = io::load_safetensors_with_metadata(path);
    const auto save_again = [&] {
      io::save_safetensors(path, {file.tensors.begin(), file.tensors.end()}, file.metadata);
    };
    file.metadata["gradus:version"] = "99.1.0";
    save_again();
    CHECK_THROWS_AS(run.checkpoint.load(path), IoError);
    refused(contains("written by gradus 99.1.0, this is gradus " + version()));
    CHECK(Checkpoint::values_of(path)["step"] == "3");
    const io::Bytes bytes = io::read_file(path);
    CHECK_THROWS_WITH(run.checkpoint.from_bytes(bytes), contains("bytes of another process") && contains("99.1.0"));
    file.metadata["gradus:checkpoint"] = "2";
    save_again();
    refused(contains("has layout 2") && contains("reads layout 1"));
    file.metadata["gradus:checkpoint"] = "1";
    save_again();
    run.checkpoint.load(path, /*any_version=*/true);
    CHECK(run.step == 3);
  }
  SECTION("tensors of no part") {
    other.checkpoint.save(path);
    io::Safetensors file = io::load_safetensors_with_metadata(path);
    file.tensors["extra.weight"] = zeros({1}).array();
    io::save_safetensors(path, {file.tensors.begin(), file.tensors.end()}, file.metadata);
    refused(contains("this run has no tensor 'extra.weight'"));
    for (const char* name : {"own.extra", "loss sum.extra"}) {
      other.checkpoint.save(path);
      io::Safetensors with_extra = io::load_safetensors_with_metadata(path);
      with_extra.tensors[name] = zeros({1}).array();
      io::save_safetensors(path, {with_extra.tensors.begin(), with_extra.tensors.end()}, with_extra.metadata);
      refused(contains("the state has 1 entries that this"));
    }
  }
  SECTION("every truncation") {
    other.checkpoint.save(path);
    const io::Bytes whole = io::read_file(path);
    const std::string before = run.bytes(directory);
    for (size_t length = 0; length < whole.size(); length += length < 16 ? 1 : 397) {
      io::write_file(path, io::ByteSpan(whole.data(), length));
      CHECK_THROWS_AS(run.checkpoint.load(path), IoError);
    }
    const bool unchanged = run.bytes(directory) == before;
    CHECK(unchanged);
  }
}

TEST_CASE("invalid names of parts, values and settings are refused", "[checkpoint]") {
  Tensor x = zeros({2});
  int64_t step = 0;
  Checkpoint checkpoint;
  checkpoint.add("x", x).value("step", step).setting("lr", 0.1);
  CHECK_THROWS_WITH(checkpoint.add("x", x), contains("already has a part 'x'"));
  CHECK_THROWS_WITH(checkpoint.add("a.b", x), contains("without '.' and ':'"));
  CHECK_THROWS_WITH(checkpoint.add("", x), contains("needs a name"));
  CHECK_THROWS_WITH(checkpoint.value("step", step), contains("already has a value 'step'"));
  CHECK_THROWS_AS(checkpoint.setting("lr", 0.2), ValueError);
  CHECK_THROWS_WITH(checkpoint.setting("", 1), contains("needs a name"));
}

TEST_CASE("a value that cannot be read leaves all values as they were", "[checkpoint]") {
  const test::TemporaryDirectory directory;
  int count = 3;
  bool is_last = true;
  std::string text = "perhaps";
  Checkpoint().value("count", count).value("is last", text).save(directory.file("values"));
  count = 4;
  Checkpoint checkpoint;
  checkpoint.value("count", count).value("is last", is_last);
  CHECK_THROWS_WITH(checkpoint.load(directory.file("values")), contains("value 'is last' is not a number of its type"));
  CHECK(count == 4);
  CHECK(is_last);
}

TEST_CASE("the bytes of a checkpoint have the content of its file", "[checkpoint]") {
  int count = 3;
  Tensor x = arange(4);
  Checkpoint checkpoint;
  checkpoint.add("x", x).value("count", count);
  const std::vector<std::byte> bytes = checkpoint.to_bytes();
  x.zero_(), count = 0;
  checkpoint.from_bytes(bytes);
  CHECK(count == 3);
  CHECK(x.equal(arange(4)));
}

TEST_CASE("classes of a user can be parts of a checkpoint", "[checkpoint]") {
  const test::TemporaryDirectory directory;
  struct Counter {
    int64_t count = 0;
    State state_dict() const { return State({{"count", full({}, count, dtype(kLong))}}); }
    void load_state_dict(const State& state) { count = state["count"].item<int64_t>(); }
  };
  Counter saved{5}, loaded;
  double by_hand = 2.5, back = 0;
  const auto save = [&] { return State({{"number", full({}, by_hand, dtype(kDouble))}}); };
  const auto load = [&](const State& state) { back = state["number"].item<double>(); };
  Checkpoint().add("counter", saved).add("hand", "number", save, load).save(directory.file("own"));
  Checkpoint().add("counter", loaded).add("hand", "number", save, load).load(directory.file("own"));
  CHECK(loaded.count == 5);
  CHECK(back == 2.5);
}
