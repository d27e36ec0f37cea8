// Softmax and classification losses.
#pragma once

#include <gradus/autograd/tensor.h>
#include <gradus/core/backend.h>

namespace gradus {

/// Softmax along `dim`, and its logarithm. If `dtype` is given, x is converted to it first.
inline Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current()) {
  return x.softmax(dim, dtype, where);
}
inline Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Loc where = Loc::current()) {
  return x.log_softmax(dim, dtype, where);
}
/// Negative log likelihood of log-probabilities x (N, C), (C) or (N, C, d1, …) for int64 classes target (N), () or (N,
/// d1, …). `weight` (C), if defined, weights each row by its class, and the mean becomes a weighted mean. Rows whose
/// target is ignore_index are skipped.
Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight = {}, Reduction reduction = Reduction::mean,
                int64_t ignore_index = -100, Loc where = Loc::current());
/// nll_loss(log_softmax(x, 1), target, …) of logits x, computed by one kernel if weight is undefined and
/// label_smoothing is 0. With label_smoothing e, every class has probability e / C, and the target class has 1 - e
/// more. A floating target of x's shape contains class probabilities, and ignore_index has no effect.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                     Reduction reduction = Reduction::mean, int64_t ignore_index = -100, double label_smoothing = 0,
                     Loc where = Loc::current());

/// torch::kBatchMean: kl_div's sum divided by the number of rows, which is the mathematical definition.
struct BatchMean {};
inline constexpr BatchMean kBatchMean{};
struct KLDivReduction {
  KLDivReduction(Reduction reduction_) : reduction(reduction_) {}          // NOLINT(google-explicit-constructor)
  KLDivReduction(BatchMean) : reduction(Reduction::sum), by_rows(true) {}  // NOLINT(google-explicit-constructor)
  Reduction reduction;
  bool by_rows = false;
};

// ---- Regression ----
/// (x - target)²
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                Loc where = Loc::current());
/// |x - target|
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
               Loc where = Loc::current());
/// With d = |x - target|: d² / (2 beta) where d < beta, else d - beta / 2.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean, double beta = 1,
                      Loc where = Loc::current());
/// d² / 2 where d <= delta, else delta (d - delta / 2).
Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean, double delta = 1,
                  Loc where = Loc::current());
/// exp(x) - target x, or, if log_input is false, x - target log(x + eps). `full` adds Stirling's approximation of
/// log(target!) where target > 1.
Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, bool log_input = true, bool full = false,
                        double eps = 1e-8, Reduction reduction = Reduction::mean, Loc where = Loc::current());
/// (log(v) + (x - target)² / v) / 2 with v = max(variance, eps); the gradient of v is passed to variance even where eps
/// is larger. `full` adds log(2 pi) / 2. variance has x's shape, or one element for each row.
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& variance, bool full = false,
                         double eps = 1e-6, Reduction reduction = Reduction::mean, Loc where = Loc::current());

// ---- Probabilities ----
/// -weight (target log x + (1 - target) log(1 - x)) for probabilities x. The logarithms are clamped to at least -100.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                            Reduction reduction = Reduction::mean, Loc where = Loc::current());
/// binary_cross_entropy of sigmoid(x), computed without overflow for large x. pos_weight multiplies the term target
/// log(sigmoid(x)).
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                                        const Tensor& pos_weight = {}, Reduction reduction = Reduction::mean,
                                        Loc where = Loc::current());
/// target (log target - x) for log-probabilities x. target contains probabilities, or with log_target their logarithms.
Tensor kl_div(const Tensor& x, const Tensor& target, KLDivReduction reduction = Reduction::mean,
              bool log_target = false, Loc where = Loc::current());
/// log(1 + exp(-target x)), where target is 1 or -1.
Tensor soft_margin_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                        Loc where = Loc::current());
/// Mean over the C classes of weight * binary_cross_entropy_with_logits, for x (…, C) and targets 0 or 1.
Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                                   Reduction reduction = Reduction::mean, Loc where = Loc::current());

// ---- Margins ----
/// x where target is 1, max(0, margin - x) where it is -1.
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& target, double margin = 1,
                            Reduction reduction = Reduction::mean, Loc where = Loc::current());
/// max(0, -target (x1 - x2) + margin)
Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& target, double margin = 0,
                           Reduction reduction = Reduction::mean, Loc where = Loc::current());
/// max(0, ‖anchor - positive‖ - ‖anchor - negative‖ + margin), with the p-norm of (difference + eps) over the last
/// dimension; `swap` takes the smaller of the negative's distances from anchor and positive.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin = 1,
                           double p = 2, double eps = 1e-6, bool swap = false, Reduction reduction = Reduction::mean,
                           Loc where = Loc::current());
/// 1 - cos(x1, x2) where target is 1, max(0, cos(x1, x2) - margin) where it is -1; x1 and x2 (N, D) or (D).
Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& target, double margin = 0,
                             Reduction reduction = Reduction::mean, Loc where = Loc::current());
/// Mean over the classes i that are not target of weight[target] max(0, margin - x[target] + x[i])^p; x (N, C) or (C).
Tensor multi_margin_loss(const Tensor& x, const Tensor& target, int64_t p = 1, double margin = 1,
                         const Tensor& weight = {}, Reduction reduction = Reduction::mean, Loc where = Loc::current());

}  // namespace gradus
