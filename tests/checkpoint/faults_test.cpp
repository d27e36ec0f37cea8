// Saves a checkpoint file while the disk fails or the process dies. After that, either the old or the new file can be
// loaded, and the next save leaves no temporary files.
#include <sys/wait.h>

#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/file_faults.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;
using test::FileFaults;
using training::Checkpoint;

namespace {

/// A model, its optimizer and a counter. The state of each of them shows how many steps were made.
struct CountedRun {
  nn::Linear net{3, 2};
  optim::Adam adam{net->parameters(), optim::AdamOptions(0.01)};
  int64_t step = 0;
  Checkpoint checkpoint;
  CountedRun() { checkpoint.add("model", *net).add("optimizer", adam).value("step", step); }
  void train() {
    adam.zero_grad();
    net(ones({2, 3})).sum().backward();
    adam.step();
    ++step;
  }
};

/// Loads the checkpoint file, checks that all its parts are from the same step, and returns this step.
int64_t step_in(const std::string& path) {
  CountedRun run;
  run.checkpoint.load(path);
  CHECK(run.adam.state_dict()["state.0.step"].item<double>() == static_cast<double>(run.step));
  return run.step;
}

}  // namespace

TEST_CASE("a fault at any system call of a save leaves a whole checkpoint", "[checkpoint]") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("run");
  CountedRun run;
  run.train();
  run.checkpoint.save(path);
  size_t calls = 0;
  {
    const FileFaults faults;
    run.checkpoint.save(path);
    calls = FileFaults::calls().size();
  }
  REQUIRE(calls > 10);
  const int error = GENERATE(EIO, ENOSPC, FileFaults::kShort, FileFaults::kDie);
  for (size_t at = 0; at < calls; ++at) {
    INFO("call " << at << ", error " << error);
    const int64_t old_step = run.step;
    run.train();
    bool failed = false;
    if (error == FileFaults::kDie) {
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        const FileFaults faults(static_cast<int>(at), error);
        run.checkpoint.save(path);
        _exit(0);
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == FileFaults::kExitCode));
      failed = true;
    } else {
      const FileFaults faults(static_cast<int>(at), error);
      try {
        run.checkpoint.save(path);
      } catch (const IoError&) { failed = true; }
      CHECK(directory.count() == 1);
    }
    const int64_t found = step_in(path);
    CHECK((found == run.step || (failed && found == old_step)));
    run.checkpoint.save(path);
    CHECK(step_in(path) == run.step);
    CHECK(directory.count() == 1);
  }
}
