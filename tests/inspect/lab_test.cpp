// record_lab() records the numbers, names and memory of a step, and pages contain them. tests/lab shows the pages in a
// browser.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include <gradus/core/platform/file.h>
#include <gradus/distributed/comm/local/local_group.h>
#include <gradus/gradus.h>
#include <gradus/inspect/lab/lab.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using test::contains;
using training::LabRecording;

namespace {

const training::ExplainOptions kOneStep = training::ExplainOptions().warm_up(1).steps(1);

const LabRecording::Operand& lab_operand(const LabRecording& recording, size_t call, std::string_view name) {
  for (const LabRecording::Operand& operand : recording.calls.at(call).operands)
    if (operand.name == name) return operand;
  throw std::out_of_range(std::string(name));
}

/// What a page says: its HTML and the data in it.
struct Page {
  explicit Page(const std::string& path) {
    const io::Bytes bytes = io::read_file(path);
    html.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::string mark = "id=\"data\">";
    const size_t begin = html.find(mark) + mark.size();
    data = nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  }
  template <class Contents>
  explicit Page(const Contents& contents, const test::TemporaryDirectory& folder = {}) {
    write_lab(contents, folder.file("page.html"), "A <page>");
    *this = Page(folder.file("page.html"));
  }
  std::string text(const nlohmann::json& number) const { return data["texts"].at(number.get<size_t>()); }

  std::string html;
  nlohmann::json data;
};

/// A recording of `count` calls "exp", each with one kernel.
LabRecording made_recording(size_t count) {
  LabRecording recording;
  recording.explanation.calls.resize(count), recording.explanation.kernels.resize(count), recording.calls.resize(count);
  for (size_t i = 0; i < count; ++i) {
    recording.explanation.calls[i].op = "exp", recording.explanation.calls[i].name = "unary";
    recording.explanation.kernels[i].call = i;
  }
  return recording;
}

}  // namespace

TEST_CASE("a recording has the data, names and memory of a step", "[lab]") {
  nn::Linear layer(nn::LinearOptions(2, 1).bias(false));
  {
    NoGradGuard guard;
    layer->weight.copy_(tensor({{3.f, -0.5f}}));
  }
  optim::SGD sgd(layer->parameters(), optim::SGDOptions(0));
  const Tensor x = tensor({{1.f, 2.f}, {0.25f, 4.f}});
  const LabRecording recording = training::record_lab(
      [&] {
        sgd.zero_grad();
        layer->forward(x).sum().backward();
        sgd.step();
      },
      layer.ptr().get(), kOneStep);
  REQUIRE(recording.calls.size() == recording.explanation.calls.size());
  CHECK(recording.explanation.faster.empty());
  const auto& weight = lab_operand(recording, 0, "w");
  CHECK(weight.values == "3 -0.5");
  CHECK(weight.shape == Shape{1, 2});
  CHECK_FALSE(weight.is_written);
  CHECK(recording.blocks.at(weight.block).name == "weight");
  CHECK(recording.blocks.at(weight.block).from == recording.blocks.at(weight.block).to);  // not allocated by the step
  const auto& result = lab_operand(recording, 0, "y");
  CHECK(result.values == "2 -1.25");
  CHECK(result.is_written);
  const LabRecording::Block& block = recording.blocks.at(result.block);
  CHECK(block.bytes == 8);
  CHECK(block.made_by.starts_with("linear"));
  CHECK(recording.first_tick <= block.from);
  CHECK(block.from < block.to);
  CHECK(block.to <= recording.last_tick);

  const auto gradient = std::find_if(recording.blocks.begin(), recording.blocks.end(),
                                     [](const auto& one) { return one.name == "gradient of weight"; });
  REQUIRE(gradient != recording.blocks.end());
  CHECK(gradient->bytes == 8);

  // The input is saved for the gradient of the weight, with its current version.
  REQUIRE(recording.saved.size() == 1);
  CHECK(recording.saved[0].call == 0);
  CHECK(recording.saved[0].version == x.array().version());
  CHECK(recording.saved[0].block == lab_operand(recording, 0, "x").block);
}

TEST_CASE("an operand that a call writes is recorded with its values after the call", "[lab]") {
  const Tensor x = tensor({1.f, 2.f, 3.f});
  const LabRecording recording = training::record_lab([&] { x.mul_(-1); }, nullptr, kOneStep);
  REQUIRE(recording.calls.size() == 1);
  std::vector<std::string> values;
  for (const auto& operand : recording.calls[0].operands) values.push_back(operand.values);
  CHECK(std::set<std::string>(values.begin(), values.end()) == std::set<std::string>{"1 2 3", "-1 -2 -3"});
}

TEST_CASE("the first elements of large arrays and of views are kept", "[lab]") {
  const Tensor x = arange(0, 200, kFloat).reshape({100, 2});
  const LabRecording recording = training::record_lab([&] { (void)x.t().slice(1, 1, 100).neg(); }, nullptr, kOneStep);
  const auto& read = recording.calls.at(0).operands.at(0);
  CHECK(read.shape == Shape{2, 99});
  CHECK_THAT(read.values, contains("2 4 6 8"));
  CHECK(std::count(read.values.begin(), read.values.end(), ' ') == LabRecording::kValues - 1);
}

TEST_CASE("a page that cannot be written is an IoError", "[lab]") {
  const test::TemporaryDirectory folder;
  CHECK_THROWS_AS(write_lab(LabRecording(), folder.file("missing/page.html")), IoError);
}

TEST_CASE("elements of all types are recorded with the digits that determine them", "[lab]") {
  const std::vector<std::pair<Tensor, std::string>> cases = {
      {tensor({0.1, -2.0}, kDouble), "0.1 -2"},
      {tensor({0.1f, 1e30f, NAN, -INFINITY}), "0.1 1e+30 nan -inf"},
      {tensor({0.1f}).to(kHalf), "0.099975586"},
      {tensor({0.1f}).to(kDouble), "0.10000000149011612"},
      {arange(-1, 2, kLong), "-1 0 1"},
      {tensor({1.0f, 0.0f}) > 0, "1 0"},
      {arange(0, 6, kFloat).view({2, 3}).t(), "0 3 1 4 2 5"},
      {ones({3, 4}).slice(1, 0, 1), "1 1 1"}};
  const LabRecording recording = training::record_lab(
      [&] {
        for (const auto& [x, values] : cases) x.clone();
      },
      nullptr, kOneStep);
  REQUIRE(recording.calls.size() == cases.size());
  for (size_t i = 0; i < cases.size(); ++i) CHECK(recording.calls[i].operands.at(0).values == cases[i].second);
}

TEST_CASE("a recording names what its arrays are kept for, and the memory of the step", "[lab]") {
  nn::BatchNorm1d norm(4);
  const Tensor x = randn({8, 4}).requires_grad_();
  std::vector<Tensor> kept;
  const LabRecording recording = training::record_lab(
      [&] {
        x.mutable_grad() = Tensor();
        const Tensor y = norm->forward(x);
        const Tensor sum = y.exp().sum();
        sum.backward();
        const NoGradGuard no_grad;
        kept.push_back(x * 2);
      },
      norm.ptr().get(), kOneStep);
  std::set<std::string> names;
  for (const LabRecording::Block& block : recording.blocks) names.insert(block.name);
  for (const char* name : {"weight", "bias", "running_mean", "running_var", "gradient of weight", "gradient of bias"})
    CHECK(names.contains(name));

  // exp saves its result, after its call.
  size_t exp = 0;
  while (recording.explanation.calls.at(exp).op != "exp") ++exp;
  const auto saved = std::find_if(recording.saved.begin(), recording.saved.end(),
                                  [](const auto& one) { return one.kept_by.starts_with("exp"); });
  REQUIRE(saved != recording.saved.end());
  CHECK(saved->call == exp);
  CHECK(saved->shape == Shape{8, 4});
  CHECK(saved->block == lab_operand(recording, exp, "y").block);
  const LabRecording::Block& result = recording.blocks.at(saved->block);
  CHECK(result.made_by.starts_with("exp, lab_test.cpp:"));
  CHECK(result.until.ends_with(", backward"));
  CHECK(result.bytes == 128);

  // Of the kept tensors, only that of the last step has a block that begins in the step; it lasts until the end.
  int alive = 0;
  for (const LabRecording::Block& block : recording.blocks) {
    CHECK(block.from <= block.to);
    if (!block.made_by.starts_with("mul")) continue;
    alive += block.to == recording.last_tick;
    CHECK(block.from >= recording.first_tick);
    CHECK(block.to <= recording.last_tick);
  }
  CHECK(alive == 3);
  for (size_t i = 1; i < recording.calls.size(); ++i) CHECK(recording.calls[i].tick >= recording.calls[i - 1].tick);
  CHECK(recording.calls[0].tick >= recording.first_tick);
  CHECK(recording.first_tick > 0);  // the steps before it were watched as well
  CHECK(recording.calls.back().tick <= recording.last_tick);
}

TEST_CASE("a recording names a net's arrays that have elements, be it one", "[lab]") {
  struct Net : nn::Module {
    Tensor scale = register_parameter("scale", ones({1})), none = register_parameter("none", zeros({0}));
    Tensor count = register_buffer("count", zeros({})), nothing = register_buffer("nothing", zeros({2, 0}));
  } net;
  net.scale.mutable_grad() = ones({1});
  const LabRecording recording = training::record_lab([&] { net.scale.detach() * 2; }, &net, kOneStep);
  std::vector<std::string> names;
  for (const LabRecording::Block& block : recording.blocks)
    if (!block.name.empty()) names.push_back(block.name);
  CHECK(names == std::vector<std::string>{"scale", "gradient of scale", "count"});
  CHECK(lab_operand(recording, 0, "a").block == 0);
}

TEST_CASE("an array that is saved before a call belongs to it, although the call before is of the same line", "[lab]") {
  const Tensor a = rand({3}).requires_grad_(), b = rand({3}).requires_grad_(), c = rand({3}).requires_grad_();
  const LabRecording recording = training::record_lab(
      [&] {
        for (const Tensor& x : {a, b, c}) x.log();  // saves x
      },
      nullptr, kOneStep);
  REQUIRE(recording.saved.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(recording.saved[i].call == i);
    CHECK(recording.saved[i].block == lab_operand(recording, i, "x").block);
  }
}

TEST_CASE("a recording leaves out saved arrays without elements", "[lab]") {
  const auto saved_by = [](const Shape& shape) {
    const Tensor x = randn(shape).requires_grad_();
    return training::record_lab([&] { x.exp().sum().backward(); }, nullptr, kOneStep).saved.size();
  };
  CHECK(saved_by({2, 3}) == 1);
  CHECK(saved_by({0, 3}) == 0);
}

TEST_CASE("a step's page has its calls, operands, blocks and saved arrays", "[lab]") {
  LabRecording recording = made_recording(2);
  auto& explanation = recording.explanation;
  explanation.step_seconds = 0.25;
  explanation.notes = {"</script><b>"};
  auto& call = explanation.calls[0];
  call.origin.module = "net.0", call.origin.where = {"/folder/train.cpp", 41}, call.seconds = 0.0012345678;
  explanation.calls[1].backward = true, explanation.calls[1].op = "Exp", explanation.calls[1].origin.module = "net.0";
  auto& kernels = explanation.kernels;
  kernels.resize(3);
  kernels[0].backend = "openmp", kernels[0].implementation = "loops", kernels[0].reason = "small";
  kernels[1].call = 0, kernels[1].backend = "naive", kernels[1].implementation = "copy";
  kernels[2].call = 2;  // there is no such call
  recording.calls[0].tick = 5;
  recording.calls[0].operands = {{"x", 1, DType::f32, {2}, false, "1 2"}, {"y", 0, DType::i64, {}, true, "3"}};
  recording.blocks = {{"weight", "", "", 8, 0, 0}, {"", "exp of net.0", "sum", 12, 4, 9}, {"scratch", "", "", 4, 4, 5}};
  recording.saved = {{0, 1, {2}, "exp of net.0", 6}, {1, 0, {}, "sum", 0}, {2, 0, {}, "never", 0}};
  recording.first_tick = 3, recording.last_tick = 11;

  const Page page(recording);
  const nlohmann::json& data = page.data;
  CHECK_THAT(page.html,
             contains("<title>A &lt;page&gt;</title>") && contains("net.0: exp") && contains("\\u003c/script"));
  CHECK(data["kind"] == "step");
  CHECK(data["left_out"] == 0);
  CHECK(data["ticks"] == nlohmann::json({3, 11}));
  CHECK(data["step_ms"] == 250.0);
  CHECK(data["notes"] == nlohmann::json({"</script><b>"}));
  REQUIRE(data["calls"].size() == 2);
  const nlohmann::json& row = data["calls"][0];
  CHECK(page.text(row[0]) == "exp");
  CHECK(page.text(row[1]) == "net.0");
  CHECK(page.text(row[2]) == "unary");
  CHECK(page.text(row[3]) == "train.cpp:41");
  CHECK(page.text(row[4]) == "openmp: loops (small), naive: copy");
  CHECK(row[5] == 0);
  CHECK(row[6] == 1234.568);  // microseconds
  CHECK(row[7] == 5);
  CHECK(row[8] == 0);
  CHECK(row[9] == 2);
  REQUIRE(row[10].size() == 2);
  const auto operand = [&](size_t i) {
    const nlohmann::json& one = row[10][i];
    return page.text(one[0]) + "|" + one[1].dump() + "|" + page.text(one[2]) + "|" + one[3].dump() + "|" +
           page.text(one[4]);
  };
  CHECK(operand(0) == "x|1|float32 (2,)|0|1 2");
  CHECK(operand(1) == "y|0|int64 ()|1|3");
  const nlohmann::json& second = data["calls"][1];
  CHECK(page.text(second[3]).empty());
  CHECK(second[5] == 1);
  CHECK(second[8] == 0);  // the box of the forward call
  CHECK(second[9] == 0);
  REQUIRE(data["saved"].size() == 2);
  CHECK(data["saved"][0][0] == 0);
  CHECK(data["saved"][0][1] == 1);
  CHECK(page.text(data["saved"][0][2]) == "(2,)");
  CHECK(page.text(data["saved"][0][3]) == "exp of net.0");
  CHECK(data["saved"][0][4] == 6);
  CHECK(data["saved"][1][0] == 1);
  REQUIRE(data["blocks"].size() == 3);  // also the one that no operand names
  const nlohmann::json& block = data["blocks"][1];
  CHECK(page.text(block[0]).empty());
  CHECK(page.text(block[1]) == "exp of net.0");
  CHECK(page.text(block[2]) == "sum");
  CHECK(block[3] == 12);
  CHECK(block[4] == 4);
  CHECK(block[5] == 9);
  const auto& texts = data["texts"];
  CHECK(std::set<std::string>(texts.begin(), texts.end()).size() == texts.size());  // each is stored once
}

TEST_CASE("a page shows calls whose operands were not recorded", "[lab]") {
  LabRecording recording = made_recording(2);
  for (LabRecording::Call& call : recording.calls) call.tick = 77;
  recording.calls.resize(1);
  const nlohmann::json calls = Page(recording).data["calls"];
  REQUIRE(calls.size() == 2);
  CHECK(calls[0][7] == 77);
  CHECK(calls[1][7] == 0);
  CHECK(calls[1][9] == 0);
}

TEST_CASE("a step's page leaves out what does not fit, and says how much", "[lab]") {
  LabRecording many = made_recording(1);
  many.calls[0].operands.assign(30, {"x", 0, DType::f32, {2}, false, "1 2"});
  const nlohmann::json row = Page(many).data["calls"][0];
  CHECK(row[9] == 30);
  CHECK(row[10].size() == 24);

  CHECK(lab_page_bytes == 24 << 20);  // and small pages show how the limit is kept
  const ScopedValue<size_t> smaller(lab_page_bytes, 24 << 10);
  // Elements are left out after 4 KiB of texts.
  const auto values_of_second = [](size_t length) {
    LabRecording long_values = made_recording(1);
    long_values.calls[0].operands = {{"x", 0, DType::f32, {2}, false, std::string(length, '1')},
                                     {"y", 0, DType::f32, {2}, false, "1 2"}};
    const Page page(long_values);
    return page.text(page.data["calls"][0][10][1][4]);
  };
  // The texts before are "x", "float32 (2,)" and the long one. A text counts as four bytes more than it has.
  CHECK(values_of_second((4 << 10) - 26) == "1 2");
  CHECK(values_of_second((4 << 10) - 25).empty());

  // Calls are left out after 24 KiB, of texts or of rows.
  LabRecording long_texts = made_recording(30);
  for (size_t i = 0; i < 30; ++i) long_texts.explanation.kernels[i].reason = std::to_string(i) + std::string(960, 'x');
  long_texts.saved = {{0, 0, {1}, "a", 0}, {23, 0, {1}, "b", 0}, {24, 0, {1}, "c", 0}};
  const Page texts(long_texts);
  CHECK(texts.data["calls"].size() == 24);
  CHECK(texts.data["left_out"] == 6);
  CHECK(texts.data["saved"].size() == 2);
  const auto calls_after = [](size_t length) {  // the texts of the first call have 29 bytes and these, its row has 60
    LabRecording two = made_recording(2);
    two.explanation.kernels[0].reason = std::string(length, 'x');
    return Page(two).data["calls"].size();
  };
  CHECK(calls_after((24 << 10) - 90) == 2);
  CHECK(calls_after((24 << 10) - 89) == 1);
  LabRecording rows = made_recording(1000);
  for (LabRecording::Call& call : rows.calls) call.operands.assign(24, {"x", 0, DType::f32, {2}, false, "1 2"});
  for (size_t i = 0; i < rows.calls.size(); ++i) rows.saved.push_back({i, 0, {1}, "a", 0});
  // A row counts as 60 bytes, an operand and a saved array as 64. The texts have 67.
  lab_page_bytes = 600 * (60 + 24 * 64 + 64) + 67;
  const Page long_page(rows);
  CHECK(long_page.data["calls"].size() == 600);
  CHECK(long_page.data["left_out"] == 400);
  CHECK(long_page.data["saved"].size() == 600);
  CHECK(long_page.html.size() < 1'187'000);
  ++lab_page_bytes;
  CHECK(Page(rows).data["calls"].size() == 601);
  for (size_t i = 0; i < rows.calls.size(); ++i) rows.explanation.calls[i].name = std::to_string(10'000 + i);
  lab_page_bytes = 600 * (60 + 24 * 64 + 64 + 9) + 58;  // a new text counts as four bytes more than it has
  CHECK(Page(rows).data["calls"].size() == 600);
  ++lab_page_bytes;
  CHECK(Page(rows).data["calls"].size() == 601);

  // All blocks up to the last one that a row shows, and at least the first 65,536.
  const auto blocks_of = [](size_t count, size_t operand, size_t saved) {
    LabRecording blocks = made_recording(1);
    blocks.blocks.resize(count);
    blocks.calls[0].operands = {{"x", operand, DType::f32, {2}, false, ""}, {"y", 1, DType::f32, {2}, true, ""}};
    blocks.saved = {{0, saved, {2}, "exp", 0}, {0, 1, {2}, "exp", 0}};
    return Page(blocks).data["blocks"].size();
  };
  CHECK(blocks_of(10, 5, 7) == 10);
  CHECK(blocks_of(65'540, 5, 7) == 65'536);
  CHECK(blocks_of(65'550, 65'540, 7) == 65'541);
  CHECK(blocks_of(65'550, 5, 65'542) == 65'543);

  LabRecording boxes = made_recording(1001);
  for (size_t i = 0; i < 1001; ++i) boxes.explanation.calls[i].op = "op" + std::to_string(i);
  const Page undrawn(boxes);
  CHECK_THAT(undrawn.html, contains("<p>The net has more parts than can be drawn.</p>"));
  CHECK(undrawn.data["calls"].size() == 1001);
}

TEST_CASE("a page of messages has their ends, texts and elements", "[lab]") {
  const float numbers[] = {1, -0.5f};
  dist::MessageLog log;
  log.ranks = 3;
  dist::MessageLog::Event event;
  event.kind = dist::MessageLog::Event::Kind::receives;
  event.rank = 1, event.peer = 2, event.message = 4, event.text = "send <x>", event.dtype = DType::f32,
  event.bytes = 40;
  event.body.resize(sizeof numbers);
  std::memcpy(event.body.data(), numbers, sizeof numbers);
  log.events = {event};
  const Page page(log);
  CHECK(page.data["kind"] == "messages");
  CHECK(page.data["ranks"] == 3);
  CHECK(page.data["left_out"] == 0);
  const nlohmann::json& row = page.data["events"].at(0);
  CHECK(row[0] == 1);
  CHECK(row[1] == 1);
  CHECK(row[2] == 2);
  CHECK(row[3] == 4);
  CHECK(page.text(row[4]) == "send <x>");
  CHECK(row[5] == 40);
  CHECK(page.text(row[6]) == "float32 (10,)");
  CHECK(page.text(row[7]) == "1 -0.5");

  const ScopedValue<size_t> smaller(lab_page_bytes, 24 << 10);
  log.events.assign(30, event);
  for (size_t i = 0; i < 30; ++i) log.events[i].text = std::to_string(i) + std::string(940, 'x');
  const Page cut(log);
  CHECK(cut.data["events"].size() == 24);
  CHECK(cut.data["left_out"] == 6);
  // The first event has 31 bytes of texts and these, its row has 96.
  const auto events_after = [&](size_t length) {
    log.events.assign(2, event);
    log.events[0].text = std::string(length, 'x');
    return Page(log).data["events"].size();
  };
  CHECK(events_after((24 << 10) - 127) == 2);
  CHECK(events_after((24 << 10) - 126) == 1);
}
