// Times the product of two square matrices, as often as fits in --seconds; prints the median as JSON.
//
//   matmul --size 1024 --threads 2
#include <cstdio>

#include <CLI/CLI.hpp>

#include <gradus/benchmarks/timing.h>
#include <gradus/gradus.h>

int main(int argc, char** argv) {
  using namespace gradus;
  int64_t size = 1024;
  int threads = 0;
  double seconds = 1.0;
  bool tf32 = false;
  std::string device_name = "cpu", backend;
  CLI::App app("Times the product of two square matrices of float32");
  app.add_option("--size", size, "rows and columns");
  app.add_option("--device", device_name, "cpu or cuda");
  app.add_option("--backend", backend, "naive, openmp, cuda, cudnn; default: the device's best");
  app.add_option("--threads", threads, "CPU threads; default: all");
  app.add_option("--seconds", seconds, "time for the measurement");
  app.add_flag("--tf32", tf32, "let the product use TF32 (cuda)");
  CLI11_PARSE(app, argc, argv);
  try {
    if (threads > 0) set_num_threads(threads);
    if (!backend.empty()) set_backend(backend);
    cuda::set_matmul_allow_tf32(tf32);
    const Device device(device_name);
    const NoGradGuard no_grad;
    const Tensor a = randn({size, size}).to(device), b = randn({size, size}).to(device);
    const double ms = benchmarks::time_ms(device, seconds, [&] { matmul(a, b); });
    const double operations = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
    std::printf("{\"size\": %lld, \"ms\": %.5f, \"gflops\": %.2f}\n", static_cast<long long>(size), ms,
                operations / ms / 1e6);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "matmul: %s\n", error.what());
    return 1;
  }
  return 0;
}
