#define GRADUS_ISA avx512_bf16
#include <gradus/backends/openmp/simd/gemm_kernel.h>

namespace gradus::openmp_detail {
namespace avx512_bf16 {

// Adds two products to each lane in the order of the depth, and rounds after each of them.
struct DotPairs {
  static Vector<float> apply(Vector<float> a, Vector<float> b, Vector<float> sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
};

}  // namespace avx512_bf16

void bf16_pairs_block_avx512(const BlockArgs<float>& args) { avx512_bf16::block<float, avx512_bf16::DotPairs>(args); }

}  // namespace gradus::openmp_detail
