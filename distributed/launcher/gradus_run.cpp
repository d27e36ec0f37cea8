// gradus-run --nproc N [--nnodes M --node-rank K --rdzv host:port] [--max-restarts R] [--spares S]
//            [--min-nproc L] [--log-dir DIR] [--grace SECONDS] program arguments…
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include <gradus/core/error.h>
#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/launcher/launcher.h>

namespace {

/// For numbers: CLI11 takes an empty text for 0, and leaves out blanks. What is wrong; "" if nothing is.
std::string reject_blanks(const std::string& text) {
  const bool is_fine = !text.empty() && text.find_first_of(" \t\n\v\f\r") == std::string::npos;
  return is_fine ? "" : "'" + text + "' is no number";
}

/// A duration that an option gives in seconds.
gradus::Milliseconds milliseconds(const char* option, double seconds) {
  constexpr double kMost = std::chrono::duration<double>(gradus::kLongestWait).count();
  GRADUS_CHECK(0 <= seconds && seconds <= kMost, ValueError, option, " is ", seconds, ", not 0 to ", kMost,
               " seconds");  // NaN is not either
  return gradus::Milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace gradus::dist;
  LaunchOptions options;
  std::string rendezvous;
  double grace = 5;
  CLI::App app("Starts the processes of a job on this machine and looks after them");
  const std::string most_processes = std::to_string(kMaxRanksOfHost), most_ranks = std::to_string(kMaxRanks);
  const auto add_number = [&](const char* name, auto& number, const std::string& help) {
    return app.add_option(name, number, help)->check(reject_blanks);
  };
  add_number("--nproc", options.processes, "processes on this machine, with spares at most " + most_processes)
      ->capture_default_str();
  add_number("--nnodes", options.nodes,
             "machines, each with a launcher of its own; --nproc times this is at most " + most_ranks)
      ->capture_default_str();
  add_number("--node-rank", options.node_rank, "which of them this is")->capture_default_str();
  app.add_option("--rdzv", rendezvous, "host:port of machine 0, where all meet");
  add_number("--max-restarts", options.max_restarts, "how often all start again after one has failed")
      ->capture_default_str();
  add_number("--spares", options.spares,
             "more processes, which wait to take the place of a rank that dies; on one machine, and not for MPI's "
             "ranks, which mpirun starts")
      ->capture_default_str();
  add_number("--min-nproc", options.min_processes,
             "go on with so many ranks when one dies and no spare is left [--nproc]");
  app.add_option("--log-dir", options.log_directory, "a file for each process's output");
  add_number("--grace", grace, "seconds that ranks have to end when asked to, 0 or more")->capture_default_str();
  app.prefix_command();  // from the program's name on, all is the program's
  CLI11_PARSE(app, argc, argv);
  options.command = app.remaining();
  try {
    options.grace = milliseconds("--grace", grace);
    if (app.count("--rdzv") > 0) options.rendezvous = Address::parse(rendezvous);
    return launch(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradus-run: %s\n", error.what());
    return 2;
  }
}
