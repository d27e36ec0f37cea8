// Metrics that grow batch by batch, of one rank or of all. Definitions after scikit-learn and torchmetrics: what would
// be divided by zero is 0 (zero_division=0).
//
//   training::ConfusionMatrix confusion(10);
//   for (auto& batch : loader) confusion.update(net->forward(batch.data), batch.target);
//   confusion.all_reduce(*group);  // where there are several ranks
//   confusion.accuracy(), confusion.f1(), confusion.per_class()[3].recall(), …
//
// Targets are classes, whole numbers from 0 (else a DTypeError or an IndexError), of shape (N, d…); those equal to
// ignore_index, by default that of cross_entropy, are left out. Tensors may be on any device and need not be
// contiguous; counts are on the host. An update that throws counts nothing. A mean over no targets is a ValueError.
//
// all_reduce() makes a metric that of all ranks, on all of them. They call it once, at the end: a second call would
// count everything as many times as there are ranks.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::dist {
class ProcessGroup;
}

namespace gradus::training {

/// How often a class was predicted, was the target (its support), and both.
struct ClassCounts {
  int64_t true_positives = 0, predicted = 0, support = 0;

  /// The share of those predicted that are of the class.
  double precision() const { return share(true_positives, predicted); }
  /// The share of those of the class that were predicted.
  double recall() const { return share(true_positives, support); }
  /// The harmonic mean of precision and recall; the Dice coefficient of a segmentation.
  double f1() const { return share(2 * true_positives, predicted + support); }
  /// Intersection over union, the Jaccard index.
  double iou() const { return share(true_positives, predicted + support - true_positives); }

 private:
  static double share(int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  }
};

/// The mean over the classes that are targets or were predicted, or the figure of the counts of all classes together.
enum class Average : uint8_t { macro, micro };

/// How often which class was taken for which.
class ConfusionMatrix {
 public:
  /// Of classes 0 to classes - 1; fewer than one are a ValueError.
  explicit ConfusionMatrix(int64_t classes, int64_t ignore_index = -100);

  /// Counts targets (N, d…) with floating scores (N, C, d…), of which the greatest is predicted and the first of equal
  /// ones, or with predicted classes (N, d…), whole numbers or booleans. Other shapes are a ShapeError.
  void update(const Tensor& predictions, const Tensor& target, Loc where = Loc::current());
  /// Adds the counts of all ranks, on all of them.
  void all_reduce(dist::ProcessGroup& group);
  void reset();

  /// int64 (C, C): element (i, j) is how many targets i were predicted to be j.
  Tensor matrix() const;
  /// Of each class, in their order.
  std::vector<ClassCounts> per_class() const;

  /// The share of targets that were predicted, which is what the micro averages below are too.
  double accuracy() const { return average(&ClassCounts::recall, Average::micro); }
  /// Those of ClassCounts, over all classes.
  double precision(Average how = Average::macro) const { return average(&ClassCounts::precision, how); }
  double recall(Average how = Average::macro) const { return average(&ClassCounts::recall, how); }
  double f1(Average how = Average::macro) const { return average(&ClassCounts::f1, how); }
  double mean_iou() const { return average(&ClassCounts::iou, Average::macro); }

 private:
  double average(double (ClassCounts::*figure)() const, Average how) const;

  int64_t classes_, ignore_index_;
  std::vector<int64_t> counts_;  // (C, C)
};

/// What metrics share that are a mean over targets.
class MeanMetric {
 public:
  /// Makes it the mean over the targets of all ranks, on all of them.
  void all_reduce(dist::ProcessGroup& group);
  void reset() { sums_ = {0, 0}; }
  /// Of what has been given since reset(); without targets a ValueError.
  double mean() const;

 protected:
  std::vector<double> sums_ = {0, 0};  // of what is averaged, and of targets
};

/// The share of targets that are among the k classes of the greatest scores; of equal scores, the first are.
class TopK : public MeanMetric {
 public:
  /// A k below 1 is a ValueError.
  explicit TopK(int64_t k, int64_t ignore_index = -100);
  /// Scores (N, C, d…), targets (N, d…); other shapes are a ShapeError, a k above C an IndexError.
  void update(const Tensor& scores, const Tensor& target, Loc where = Loc::current());
  /// In [0, 1].
  double accuracy() const { return mean(); }

 private:
  int64_t k_, ignore_index_;
};

/// exp of the mean cross-entropy: the number of equally likely tokens between which a model is as uncertain.
class Perplexity : public MeanMetric {
 public:
  /// The mean cross-entropy, one element, of the `count` targets that are not ignored; fewer than 0 are a ValueError.
  void update(const Tensor& mean_loss, int64_t count, Loc where = Loc::current());
  /// At least 1; that of a model that knows nothing is the number of tokens.
  double perplexity() const { return std::exp(mean()); }
};

/// Area under the receiver operating characteristic: the probability that a target 1 has a greater score than a target
/// 0, equal scores counting one half (the U of Mann and Whitney, "On a test of whether one of two random variables is
/// stochastically larger than the other", 1947, over all pairs; the area by trapezoids). Exact: all scores are kept.
class RocArea {
 public:
  explicit RocArea(int64_t ignore_index = -100) : ignore_index_(ignore_index) {}
  /// Scores, probabilities or logits, and targets 0 or 1, both of one shape, else a ShapeError. NaN is a ValueError.
  void update(const Tensor& scores, const Tensor& target, Loc where = Loc::current());
  /// Makes it the area over the scores of all ranks, on all of them.
  void all_reduce(dist::ProcessGroup& group);
  void reset() { scores_[0].clear(), scores_[1].clear(); }
  /// Without targets of both kinds it is a ValueError.
  double area() const;

 private:
  int64_t ignore_index_;
  std::vector<double> scores_[2];  // of targets 0 and of targets 1
};

}  // namespace gradus::training
