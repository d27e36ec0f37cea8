// How exactly convolutions are computed: by the sums of the definition, or faster and less exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gradus {

/// The least exact algorithm that a backend may choose for a convolution. The default is exact; like
/// torch.set_float32_matmul_precision it trades digits for speed where the user says so, and is a permission: a backend
/// takes a faster algorithm only for shapes where it is faster, and one that has none goes on as before.
///
/// The openmp backend has Winograd's algorithms (Lavin and Gray, "Fast algorithms for convolutional neural networks",
/// 2015) for kernels of 3x3 with stride 1 and dilation 1 that it computes in float32: forward, fused with bias and
/// ReLU, and for the gradient of the image. The gradient of the weights stays exact. Largest error found, relative to
/// the largest result (normal random operands, 1 to 512 channels, against float64; docs/cpu_kernels.md has the table),
/// and the bound that the tests hold it to:
///   exact         3.1e-6   the sums of the definition, in float32
///   winograd_2x2  9e-7     4e-6: no less exact, since its sums have fewer terms, but rounded otherwise
///   winograd_4x4  1.5e-5   3e-5
/// Within a tile of 2x2 or 4x4 results an inf or a NaN reaches its neighbours too, an inf as NaN. Transformed pixels
/// are up to 4 and 100 times as large as the image's.
enum class ConvolutionAccuracy : uint8_t { exact, winograd_2x2, winograd_4x4 };
const char* name(ConvolutionAccuracy accuracy);
/// The accuracy of that name; ValueError lists those that exist.
ConvolutionAccuracy convolution_accuracy_of(std::string_view name);

/// What convolutions of this thread may be: a guard's choice, else the process's.
ConvolutionAccuracy convolution_accuracy();
/// The choice of the whole process, at once for all threads without a guard.
void set_convolution_accuracy(ConvolutionAccuracy accuracy);

/// Sets this thread's accuracy until the end of the scope; others are not touched.
class ConvolutionAccuracyGuard {
 public:
  explicit ConvolutionAccuracyGuard(ConvolutionAccuracy accuracy);
  ~ConvolutionAccuracyGuard();
  ConvolutionAccuracyGuard(const ConvolutionAccuracyGuard&) = delete;
  ConvolutionAccuracyGuard& operator=(const ConvolutionAccuracyGuard&) = delete;

 private:
  std::optional<ConvolutionAccuracy> previous_;
};

}  // namespace gradus
