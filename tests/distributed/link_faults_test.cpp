// Ranks on different hosts, whose connecting cable is pulled. Each rank is a thread in its own network namespace.
// Making a namespace needs root; without root the tests are skipped with a message.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <future>

#include <gradus/distributed/comm/tcp/tcp_group.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/ranks.h>
#include <gradus/tests/distributed/training.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

constexpr const char* kAddresses[] = {"10.97.0.1", "10.97.0.2"};

/// Runs ip(8) in the network namespace of the calling thread.
bool run_ip(const std::string& arguments) { return std::system(("ip " + arguments + " 2> /dev/null").c_str()) == 0; }

/// Whether this process may make network namespaces, and has what makes cables in them: veth devices and ip(8).
bool can_make_hosts() {
  bool can = false;
  std::thread([&] {
    can = unshare(CLONE_NEWNET) == 0 && run_ip("link add gradus0 type veth peer name gradus1");
  }).join();
  return can;
}

/// Runs two ranks on two hosts with a cable. The namespaces end with their threads.
std::vector<RankResult> run_on_two_hosts(const std::function<void(ProcessGroup&)>& body, const TcpOptions& options) {
  HashStore store;
  std::vector<RankResult> results(2);
  std::promise<std::string> host_of_1;
  std::promise<void> cable;
  const auto rank = [&](int number) {
    RankResult& result = results[static_cast<size_t>(number)];
    try {
      GRADUS_CHECK(unshare(CLONE_NEWNET) == 0, CommError, "no namespace");
      const std::string own =
          "/proc/" + std::to_string(getpid()) + "/task/" + std::to_string(syscall(SYS_gettid)) + "/ns/net";
      if (number == 1) {
        host_of_1.set_value(own);
        cable.get_future().wait();
      } else {
        const bool made = run_ip("link add cable type veth peer name cable netns " + host_of_1.get_future().get());
        cable.set_value();
        GRADUS_CHECK(made, CommError, "no cable");
      }
      const std::string address = kAddresses[number];
      GRADUS_CHECK(run_ip("addr add " + address + "/24 dev cable") && run_ip("link set cable up"), CommError,
                   "no address");
      TcpOptions own_options = options;
      own_options.host = address;
      TcpGroup group(store, number, 2, own_options);
      body(group);
    } catch (const CollectiveError& error) {
      result = {error.status(), error.what()};
    } catch (const std::exception& error) { result.error = error.what(); }
  };
  std::thread first(rank, 0), second(rank, 1);
  first.join();
  second.join();
  return results;
}

void reduce(ProcessGroup& group, int times) {
  const Array x = Array::empty({20'000}, DType::f32);
  for (int i = 0; i < times; ++i) {
    std::fill_n(x.data<float>(), x.numel(), static_cast<float>(group.rank() + 1));
    group.all_reduce(x);
    if (x.data<float>()[19'999] != 3) throw ValueError("a wrong sum");
  }
}

}  // namespace

TEST_CASE("a link that fails is noticed by the deadline on both sides", "[faults]") {
  if (!can_make_hosts() && skip("network namespaces")) return;
  const auto what = GENERATE(as<std::string>(), "down", "one way", "down for a while");
  const bool trains = GENERATE(false, true);
  CAPTURE(what, trains);
  const Milliseconds timeout(what == "down for a while" ? 10'000 : 300);
  const auto results = run_on_two_hosts(
      [&](ProcessGroup& group) {
        reduce(group, 10);
        group.barrier();
        group.set_timeout(timeout);
        if (group.rank() == 0) {
          // One way: frames go to an Ethernet address that no host has, while those of the other direction still
          // arrive.
          const bool cut = what == "one way"
                               ? run_ip("neigh replace 10.97.0.2 lladdr 02:00:00:00:00:99 dev cable nud permanent")
                               : run_ip("link set cable down");
          GRADUS_CHECK(cut, CommError, "the link holds");
          if (what == "down for a while") {
            std::this_thread::sleep_for(Milliseconds(100));
            run_ip("link set cable up");
          }
        }
        trains ? train(group, 10) : reduce(group, 10);
      },
      {.token = Token::random(), .timeout = Milliseconds(10'000)});
  for (int rank : {0, 1}) {
    const RankResult& result = results[static_cast<size_t>(rank)];
    if (what == "down for a while") {
      CHECK(result.error == "");
      continue;
    }
    CHECK(result.status.failure == CommFailure::timeout);
    if (what == "down") CHECK(result.status.rank == 1 - rank);
    CHECK_THAT(result.error, contains("waited 300 ms for rank"));
  }
}
