// Linear, Bilinear, Identity, Flatten and Unflatten.
#pragma once

#include <vector>

#include <gradus/autograd/ops/linear_algebra.h>
#include <gradus/layers/layer.h>

namespace gradus::nn {

namespace functional {
using gradus::linear;
}

struct LinearOptions {
  LinearOptions(int64_t in_features, int64_t out_features) : in_features_(in_features), out_features_(out_features) {}
  void print(detail::LayerPrinter& printer) const {
    printer("in_features", in_features_)("out_features", out_features_)("bias", bias_);
  }
  GRADUS_ARG(int64_t, in_features);
  GRADUS_ARG(int64_t, out_features);
  GRADUS_ARG(bool, bias) = true;
};

/// y = x wᵀ + bias. Shapes: x (…, in_features), y (…, out_features). Parameters `weight` (out, in) and `bias` (out).
struct LinearImpl : detail::Layer<LinearImpl, LinearOptions> {
  LinearImpl(int64_t in_features, int64_t out_features) : LinearImpl(LinearOptions(in_features, out_features)) {}
  explicit LinearImpl(const LinearOptions& options_) : Layer(options_) { LinearImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x);

  Tensor weight, bias;
};
GRADUS_MODULE(Linear);

struct BilinearOptions {
  BilinearOptions(int64_t in1_features, int64_t in2_features, int64_t out_features)
      : in1_features_(in1_features), in2_features_(in2_features), out_features_(out_features) {}
  void print(detail::LayerPrinter& printer) const {
    printer("in1_features", in1_features_)("in2_features", in2_features_)("out_features", out_features_)("bias", bias_);
  }
  GRADUS_ARG(int64_t, in1_features);
  GRADUS_ARG(int64_t, in2_features);
  GRADUS_ARG(int64_t, out_features);
  GRADUS_ARG(bool, bias) = true;
};

/// y[k] = aᵀ weight[k] b + bias[k]. Shapes: a (…, in1), b (…, in2), y (…, out). Parameters `weight` (out, in1, in2) and
/// `bias` (out).
struct BilinearImpl : detail::Layer<BilinearImpl, BilinearOptions> {
  BilinearImpl(int64_t in1_features, int64_t in2_features, int64_t out_features)
      : BilinearImpl(BilinearOptions(in1_features, in2_features, out_features)) {}
  explicit BilinearImpl(const BilinearOptions& options_) : Layer(options_) { BilinearImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& a, const Tensor& b);

  Tensor weight, bias;
};
GRADUS_MODULE(Bilinear);

/// Returns its input. A placeholder for a disabled layer.
struct IdentityImpl : detail::Layer<IdentityImpl> {
  Tensor forward(const Tensor& x) { return x; }
};
GRADUS_MODULE(Identity);

struct FlattenOptions {
  void print(detail::LayerPrinter& printer) const { printer("start_dim", start_dim_)("end_dim", end_dim_); }
  GRADUS_ARG(int64_t, start_dim) = 1;
  GRADUS_ARG(int64_t, end_dim) = -1;
};

/// Merges dimensions start_dim to end_dim: (N, C, H, W) to (N, C H W).
struct FlattenImpl : detail::Layer<FlattenImpl, FlattenOptions> {
  using Layer::Layer;
  Tensor forward(const Tensor& x) {
    const auto frame = enter();
    return x.flatten(options.start_dim(), options.end_dim());
  }
};
GRADUS_MODULE(Flatten);

struct UnflattenOptions {
  UnflattenOptions(int64_t dim, std::vector<int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  void print(detail::LayerPrinter& printer) const;
  GRADUS_ARG(int64_t, dim);
  GRADUS_ARG(std::vector<int64_t>, sizes);
};

/// Splits dimension `dim`: (N, C H W) to (N, C, H, W). One of the sizes may be -1.
struct UnflattenImpl : detail::Layer<UnflattenImpl, UnflattenOptions> {
  using Layer::Layer;
  Tensor forward(const Tensor& x);
};
GRADUS_MODULE(Unflatten);

}  // namespace gradus::nn
