// What exercises in CUDA and their checks are written with: todo() for the holes of kernels, arrays with guards,
// launches that say what went wrong. Nothing of gradus: an answer compiles in seconds.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "require.h"

namespace exercise {

/// What kernels leave for the check: the text of the hole that they ran into, whether a thread called __syncthreads().
struct Notes {
  char hole[160];
  bool had_barrier;
};
__device__ Notes notes;
__device__ unsigned unevenness;  // 0: warps run normally; else a seed for how long each waits after a barrier

/// What __syncthreads() is in answers. Where another one is missing, warps that go on at different times show it.
__device__ inline void uneven_barrier() {
  __syncthreads();
  notes.had_barrier = true;
  if (unevenness == 0) return;
  const unsigned warp = (threadIdx.x + blockDim.x * threadIdx.y) / 32, block = blockIdx.x + gridDim.x * blockIdx.y;
  __nanosleep(((warp + 32 * (block + unevenness)) * 2654435761u) >> 18);  // up to 16 us
}

inline void check_cuda(cudaError_t error, const std::string& what) {
  require(error == cudaSuccess, what, ": ", cudaGetErrorString(error));
}

/// (rows, columns) floats in the host's memory, which kernels read over the bus: what they load comes late and in any
/// order. Around them, and in them before they are filled, is kNobody's NaN. Never freed: that would wait for a kernel
/// that does not end.
struct Array {
  static constexpr uint32_t kNobody = 0x7fc0beef;
  static constexpr int kGuard = 4096;

  Array(int rows, int columns) : rows(rows), columns(columns) {
    check_cuda(cudaMallocHost(&data, (2 * kGuard + size()) * sizeof(float)), "memory for the check");
    data += kGuard;
    std::fill_n(data - kGuard, size() + 2 * kGuard, std::bit_cast<float>(kNobody));
  }
  /// Numbers from a function of row and column.
  Array(int rows, int columns, const std::function<float()>& number) : Array(rows, columns) {
    std::generate_n(data, size(), number);
  }
  size_t size() const { return static_cast<size_t>(rows) * columns; }
  float operator()(int i, int j) const { return data[static_cast<size_t>(i) * columns + j]; }
  static bool is_nobodys(float number) { return std::bit_cast<uint32_t>(number) == kNobody; }

  int rows, columns;
  float* data = nullptr;
};

/// Runs a kernel, which has to write y and nothing else, four times: with warps of different speeds, at last as it is.
/// `of`: what is computed, for messages.
template <class... Parameters, class... Arguments>
void run(const std::string& of, const Array& y, void (*kernel)(Parameters...), dim3 grid, dim3 block,
         Arguments... arguments) {
  std::vector<float> first;
  for (const unsigned seed : {3, 2, 1, 0}) {
    Notes found{};
    check_cuda(cudaMemcpyToSymbol(notes, &found, sizeof found), "before " + of);
    check_cuda(cudaMemcpyToSymbol(unevenness, &seed, sizeof seed), "before " + of);
    std::fill_n(y.data, y.size(), std::bit_cast<float>(Array::kNobody));
    kernel<<<grid, block>>>(arguments...);
    check_cuda(cudaGetLastError(), of + ": the launch");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    cudaError_t state;
    while ((state = cudaStreamQuery(nullptr)) == cudaErrorNotReady) {  // no wait of CUDA's has a deadline
      require(std::chrono::steady_clock::now() < end, of, ": the kernel has not ended after 10 s");
      cudaGetLastError();  // or the next launch would report that it was not ready
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    check_cuda(state, of + ": the kernel was stopped; does it read or write outside of the arrays?");
    check_cuda(cudaMemcpyFromSymbol(&found, notes, sizeof found), "behind " + of);
    if (found.hole[0]) throw Todo(found.hole);

    for (int i = 1; i <= Array::kGuard; ++i) {
      require(Array::is_nobodys(y.data[-i]), of, ": it writes outside of the result, ", i, " before its first number");
      require(Array::is_nobodys(y.data[y.size() + i - 1]), of, ": it writes outside of the result, ", i,
              " behind its last number");
    }
    if (first.empty()) first.assign(y.data, y.data + y.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const float a = first[i], b = y.data[i];
      require(std::abs(a - b) <= 1e-3 * (1 + std::abs(a)) || (std::isnan(a) && std::isnan(b)), of, ": number ", i,
              " is ", a, " or ", b, ", by the speed of warps: a __syncthreads() is missing",
              found.had_barrier ? "" : " (there is none)", ", or shared memory is read that nobody has written");
    }
  }
}

/// That y is right(i, j) up to a relative error.
template <class Right>
void require_equal(const std::string& of, const Array& y, const Right& right, double tolerance = 0) {
  for (int i = 0; i < y.rows; ++i)
    for (int j = 0; j < y.columns; ++j) {
      require(!Array::is_nobodys(y(i, j)), of, ": nobody writes [", i, "][", j, "]");
      const double expected = right(i, j);
      require(std::abs(y(i, j) - expected) <= tolerance * expected, of, ": [", i, "][", j, "] is ", y(i, j),
              ", right is ", expected,
              std::isnan(y(i, j)) ? " (nan comes from outside of the arrays, or from inf / inf)" : "");
    }
}

/// Seconds that a launch takes, the best of five.
inline double seconds(const std::function<void()>& launch) {
  cudaEvent_t begin, end;
  float best = std::numeric_limits<float>::infinity();
  check_cuda(cudaEventCreate(&begin), "an event"), check_cuda(cudaEventCreate(&end), "an event");
  for (int i = 0; i < 5; ++i) {
    float milliseconds = 0;
    cudaEventRecord(begin);
    launch();
    cudaEventRecord(end);
    check_cuda(cudaEventSynchronize(end), "timing");
    cudaEventElapsedTime(&milliseconds, begin, end);
    best = std::min(best, milliseconds);
  }
  return best / 1e3;
}

inline void need_a_gpu() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) throw Missing(std::string("1 CUDA device: ") + cudaGetErrorString(error));
}

}  // namespace exercise

/// Stands in a kernel where something is to be written.
__device__ inline void todo(const char* what) {
  for (int i = 0; i == 0 || what[i - 1]; ++i) exercise::notes.hole[i] = what[i];
}
#define __syncthreads() exercise::uneven_barrier()
