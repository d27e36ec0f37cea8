// The ladders on CUDA for other kernels than convolutions: softmax, sums, layer norm, matrix product, the gradient of
// max pooling, and batch norm. The last rung of each ladder is the library's kernel.
//
//   kernels_cuda --ladders softmax,gemm --json ladder.jsonl
#include <algorithm>

#include <gradus/benchmarks/ladders/batch_norm_cuda/rungs.h>
#include <gradus/benchmarks/ladders/cuda/ladder.h>
#include <gradus/benchmarks/ladders/gemm_cuda/rungs.h>
#include <gradus/benchmarks/ladders/layer_norm_cuda/rungs.h>
#include <gradus/benchmarks/ladders/max_pool_backward_cuda/rungs.h>
#include <gradus/benchmarks/ladders/reduce_cuda/rungs.h>
#include <gradus/benchmarks/ladders/softmax_cuda/rungs.h>

namespace {

using namespace gradus;
using ladders::Ladder, ladders::limit_us, ladders::random_array;

std::string text(std::initializer_list<int> sizes) {
  std::string result;
  for (const int size : sizes) result += (result.empty() ? "" : "x") + std::to_string(size);
  return result;
}

Backend& library() { return backend("cuda"); }

// Calls the library's batch norm or layer norm: y = (x - mean) / sqrt(variance + eps) weight + bias, with mean and
// variance over `axes`.
void normalize(const Array& x, uint32_t axes, const Array& weight, const Array& bias, double eps, const Array& y,
               const Array& mean, const Array& variance) {
  library().normalize({.x = x,
                       .axes = axes,
                       .weight = weight.expand(x.shape()),
                       .bias = bias.expand(x.shape()),
                       .eps = eps,
                       .y = y,
                       .mean = mean,
                       .variance = variance});
}

Ladder softmax(int rows, int columns) {
  namespace rungs = ladders::softmax;
  const Array x = random_array({rows, columns}), y = Array::empty_like(x);
  const rungs::Problem problem{rows, columns, x.data<float>(), y.data<float>()};
  const Device device = x.device();
  Ladder ladder{"softmax", text({rows, columns}), y, limit_us(0, 8.0 * rows * columns), {}};
  ladder.rungs = {{"1 naive", [=] { rungs::naive(problem, device); }},
                  {"2 warp_row", [=] { rungs::warp_row(problem, device); }},
                  {"3 online", [=] { rungs::online(problem, device); }},
                  {"4 registers", [=] { rungs::registers(problem, device); }},
                  {"5 library", [=] { library().softmax(x, 1, SoftmaxKind::softmax, y); }}};
  return ladder;
}

Ladder reduce(int rows, int columns) {
  namespace rungs = ladders::reduce;
  const Array x = random_array({rows, columns}), y = random_array({rows, 1});
  const Array workspace = random_array({rows, rungs::kMostSplits});
  const rungs::Problem problem{rows, columns, x.data<float>(), y.data<float>(), workspace.data<float>()};
  const Device device = x.device();
  Ladder ladder{"reduce", text({rows, columns}), y, limit_us(0, 4.0 * rows * (columns + 1.0)), {}};
  ladder.rungs = {{"1 naive", [=] { rungs::naive(problem, device); }},
                  {"2 warp_row", [=] { rungs::warp_row(problem, device); }},
                  {"3 vectors", [=] { rungs::vectors(problem, device); }},
                  {"4 split_rows", [=] { (void)workspace, rungs::split_rows(problem, device); }},
                  {"5 library", [=] { library().reduce(ReduceOp::sum, x, 2, y); }}};
  return ladder;
}

Ladder layer_norm(int rows, int columns) {
  namespace rungs = ladders::layer_norm;
  const Array x = random_array({rows, columns}), y = Array::empty_like(x);
  const Array weight = random_array({1, columns}), bias = random_array({1, columns});
  const Array mean = random_array({rows, 1}), variance = random_array({rows, 1});
  const rungs::Problem problem{rows,           columns, x.data<float>(), weight.data<float>(), bias.data<float>(),
                               y.data<float>()};
  const Device device = x.device();
  Ladder ladder{"layer_norm", text({rows, columns}), y, limit_us(0, 8.0 * rows * columns), {}};
  ladder.rungs = {{"1 naive", [=] { rungs::naive(problem, device); }},
                  {"2 warp_row", [=] { rungs::warp_row(problem, device); }},
                  {"3 registers", [=] { rungs::registers(problem, device); }},
                  {"4 library", [=] { normalize(x, 2, weight, bias, problem.eps, y, mean, variance); }}};
  return ladder;
}

template <class T>
Ladder gemm(int M, int N, int K) {
  namespace rungs = ladders::gemm;
  constexpr DType dtype = dtype_of<T>;
  const Array x = random_array({M, K}, dtype), w = random_array({N, K}, dtype), y = random_array({M, N}, dtype);
  const rungs::Problem<T> problem{M, N, K, x.data<T>(), w.data<T>(), y.data<T>()};
  const Device device = x.device();
  const double bytes = sizeof(T) * (1.0 * M * K + 1.0 * N * K + 1.0 * M * N);
  Ladder ladder{"gemm",
                text({M, N, K}),
                y,
                limit_us(2.0 * M * N * K, bytes, sizeof(T) == 4 ? ladders::kFloatRate : ladders::kHalfRate),
                {}};
  ladder.rungs = {{"1 naive", [=] { rungs::naive(problem, device); }}};
  if constexpr (dtype == DType::f32) {
    ladder.rungs.push_back({"2 shared_tile", [=] { rungs::shared_tile(problem, device); }});
    ladder.rungs.push_back({"3 register_tile", [=] { rungs::register_tile(problem, device); }});
  } else {
    ladder.rungs.push_back({"4 mma_sync", [=] { rungs::mma_sync(problem, device); }});
    ladder.rungs.push_back({"5 cp_async", [=] { rungs::cp_async(problem, device); }});
  }
  ladder.rungs.push_back({"6 library", [=] { library().matmul(x, w.transpose(0, 1), y, false); }});
  return ladder;
}

Ladder max_pool_backward(int N, int C, int H) {
  namespace rungs = ladders::max_pool_backward;
  const int P = (H + 1) / 2;
  const Pool2dGeometry geometry{{3, 3}, {2, 2}, {1, 1}, {1, 1}};
  const Array x = random_array({N, C, H, H}), dy = random_array({N, C, P, P}), dx = Array::empty_like(x);
  const Array y = Array::empty_like(dy), indices = Array::empty_like(dy, DType::i32);
  library().max_pool2d(x, y, indices, geometry);
  const rungs::Problem problem{N * C, H, H, P, P, dy.data<float>(), indices.data<int32_t>(), dx.data<float>()};
  const Device device = x.device();
  Ladder ladder{"max_pool_backward", text({N, C, H, H}), dx, limit_us(0, 4.0 * N * C * (H * H + 2.0 * P * P)), {}};
  ladder.rungs = {{"1 naive", [=] { rungs::naive(problem, device); }},
                  {"2 gather", [=] { rungs::gather(problem, device); }},
                  {"3 register_tile", [=] { rungs::register_tile(problem, device); }},
                  {"4 library", [=] { library().max_pool2d_backward(dy, indices, dx, geometry); }}};
  return ladder;
}

Ladder batch_norm(int N, int C, int H) {
  namespace rungs = ladders::batch_norm;
  const Array x = random_array({N, C, H, H}), y = Array::empty_like(x);
  const auto per_channel = [&] { return random_array({1, C, 1, 1}); };
  const Array weight = per_channel(), bias = per_channel(), mean = per_channel(), variance = per_channel();
  const Array workspace = random_array({C, rungs::kMostSplits, 2});
  const rungs::Problem problem{
      N, C, H * H, x.data<float>(), weight.data<float>(), bias.data<float>(), y.data<float>(), workspace.data<float>()};
  const Device device = x.device();
  Ladder ladder{"batch_norm", text({N, C, H, H}), y, limit_us(0, 8.0 * N * C * H * H), {}};
  ladder.rungs = {{"1 naive", [=] { rungs::naive(problem, device); }},
                  {"2 block_channel", [=] { rungs::block_channel(problem, device); }},
                  {"3 split_channels", [=] { (void)workspace, rungs::split_channels(problem, device); }},
                  {"4 library", [=] { normalize(x, 0b1101, weight, bias, problem.eps, y, mean, variance); }}};
  return ladder;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> chosen = {"softmax", "reduce", "layer_norm", "gemm", "max_pool_backward", "batch_norm"};
  const std::vector<std::string> names = chosen;
  double seconds = 0.1;
  bool small = false;
  benchmarks::Program program("kernels_cuda", "Times CUDA kernels from naive to the library's, each checked before");
  program.option("--ladders", chosen, "ladders to run", names);
  program.option("--seconds", seconds, "time per kernel; 0: kernels are checked but not timed");
  program.flag("--small", small,
               "run one small shape of each ladder, without the library's kernels, for compute-sanitizer");
  program.json_option();
  return program.run(argc, argv, [&] {
    std::vector<std::string> wrong;
    const auto climb_one = [&](Ladder ladder) {
      const ladders::Rung library = ladder.rungs.back();  // keeps the memory to which the other rungs point
      if (small) ladder.rungs.pop_back();
      ladders::climb(ladder, seconds, program, wrong);
    };
    const auto climb = [&](const char* name, auto make, const std::vector<std::array<int, 3>>& shapes) {
      if (std::find(chosen.begin(), chosen.end(), name) == chosen.end()) return;
      const std::vector<std::array<int, 3>> first(shapes.begin(), shapes.begin() + 1);
      for (const auto& shape : small ? first : std::vector(shapes.begin() + 1, shapes.end())) climb_one(make(shape));
    };
    climb("softmax", [](auto& s) { return softmax(s[0], s[1]); },
          {{37, 1028}, {65536, 256}, {8192, 1024}, {4096, 8192}});
    climb("reduce", [](auto& s) { return reduce(s[0], s[1]); }, {{3, 20004}, {65536, 256}, {128, 131072}});
    climb("layer_norm", [](auto& s) { return layer_norm(s[0], s[1]); },
          {{37, 260}, {65536, 256}, {8192, 1024}, {4096, 4096}});
    climb("gemm", [](auto& s) { return gemm<float>(s[0], s[1], s[2]); }, {{70, 130, 64}, {2048, 2048, 2048}});
    climb("gemm", [](auto& s) { return gemm<BFloat16>(s[0], s[1], s[2]); },
          {{70, 130, 64}, {2048, 2048, 2048}, {8192, 8192, 1024}});
    climb("max_pool_backward", [](auto& s) { return max_pool_backward(s[0], s[1], s[2]); },
          {{2, 3, 13}, {32, 64, 112}, {128, 64, 48}});
    climb("batch_norm", [](auto& s) { return batch_norm(s[0], s[1], s[2]); },
          {{5, 3, 7}, {128, 64, 32}, {32, 64, 56}, {512, 16, 28}});
    ladders::check_none(wrong);
  });
}
