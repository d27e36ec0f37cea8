// gradus-run --nproc N [--nnodes M --node-rank K --rdzv host:port] [--max-restarts R] [--spares S]
//            [--min-nproc L] [--log-dir DIR] [--grace SECONDS] program arguments…
#include <CLI/CLI.hpp>
#include <cstdio>

#include <gradus/distributed/launcher/launcher.h>

int main(int argc, char** argv) {
  using namespace gradus::dist;
  LaunchOptions options;
  std::string rendezvous;
  double grace = 5;
  CLI::App app("Starts the processes of a job on this machine and looks after them");
  app.add_option("--nproc", options.processes, "processes on this machine")->capture_default_str();
  app.add_option("--nnodes", options.nodes, "machines, each with a launcher of its own")->capture_default_str();
  app.add_option("--node-rank", options.node_rank, "which of them this is")->capture_default_str();
  app.add_option("--rdzv", rendezvous, "host:port of machine 0, where all meet");
  app.add_option("--max-restarts", options.max_restarts, "how often all start again after one has failed")
      ->capture_default_str();
  app.add_option("--spares", options.spares,
                 "more processes, which wait to take the place of a rank that dies; on one machine, and not for MPI's "
                 "ranks, which mpirun starts")
      ->capture_default_str();
  app.add_option("--min-nproc", options.min_processes,
                 "go on with so many ranks when one dies and no spare is left [--nproc]");
  app.add_option("--log-dir", options.log_directory, "a file for each process's output");
  app.add_option("--grace", grace, "seconds that ranks have to end when asked to")->capture_default_str();
  app.prefix_command();  // from the program's name on, all is the program's
  CLI11_PARSE(app, argc, argv);
  options.command = app.remaining();
  options.grace = Milliseconds(static_cast<int64_t>(grace * 1000));
  try {
    if (!rendezvous.empty()) options.rendezvous = Address::parse(rendezvous);
    return launch(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradus-run: %s\n", error.what());
    return 2;
  }
}
