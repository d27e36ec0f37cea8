// Metrics that are computed batch by batch, on one rank or on all. Definitions follow scikit-learn and torchmetrics: a
// quotient with divisor zero is 0 (zero_division=0).
//
//   training::ConfusionMatrix confusion(10);
//   for (auto& batch : loader) confusion.update(net->forward(batch.data), batch.target);
//   confusion.all_reduce(*group);  // if there are several ranks
//   confusion.accuracy(), confusion.f1(), confusion.per_class()[3].recall(), …
//
// Targets are classes, integers from 0 (else a DTypeError or an IndexError), of shape (N, d…). Targets equal to
// ignore_index, by default that of cross_entropy, are skipped. Tensors may be on any device and need not be contiguous;
// counts are on the host. If update() throws, nothing is counted. A mean over no targets is a ValueError.
//
// all_reduce() combines the metrics of all ranks, on all ranks. Call it once at the end: a second call would multiply
// all counts by the number of ranks.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::dist {
class ProcessGroup;
}

namespace gradus::training {

/// Counts of one class: correct predictions, all predictions, and all targets (its support).
struct ClassCounts {
  int64_t true_positives = 0, predicted = 0, support = 0;

  /// Share of the predictions of this class that are correct.
  double precision() const { return share(true_positives, predicted); }
  /// Share of the targets of this class that were predicted correctly.
  double recall() const { return share(true_positives, support); }
  /// The harmonic mean of precision and recall, which is the Dice coefficient of a segmentation.
  double f1() const { return share(2 * true_positives, predicted + support); }
  /// Intersection over union, the Jaccard index.
  double iou() const { return share(true_positives, predicted + support - true_positives); }

 private:
  static double share(int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  }
};

/// macro: the mean over all classes that occur as targets or predictions. micro: the figure of the summed counts of all
/// classes.
enum class Average : uint8_t { macro, micro };

/// Counts how often each class was predicted for each target class.
class ConfusionMatrix {
 public:
  /// For classes 0 to classes - 1. Fewer than one class is a ValueError.
  explicit ConfusionMatrix(int64_t classes, int64_t ignore_index = -100);

  /// Counts targets (N, d…) with floating scores (N, C, d…), of which the class with the greatest is predicted (the
  /// first of equal ones), or with predicted classes (N, d…), integers or booleans. Other shapes are a ShapeError.
  void update(const Tensor& predictions, const Tensor& target, Loc where = Loc::current());
  /// Adds up the counts of all ranks, on all ranks.
  void all_reduce(dist::ProcessGroup& group);
  void reset();

  /// int64 (C, C): element (i, j) is the number of targets i that were predicted as j.
  Tensor matrix() const;
  /// Counts of each class in order.
  std::vector<ClassCounts> per_class() const;

  /// Share of targets that were predicted correctly, which is also the value of all micro averages below.
  double accuracy() const { return average(&ClassCounts::recall, Average::micro); }
  /// Averages over all classes of the figures of ClassCounts.
  double precision(Average how = Average::macro) const { return average(&ClassCounts::precision, how); }
  double recall(Average how = Average::macro) const { return average(&ClassCounts::recall, how); }
  double f1(Average how = Average::macro) const { return average(&ClassCounts::f1, how); }
  double mean_iou() const { return average(&ClassCounts::iou, Average::macro); }

 private:
  double average(double (ClassCounts::*figure)() const, Average how) const;

  int64_t classes_, ignore_index_;
  std::vector<int64_t> counts_;  // shape (C, C)
};

/// Base of metrics that are a mean over targets.
class MeanMetric {
 public:
  /// Combines the targets of all ranks, on all ranks.
  void all_reduce(dist::ProcessGroup& group);
  void reset() { sums_ = {0, 0}; }
  /// The mean since reset(). Throws a ValueError without targets.
  double mean() const;

 protected:
  std::vector<double> sums_ = {0, 0};  // sum of the values, number of targets
};

/// Share of targets that are among the k classes with the greatest scores. Of equal scores the first are chosen.
class TopK : public MeanMetric {
 public:
  /// A k below 1 is a ValueError.
  explicit TopK(int64_t k, int64_t ignore_index = -100);
  /// Takes scores (N, C, d…) and targets (N, d…). Other shapes are a ShapeError, a k above C an IndexError.
  void update(const Tensor& scores, const Tensor& target, Loc where = Loc::current());
  /// The share of targets among the k best classes, in [0, 1].
  double accuracy() const { return mean(); }

 private:
  int64_t k_, ignore_index_;
};

/// exp of the mean cross-entropy: the number of equally likely tokens that corresponds to the model's uncertainty.
class Perplexity : public MeanMetric {
 public:
  /// Takes the mean cross-entropy (one element) of the `count` targets that are not ignored. A negative count is a
  /// ValueError.
  void update(const Tensor& mean_loss, int64_t count, Loc where = Loc::current());
  /// At least 1. A model that knows nothing has the number of tokens as its perplexity.
  double perplexity() const { return std::exp(mean()); }
};

/// Area under the receiver operating characteristic: the probability that a target 1 has a greater score than a target
/// 0, where equal scores count one half (the U statistic of Mann and Whitney, "On a test of whether one of two random
/// variables is stochastically larger than the other", 1947, divided by the number of pairs; equal to the trapezoidal
/// area). Exact, because all scores are kept.
class RocArea {
 public:
  explicit RocArea(int64_t ignore_index = -100) : ignore_index_(ignore_index) {}
  /// Takes scores, probabilities or logits, and targets 0 or 1 of the same shape (else a ShapeError). NaN is a
  /// ValueError.
  void update(const Tensor& scores, const Tensor& target, Loc where = Loc::current());
  /// Combines the scores of all ranks, on all ranks.
  void all_reduce(dist::ProcessGroup& group);
  void reset() { scores_[0].clear(), scores_[1].clear(); }
  /// Throws a ValueError unless there are targets of both kinds.
  double area() const;

 private:
  int64_t ignore_index_;
  std::vector<double> scores_[2];  // of targets 0 and of targets 1
};

}  // namespace gradus::training
