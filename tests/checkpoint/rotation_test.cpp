#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

#include <cmath>
#include <fstream>
#include <limits>

using namespace gradus;
using training::Rotation;
using training::RotationOptions;

namespace {

struct RotatedRun {
  Tensor weights = zeros({2});
  int64_t step = 0;
  training::Checkpoint checkpoint;
  RotatedRun() { checkpoint.add("weights", weights).value("step", step); }
  void go(Rotation& rotation, std::optional<double> figure = {}) {
    ++step;
    weights.fill_(step);
    rotation.save(step, figure);
  }
};

}  // namespace

TEST_CASE("a rotation keeps the latest checkpoint files and the best", "[rotation]") {
  const test::TemporaryDirectory directory;
  const std::string folder = directory.file("runs/a");
  RotatedRun run;
  Rotation rotation(run.checkpoint, folder, RotationOptions().keep_last(2));
  CHECK_FALSE(rotation.load_latest());
  CHECK_FALSE(rotation.load_best());
  for (double figure : {3.0, 1.0, 2.0, std::numeric_limits<double>::quiet_NaN()}) run.go(rotation, figure);
  for (int i = 0; i < 8; ++i) run.go(rotation);
  CHECK(rotation.files() == std::vector<std::string>{folder + "/step-11.safetensors", folder + "/step-12.safetensors"});
  std::ofstream(folder + "/step-99x.safetensors") << "not one of ours";
  std::ofstream(folder + "/step-.safetensors") << "nor this";
  std::ofstream(folder + "/step-99.txt") << "nor this";
  std::ofstream(folder + "/x") << "nor this";

  RotatedRun resumed;
  Rotation again(resumed.checkpoint, folder);
  REQUIRE(again.load_latest());
  CHECK(resumed.step == 12);
  CHECK(again.best_figure() == 1.0);
  resumed.go(again, 1.5);  // not better than the best figure
  REQUIRE(again.load_best());
  CHECK(resumed.step == 2);
  CHECK(resumed.weights.equal(full({2}, 2, dtype(kFloat))));
  CHECK(again.files().size() == 3);
  CHECK_THROWS_AS(again.save(-1), ValueError);
  RotatedRun other;
  Rotation in_file(other.checkpoint, folder + "/x/runs");  // x is a file
  CHECK_THROWS_WITH(in_file.save(1), test::contains("cannot make the folder '" + folder + "/x/runs'"));
}

TEST_CASE("the step of a checkpoint may be 0, before any training", "[rotation]") {
  const test::TemporaryDirectory directory;
  RotatedRun run;
  Rotation rotation(run.checkpoint, directory.path().string());
  rotation.save(0);
  run.step = 5;
  CHECK(rotation.load_latest());
  CHECK(run.step == 0);
}

TEST_CASE("a rotation with Mode::max keeps the file with the greatest figure", "[rotation]") {
  const test::TemporaryDirectory directory;
  RotatedRun run;
  Rotation rotation(run.checkpoint, directory.path().string(), RotationOptions().mode(training::Mode::max));
  for (double figure : {0.5, 0.9, 0.7}) run.go(rotation, figure);
  CHECK(rotation.load_best());
  CHECK(run.step == 2);
  training::Checkpoint other;
  CHECK_THROWS_AS(Rotation(other, "x", RotationOptions().keep_last(0)), ValueError);
  CHECK_NOTHROW(Rotation(other, "x", RotationOptions().keep_last(1)));
}
