#include <string>

#include <gradus/benchmarks/ladders/gemm_cpu/peer.h>

// The declarations of cblas.h, which is not included because it might be another library's.
extern "C" {
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc);
void openblas_set_num_threads(int threads);
char* openblas_get_corename();
}

namespace gradus::ladders {

const char* peer_name() {
  static const std::string name = std::string("OpenBLAS (") + openblas_get_corename() + ")";
  return name.c_str();
}

void peer_gemm(int threads, int64_t n, const float* a, const float* b, float* c) {
  constexpr int kRowMajor = 101, kNotTransposed = 111;
  const int size = static_cast<int>(n);
  openblas_set_num_threads(threads);
  cblas_sgemm(kRowMajor, kNotTransposed, kNotTransposed, size, size, size, 1, a, size, b, size, 0, c, size);
}

}  // namespace gradus::ladders
