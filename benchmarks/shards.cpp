// Measures the bytes per second from tar shards in several folders. Each folder has a limited rate, like a disk: the
// files are in the page cache, and the layer that reads files sleeps to keep to the limit.
//
//   shards --rate 100 --json results.jsonl
#include <cstdio>
#include <filesystem>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/gradus.h>
#include <gradus/tests/file_faults.h>
#include <gradus/tests/temporary_directory.h>

using namespace gradus;

namespace {

// Returns the megabytes of fields per second that a loader reads in batches of 64.
double measure(const std::vector<std::string>& folders) {
  const data::datasets::TarShards shards(folders);
  auto loader = data::make_data_loader(shards, shards.sampler(), data::DataLoaderOptions(64));
  double bytes = 0;
  const double start = benchmarks::now_ms();
  for (auto& batch : *loader)
    for (const data::TarSample& sample : batch) bytes += static_cast<double>(sample.fields.at("jpg").size());
  return bytes / 1e3 / (benchmarks::now_ms() - start);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<size_t> counts = {1, 2, 4};
  double rate = 100;
  int64_t megabytes = 100, kilobytes = 100;
  int rounds = 5;
  benchmarks::Program program("shards", "Times the reading of tar shards from several folders");
  program.option("--folders", counts, "numbers of folders to measure");
  program.option("--rate", rate, "limit of the megabytes per second that are read from a folder; 0: no limit");
  program.option("--megabytes", megabytes, "size of the 4 shards of each folder together");
  program.option("--kilobytes", kilobytes, "size of a sample");
  program.option("--rounds", rounds, "number of rounds, whose median is printed");
  program.json_option();
  return program.run(argc, argv, [&] {
    const std::string sample(static_cast<size_t>(kilobytes) * 1000, 'x');
    std::optional<test::ReadLimit> limit;
    if (rate > 0) limit.emplace(rate * 1e6);
    double one = 0;
    std::printf("%8s %10s %10s\n", "folders", "MB/s", "of one");
    for (const size_t count : counts) {
      const test::TemporaryDirectory directory;
      std::vector<std::string> folders;
      for (size_t i = 0; i < count; ++i) {
        folders.push_back(directory.file(std::to_string(i)));
        std::filesystem::create_directory(folders.back());
        for (int shard = 0; shard < 4; ++shard) {
          io::TarWriter tar(folders.back() + "/" + std::to_string(4 * i) + "-" + std::to_string(shard) + ".tar");
          for (int64_t at = 0; at < megabytes * 250 / kilobytes; ++at) tar.add(std::to_string(at) + ".jpg", sample);
          tar.commit();
        }
      }
      std::vector<double> speeds;
      for (int round = 0; round < rounds; ++round) speeds.push_back(measure(folders));
      const double speed = benchmarks::median(speeds);
      if (one == 0) one = speed / static_cast<double>(count);
      std::printf("%8zu %10.1f %10.2f\n", count, speed, speed / one);
      program.record({{"folders", count},
                      {"rate_mb_s", rate},
                      {"sample_kb", kilobytes},
                      {"version", version()},
                      {"mb_s", speed},
                      {"of_one", speed / one}});
    }
  });
}
