// Rung 5, threads: distributes the bands of rung 4 over all cores. NHWC.
//   fprop, dgrad   a chunk is a band; chunks write rows of their own.
//   wgrad          a chunk is a sixteenth of the bands, with sums of its own, which are added in order at the end.
// The chunks depend only on the shape, so the bits of the result do not depend on the number of threads. Faster by the
// number of cores, if there are enough bands. Workspace: packed filters (for wgrad, the sums of 16 chunks), and the
// copies of a band for each thread.
#include <gradus/benchmarks/ladders/conv2d_cpu/packed.h>
#include <gradus/core/parallel/parallel.h>

namespace gradus::ladders::threads {
namespace {

using packed::band, packed::band_count, packed::packed_floats, packed::scratch_floats;

constexpr int64_t kParts = 16;

void multiply(const packed::Product& product, float* scratch) {
  const ConvSize& size = product.size;
  const int64_t bands = band_count(size);
  parallel_for(bands, 1, parallel_slots(bands, 1), [&](int64_t begin, int64_t, int slot) {
    packed::multiply(product, band(size, begin), scratch + slot * scratch_floats(size));
  });
}

}  // namespace

int64_t workspace(const ConvSize& size) { return kParts * packed_floats(size) + num_threads() * scratch_floats(size); }

void fprop(const Fprop& conv) { multiply(packed::product_of(conv), conv.workspace + packed_floats(conv.size)); }
void dgrad(const Dgrad& conv) { multiply(packed::product_of(conv), conv.workspace + packed_floats(conv.size)); }

void wgrad(const Wgrad& conv) {
  const int64_t bands = band_count(conv.size), grain = (bands + kParts - 1) / kParts;
  const int64_t parts = (bands + grain - 1) / grain, floats = packed_floats(conv.size.C, conv.size.K);
  float *const sums = conv.workspace, *const scratch = sums + parts * floats;
  parallel_for(bands, grain, parallel_slots(bands, grain), [&](int64_t begin, int64_t end, int slot) {
    float* const own = sums + begin / grain * floats;
    std::fill_n(own, floats, 0.0f);
    for (int64_t i = begin; i < end; ++i)
      packed::add_gradient(conv, band(conv.size, i), scratch + slot * scratch_floats(conv.size), own);
  });
  parallel_for(floats, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < parts; ++part)
      for (int64_t i = begin; i < end; ++i) sums[i] += sums[part * floats + i];
  });
  packed::unpack_gradient(conv, sums);
}

}  // namespace gradus::ladders::threads
