// Tests Interrupt, which catches Ctrl-C.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <gradus/core/error.h>
#include <gradus/tests/catch.h>
#include <gradus/training/stopping.h>

using gradus::ValueError;
using gradus::training::Interrupt;

namespace {

/// Runs `body` in another process, without its messages, and returns how the process ended.
template <class Body>
int status_of(const Body& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!freopen("/dev/null", "w", stderr)) _exit(99);
    signal(SIGINT, SIG_DFL);  // replaces Catch2's handlers
    signal(SIGTERM, SIG_DFL);
    body();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("the first signal is noted, the second ends the process", "[interrupt]") {
  const int first = GENERATE(SIGINT, SIGTERM), second = GENERATE(SIGINT, SIGTERM);
  const int once = status_of([&] {
    const Interrupt interrupt;
    if (interrupt.requested()) _exit(1);
    raise(first);
    if (!interrupt.requested() || interrupt.signal() != first) _exit(2);
    _exit(interrupt.exit_code());
  });
  CHECK(WIFEXITED(once));
  CHECK(WEXITSTATUS(once) == 128 + first);
  const int twice = status_of([&] {
    const Interrupt interrupt;
    raise(first);
    raise(second);
    _exit(3);
  });
  CHECK(WIFSIGNALED(twice));
  CHECK(WTERMSIG(twice) == second);
}

TEST_CASE("an Interrupt says how to quit, and a later one starts without a signal", "[interrupt]") {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const int status = status_of([&] {
    if (dup2(pipe_ends[1], STDERR_FILENO) < 0) _exit(1);
    {
      const Interrupt first;
      raise(SIGTERM);
    }
    const Interrupt second;
    _exit(second.requested() ? 2 : 0);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  char text[200] = {};
  REQUIRE(close(pipe_ends[1]) == 0);
  CHECK(read(pipe_ends[0], text, sizeof text - 1) > 0);
  CHECK_THAT(text, gradus::test::contains("interrupt again to quit"));
  close(pipe_ends[0]);
}

TEST_CASE("of two signals that arrive at the same time, one ends the process", "[interrupt]") {
  const int status = status_of([] {
    const Interrupt interrupt;
    sigset_t both, before;
    sigemptyset(&both);
    sigaddset(&both, SIGINT), sigaddset(&both, SIGTERM);
    sigprocmask(SIG_BLOCK, &both, &before);
    raise(SIGINT), raise(SIGTERM);
    sigprocmask(SIG_SETMASK, &before, nullptr);
  });
  CHECK(WIFSIGNALED(status));
}

TEST_CASE("after an Interrupt, signals do what they did before it", "[interrupt]") {
  const int status = status_of([] {
    { const Interrupt interrupt; }
    raise(SIGINT);
    _exit(4);
  });
  CHECK(WIFSIGNALED(status));
  const int ignored = status_of([] {
    signal(SIGINT, SIG_IGN);  // as under nohup
    const Interrupt interrupt;
    raise(SIGINT);
    if (interrupt.requested()) _exit(5);
    raise(SIGTERM);
    _exit(interrupt.requested() ? 0 : 6);
  });
  CHECK(WIFEXITED(ignored));
  CHECK(WEXITSTATUS(ignored) == 0);
}

TEST_CASE("a second Interrupt is an error", "[interrupt]") {
  {
    const Interrupt interrupt;
    CHECK_THROWS_AS(Interrupt(), ValueError);
    CHECK_FALSE(interrupt.requested());
  }
  CHECK_NOTHROW(Interrupt());
}

TEST_CASE("a signal neither breaks off a read nor clears errno", "[interrupt]") {
  const int status = status_of([] {
    const Interrupt interrupt;
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) _exit(7);
    const pid_t parent = getpid(), writer = fork();
    if (writer == 0) {
      usleep(20000);
      kill(parent, SIGINT);
      usleep(20000);
      _exit(write(pipe_ends[1], "x", 1) == 1 ? 0 : 1);
    }
    char byte = 0;
    if (read(pipe_ends[0], &byte, 1) != 1 || byte != 'x') _exit(8);
    _exit(interrupt.requested() ? 0 : 9);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
