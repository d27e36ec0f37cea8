// Times products of two square matrices for --seconds, and prints the median as JSON.
//
//   matmul --size 1024 --threads 2
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/gradus.h>

int main(int argc, char** argv) {
  using namespace gradus;
  int64_t size = 1024;
  double seconds = 1.0;
  bool tf32 = false;
  std::string device_name = "cpu", backend;
  benchmarks::Program program("matmul", "Times the product of two square matrices of float32");
  program.option("--size", size, "number of rows and columns");
  program.option("--device", device_name, "cpu or cuda");
  program.option("--backend", backend, "naive, openmp, cuda, cudnn; default: the device's best");
  program.option("--seconds", seconds, "time for the measurement");
  program.flag("--tf32", tf32, "let the product use TF32 (cuda)");
  return program.run(argc, argv, [&] {
    if (!backend.empty()) set_backend(backend);
    cuda::set_matmul_allow_tf32(tf32);
    const Device device(device_name);
    const NoGradGuard no_grad;
    const Tensor a = randn({size, size}).to(device), b = randn({size, size}).to(device);
    const double ms = benchmarks::time_ms(device, seconds, [&] { matmul(a, b); });
    const double operations = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
    std::printf("{\"size\": %lld, \"ms\": %.5f, \"gflops\": %.2f}\n", static_cast<long long>(size), ms,
                operations / ms / 1e6);
  });
}
