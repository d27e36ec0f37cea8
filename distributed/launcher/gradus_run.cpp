// gradus-run --nproc N [--nnodes M --node-rank K --rdzv host:port] [--max-restarts R] [--spares S]
//            [--min-nproc L] [--log-dir DIR] [--grace SECONDS] program arguments…
#include <CLI/CLI.hpp>
#include <cstdio>

#include <gradus/distributed/comm/process_group.h>
#include <gradus/distributed/launcher/launcher.h>

namespace {

/// Returns an error message if the text of a number is empty or has blanks, which CLI11 would accept; otherwise "".
std::string reject_blanks(const std::string& text) {
  const bool is_fine = !text.empty() && text.find_first_of(" \t\n\v\f\r") == std::string::npos;
  return is_fine ? "" : "'" + text + "' is not a number";
}

}  // namespace

// Only the definitions of the options are outside of `try`. They throw only if they are wrong themselves.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  using namespace gradus::dist;
  LaunchOptions options;
  std::string rendezvous;
  double grace = 5;
  CLI::App app("Starts the processes of a job on this machine and supervises them");
  const std::string most_processes = std::to_string(kMaxRanksOfHost), most_ranks = std::to_string(kMaxRanks);
  const auto add_number = [&](const char* name, auto& number, const std::string& help) {
    return app.add_option(name, number, help)->check(reject_blanks)->capture_default_str();
  };
  add_number("--nproc", options.processes, "number of ranks on this machine; with spares at most " + most_processes);
  add_number("--nnodes", options.nodes,
             "number of machines, each with its own launcher; --nproc times --nnodes is at most " + most_ranks);
  add_number("--node-rank", options.node_rank, "number of this machine, counted from 0");
  app.add_option("--rdzv", rendezvous, "host:port of machine 0, where all launchers meet");
  add_number("--max-restarts", options.max_restarts, "how many times all ranks may be restarted after a failure");
  add_number("--spares", options.spares,
             "number of additional processes that wait to replace a rank that dies; only for jobs on one machine, and "
             "not with the backend mpi");
  app.add_option("--min-nproc", options.min_processes,
                 "smallest number of ranks with which the job continues if no spare is left [--nproc]")
      ->check(reject_blanks);
  app.add_option("--log-dir", options.log_directory, "directory in which the output of each process is logged");
  add_number("--grace", grace, "seconds that ranks may take to end after SIGTERM, 0 or more");
  app.prefix_command();  // the program's name and everything after it are not parsed
  CLI11_PARSE(app, argc, argv);
  options.command = app.remaining();
  try {
    constexpr double kMost = std::chrono::duration<double>(gradus::kLongestWait).count();
    GRADUS_CHECK(0 <= grace && grace <= kMost, ValueError, "--grace is ", grace, ", not 0 to ", kMost,
                 " seconds");  // also fails for NaN
    options.grace = gradus::Milliseconds(static_cast<int64_t>(grace * 1000));
    if (app.count("--rdzv") > 0) options.rendezvous = Address::parse(rendezvous);
    return launch(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradus-run: %s\n", error.what());
    return 2;
  }
}
