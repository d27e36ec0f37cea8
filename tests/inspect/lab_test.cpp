// record_lab() records the numbers, names and memory of a step. tests/lab tests the pages.
#include <algorithm>
#include <set>

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
