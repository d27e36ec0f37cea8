// Linear, Identity, Flatten and Unflatten.
#pragma once

#include <gradus/core/options.h>
#include <gradus/layers/module/module.h>

namespace gradus::nn {

struct LinearOptions {
  LinearOptions(int64_t in_features, int64_t out_features) : in_features_(in_features), out_features_(out_features) {}
  GRADUS_ARG(int64_t, in_features);
  GRADUS_ARG(int64_t, out_features);
  GRADUS_ARG(bool, bias) = true;
};

/// y = x wᵀ + bias. Shapes: x (…, in_features), y (…, out_features). Parameters `weight` (out, in) and `bias` (out).
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

/// Returns its input. A placeholder for a disabled layer.
struct IdentityImpl : Cloneable<IdentityImpl> {
  void reset() override {}
  Tensor forward(const Tensor& x) { return x; }
  void pretty_print(std::ostream& stream) const override;
};
GRADUS_MODULE(Identity);

struct FlattenOptions {
  GRADUS_ARG(int64_t, start_dim) = 1;
  GRADUS_ARG(int64_t, end_dim) = -1;
};

/// Merges dimensions start_dim to end_dim: (N, C, H, W) to (N, C H W).
struct FlattenImpl : Cloneable<FlattenImpl> {
  explicit FlattenImpl(const FlattenOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  FlattenOptions options;
};
GRADUS_MODULE(Flatten);

struct UnflattenOptions {
  UnflattenOptions(int64_t dim, std::vector<int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  GRADUS_ARG(int64_t, dim);
  GRADUS_ARG(std::vector<int64_t>, sizes);
};

/// Splits dimension `dim`: (N, C H W) to (N, C, H, W). One of the sizes may be -1.
struct UnflattenImpl : Cloneable<UnflattenImpl> {
  UnflattenImpl(int64_t dim, std::vector<int64_t> sizes) : options(dim, std::move(sizes)) {}
  explicit UnflattenImpl(const UnflattenOptions& options_) : options(options_) {}
  void reset() override {}
  Tensor forward(const Tensor& x);
  void pretty_print(std::ostream& stream) const override;

  UnflattenOptions options;
};
GRADUS_MODULE(Unflatten);

}  // namespace gradus::nn
