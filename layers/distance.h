// Distances and similarities between pairs of vectors, and Bilinear.
#pragma once

#include <gradus/core/options.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

struct CosineSimilarityOptions {
  GRADUS_ARG(int64_t, dim) = 1;
  GRADUS_ARG(double, eps) = 1e-8;
};

/// a · b / (max(|a|, eps) max(|b|, eps)) along `dim`.
struct CosineSimilarityImpl : detail::PlainLayer<CosineSimilarityImpl, CosineSimilarityOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& a, const Tensor& b);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(CosineSimilarity);

struct PairwiseDistanceOptions {
  GRADUS_ARG(double, p) = 2;
  GRADUS_ARG(double, eps) = 1e-6;
  GRADUS_ARG(bool, keepdim) = false;
};

/// The p-norm of a - b + eps along the last dimension.
struct PairwiseDistanceImpl : detail::PlainLayer<PairwiseDistanceImpl, PairwiseDistanceOptions> {
  using PlainLayer::PlainLayer;
  Tensor forward(const Tensor& a, const Tensor& b);
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(PairwiseDistance);

struct BilinearOptions {
  BilinearOptions(int64_t in1_features, int64_t in2_features, int64_t out_features)
      : in1_features_(in1_features), in2_features_(in2_features), out_features_(out_features) {}
  GRADUS_ARG(int64_t, in1_features);
  GRADUS_ARG(int64_t, in2_features);
  GRADUS_ARG(int64_t, out_features);
  GRADUS_ARG(bool, bias) = true;
};

/// y[k] = aᵀ weight[k] b + bias[k]. Shapes: a (…, in1), b (…, in2), y (…, out). Parameters `weight` (out, in1, in2) and
/// `bias` (out).
struct BilinearImpl : Cloneable<BilinearImpl> {
  BilinearImpl(int64_t in1_features, int64_t in2_features, int64_t out_features)
      : BilinearImpl(BilinearOptions(in1_features, in2_features, out_features)) {}
  explicit BilinearImpl(const BilinearOptions& options_) : options(options_) { BilinearImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& a, const Tensor& b);
  void pretty_print(std::ostream& stream) const override;

  BilinearOptions options;
  Tensor weight, bias;
};
GRADUS_MODULE(Bilinear);

}  // namespace gradus::nn
