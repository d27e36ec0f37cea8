// A ladder of matrix products, from three loops to all cores. Checks each rung against the first one and times it. For
// comparison, prints the limit of the machine (the roofline) and, if CMake found it, the time of OpenBLAS.
// benchmarks/ladders/gemm_cpu/rungs.h has the rungs, docs/cpu_kernels.md explains them.
//
//   gemm_cpu --size 1024 --threads 2 --json ladder.json
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>

#include <nlohmann/json.hpp>

#include <gradus/backends/openmp/openmp.h>
#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/ladders/cpu/roofline.h>
#include <gradus/benchmarks/ladders/gemm_cpu/peer.h>
#include <gradus/benchmarks/ladders/gemm_cpu/rungs.h>
#include <gradus/core/registry.h>
#include <gradus/core/version.h>

namespace {

using namespace gradus;
using namespace gradus::ladders;
using benchmarks::best_seconds, benchmarks::Program;
using nlohmann::json;

using Product = std::function<void(int64_t n, const float* a, const float* b, float* c)>;

struct Rung {
  std::string name;
  int threads;
  Product product;
  double flops_per_byte;  // bytes that the core loads, from any level of the memory
};

// Returns the operations per byte that the inner loop loads. A step of a tile of C loads rows + columns elements for 2
// rows columns operations.
double tile_intensity(double rows, double columns) { return 2 * rows * columns / (4 * (rows + columns)); }

void backend_product(int64_t n, const float* a, const float* b, float* c) {
  const Shape shape{n, n};
  const auto view = [&](const float* data) {
    View v;
    v.shape = shape, v.strides = {n, 1}, v.data = data;
    return v;
  };
  MutableView y;
  y.shape = shape, y.strides = {n, 1}, y.data = c;
  backend("openmp").matmul(view(a), view(b), y, /*accumulate=*/false);
}

std::vector<Rung> ladder(int threads) {
  const double tile = tile_intensity(kTileRows, kTileColumns);
  std::vector<Rung> rungs = {{"naive", 1, naive, 2.0 / 8},
                             {"interchanged", 1, interchanged, 2.0 / 8},  // a product loads two elements
                             {"blocked", 1, blocked, 8.0 / 20},           // four products load five elements
                             {"vector", 1, vector, tile},
                             {"packed", 1, packed, tile},
                             {"parallel", threads, parallel, tile},
                             {"gradus", 1, backend_product, 0},
                             {"gradus", threads, backend_product, 0}};
  if (peer_name())
    for (int count : {1, threads})
      rungs.push_back({peer_name(), count,
                       [count](int64_t n, const float* a, const float* b, float* c) { peer_gemm(count, n, a, b, c); },
                       0});
  return rungs;
}

std::vector<float> random_matrix(int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> matrix(static_cast<size_t>(n * n));
  for (float& element : matrix) element = normal(engine);
  return matrix;
}

// Sums of n products of normal numbers have the size sqrt(n). Rounding in n steps changes them by a few ulps of this
// size.
void check(const std::string& name, int64_t n, const std::vector<float>& c, const std::vector<float>& expected) {
  const double allowed = 1e-6 * static_cast<double>(n);
  for (size_t i = 0; i < c.size(); ++i)
    if (!(std::abs(c[i] - expected[i]) <= allowed))
      throw ValueError(name + " is wrong: element " + std::to_string(i) + " is " + std::to_string(c[i]) + ", not " +
                       std::to_string(expected[i]));
}

json roofline(int threads) {
  json roof;
  std::vector<int> counts = {1};
  if (threads > 1) counts.push_back(threads);
  for (int count : counts) {
    const double peak = peak_flops(count);
    std::printf("%d thread%s: peak %.1f GFLOP/s", count, count > 1 ? "s" : "", peak / 1e9);
    json levels;
    for (const auto& [level, bytes] : {std::pair{"L1", int64_t{16} << 10}, std::pair{"L2", int64_t{512} << 10},
                                       std::pair{"L3", int64_t{8} << 20}, std::pair{"memory", int64_t{512} << 20}}) {
      const bool own = bytes < (int64_t{1} << 20);  // each core has such a cache
      const double bandwidth = read_bandwidth(count, own ? bytes * count : bytes);
      std::printf("; %s %.1f GB/s", level, bandwidth / 1e9);
      levels[level] = bandwidth / 1e9;
    }
    std::printf("\n");
    roof.push_back({{"threads", count}, {"peak_gflops", peak / 1e9}, {"read_gb_per_second", levels}});
  }
  return roof;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t n = 1024;
  double seconds = 1;
  std::string file;
  Program program("gemm_cpu", "Times matrix products from three loops to all cores");
  program.option("--size", n, "number of rows and columns, a multiple of 64");
  program.option("--seconds", seconds, "time per rung");
  program.option("--json", file, "write the figures to this file");
  return program.run(argc, argv, [&] {
    if (n < 64 || n % 64 != 0) throw ValueError("--size must be a multiple of 64");
    const int threads = num_threads();
    const json roof = roofline(threads);
    const double peak = roof[0]["peak_gflops"], flops = 2.0 * std::pow(static_cast<double>(n), 3);
    const double intensity = flops / (3.0 * 4 * static_cast<double>(n * n));
    std::printf("%lld x %lld: %.2f GFLOP, %.0f FLOP for each byte of A, B and C\n\n", static_cast<long long>(n),
                static_cast<long long>(n), flops / 1e9, intensity);

    const std::vector<float> a = random_matrix(n, 1), b = random_matrix(n, 2);
    std::vector<float> expected(a.size()), c(a.size());
    naive(n, a.data(), b.data(), expected.data());
    json rungs;
    double slowest = 0;
    std::printf("%-24s %8s %10s %10s %8s %14s\n", "rung", "threads", "ms", "GFLOP/s", "of peak", "times naive");
    for (const Rung& rung : ladder(threads)) {
      set_num_threads(rung.threads);
      std::fill(c.begin(), c.end(), NAN);
      rung.product(n, a.data(), b.data(), c.data());
      check(rung.name, n, c, expected);
      const double best = best_seconds(seconds, [&] { rung.product(n, a.data(), b.data(), c.data()); });
      const double rate = flops / best / 1e9, share = rate / (peak * rung.threads);
      if (slowest == 0) slowest = rate;
      std::printf("%-24s %8d %10.2f %10.1f %7.0f%% %14.0f\n", rung.name.c_str(), rung.threads, best * 1e3, rate,
                  share * 100, rate / slowest);
      std::fflush(stdout);
      json row = {{"rung", rung.name}, {"threads", rung.threads}, {"ms", best * 1e3}, {"gflops", rate}};
      if (rung.flops_per_byte > 0) row["flops_per_byte_loaded"] = rung.flops_per_byte;
      rungs.push_back(row);
    }
    if (!peer_name()) std::printf("no OpenBLAS to compare with (Debian: libopenblas-dev)\n");
    if (!file.empty()) {
      const json result = {{"size", n},
                           {"version", version()},
                           {"vector_bits", kVectorBytes * 8},
                           {"isa", name(cpu_isa())},
                           {"roofline", roof},
                           {"flops_per_byte", intensity},
                           {"rungs", rungs}};
      std::ofstream(file) << result.dump(1) << "\n";
    }
  });
}
