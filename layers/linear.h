// Linear and Flatten.
#pragma once

#include <gradus/core/options.h>
#include <gradus/layers/module.h>

namespace gradus::nn {

struct LinearOptions {
  LinearOptions(int64_t in_features, int64_t out_features) : in_features_(in_features), out_features_(out_features) {}
  GRADUS_ARG(int64_t, in_features);
  GRADUS_ARG(int64_t, out_features);
  GRADUS_ARG(bool, bias) = true;
};

/// y = x wᵀ + bias: x (…, in_features), y (…, out_features). Parameters `weight` (out, in) and `bias` (out).
struct LinearImpl : Cloneable<LinearImpl> {
  LinearImpl(int64_t in_features, int64_t out_features) : LinearImpl(LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const LinearOptions& options);
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  LinearOptions options;
  Tensor weight, bias;
};
GRADUS_MODULE(Linear);

struct FlattenOptions {
  GRADUS_ARG(int64_t, start_dim) = 1;
  GRADUS_ARG(int64_t, end_dim) = -1;
};

/// Makes dimensions start_dim to end_dim one: (N, C, H, W) to (N, C H W).
struct FlattenImpl : Cloneable<FlattenImpl> {
  explicit FlattenImpl(const FlattenOptions& options = {}) : options(options) {}
  void reset() override {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  FlattenOptions options;
};
GRADUS_MODULE(Flatten);

}  // namespace gradus::nn
