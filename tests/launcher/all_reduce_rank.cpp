// A rank for launcher_test.py that repeats an all-reduce. In the first attempt of the job the last rank is killed
// meanwhile.
// usage: all_reduce_rank tcp|shm
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <gradus/distributed/distributed.h>
#include <gradus/gradus.h>

using namespace gradus;

int main(int, char** argv) {
  const bool first = std::atoi(std::getenv("TORCHELASTIC_RESTART_COUNT")) == 0;
  try {
    const auto group = dist::init_process_group({.backend = argv[1], .timeout = dist::Milliseconds(20'000)});
    if (first && group->rank() == group->size() - 1)
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        kill(getpid(), SIGKILL);
      }).detach();
    for (int i = 0; first || i < 20; ++i) {
      const Tensor x = ones({1 << 20});
      group->all_reduce(x.array());
      GRADUS_CHECK(x.equal(full({1 << 20}, static_cast<double>(group->size()))), Error, "wrong sum");
    }
    std::puts("the sums are right");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
