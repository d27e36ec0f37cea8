// Metrics that are computed batch by batch, on a single rank or on all ranks. The definitions are those of scikit-learn
// and torchmetrics; a quotient whose divisor is 0 is 0 (zero_division=0).
//
//   training::ConfusionMatrix confusion(10);
//   for (auto& batch : loader) confusion.update(net->forward(batch.data), batch.target);
//   confusion.all_reduce(*group);  // if there are several ranks
//   confusion.accuracy(), confusion.f1(), confusion.per_class()[3].recall(), …
//
// Targets are classes of shape (N, d…): integers (else a DTypeError) from 0 to the number of classes minus 1 (else an
// IndexError). Targets equal to ignore_index, by default -100 as in cross_entropy, are skipped. Tensors may be on any
// device and need not be contiguous; counts are on the host. If update() throws an exception, it counts nothing of its
// batch. A mean over no targets is a ValueError.
//
// After all_reduce(), each rank has the metric of all ranks together. All ranks must call it, once, at the end: a
// second call would multiply all counts by the number of ranks.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <gradus/autograd/tensor.h>

namespace gradus::dist {
class ProcessGroup;
}

namespace gradus::training {

/// Counts of one class: its correct predictions, all its predictions, and all its targets (its support).
struct ClassCounts {
  int64_t true_positives = 0, predicted = 0, support = 0;

  /// The share of the predictions of this class that are correct.
  double precision() const { return share(true_positives, predicted); }
  /// The share of the targets of this class that were predicted correctly.
  double recall() const { return share(true_positives, support); }
  /// The harmonic mean of precision and recall. For a segmentation, this is the Dice coefficient.
  double f1() const { return share(2 * true_positives, predicted + support); }
  /// Intersection over union, the Jaccard index.
  double iou() const { return share(true_positives, predicted + support - true_positives); }

 private:
  static double share(int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  }
};

/// How a figure of classes is averaged. macro: the mean over all classes that occur as targets or predictions. micro:
/// the figure that results from the sums of the counts of all classes.
enum class Average : uint8_t { macro, micro };

/// Counts how often each class was predicted for each target class.
class ConfusionMatrix {
 public:
  /// Classes are 0 to classes - 1. Fewer than one class is a ValueError.
  explicit ConfusionMatrix(int64_t classes, int64_t ignore_index = -100);

  /// Counts targets (N, d…) and their predictions. Predictions are either floating-point scores (N, C, d…), where the
  /// class with the greatest score is predicted (the first class if scores are equal), or predicted classes (N, d…),
  /// integers or booleans. Other shapes are a ShapeError.
  void update(const Tensor& predictions, const Tensor& target, Loc where = Loc::current());
  /// Replaces the counts on each rank by the sums over all ranks.
  void all_reduce(dist::ProcessGroup& group);
  void reset();

  /// int64 (C, C): element (i, j) is the number of targets of class i that were predicted as class j.
  Tensor matrix() const;
  /// The counts of each class, from class 0.
  std::vector<ClassCounts> per_class() const;

  /// The share of targets that were predicted correctly. The micro averages of precision, recall and f1 are equal to
  /// it.
  double accuracy() const { return average(&ClassCounts::recall, Average::micro); }
  /// The functions below average the figures of ClassCounts over the classes.
  double precision(Average how = Average::macro) const { return average(&ClassCounts::precision, how); }
  double recall(Average how = Average::macro) const { return average(&ClassCounts::recall, how); }
  double f1(Average how = Average::macro) const { return average(&ClassCounts::f1, how); }
  double mean_iou() const { return average(&ClassCounts::iou, Average::macro); }

 private:
  double average(double (ClassCounts::*figure)() const, Average how) const;

  int64_t classes_, ignore_index_;
  std::vector<int64_t> counts_;  // shape (C, C)
};

/// The base of metrics that are a mean over targets.
class MeanMetric {
 public:
  /// Makes the mean on each rank the mean over the targets of all ranks.
  void all_reduce(dist::ProcessGroup& group);
  void reset() { sums_ = {0, 0}; }
  /// The mean over all targets since reset(). Throws a ValueError if there are none.
  double mean() const;

 protected:
  std::vector<double> sums_ = {0, 0};  // sum of the values, number of targets
};

/// The share of targets that are among the k classes with the greatest scores. Among equal scores, lower classes come
/// first.
class TopK : public MeanMetric {
 public:
  /// A k below 1 is a ValueError.
  explicit TopK(int64_t k, int64_t ignore_index = -100);
  /// Takes scores (N, C, d…) and targets (N, d…). Other shapes are a ShapeError, and a k above C is an IndexError.
  void update(const Tensor& scores, const Tensor& target, Loc where = Loc::current());
  /// The share as a number in [0, 1].
  double accuracy() const { return mean(); }

 private:
  int64_t k_, ignore_index_;
};

/// The exponential of the mean cross-entropy. A model is as uncertain as if it chose among this number of equally
/// likely tokens.
struct Perplexity : MeanMetric {
  /// Takes the mean cross-entropy (one element) of a batch, and the number of its targets that were not ignored. A
  /// negative count is a ValueError.
  void update(const Tensor& mean_loss, int64_t count, Loc where = Loc::current());
  /// At least 1. For a model that predicts all tokens with equal probability, this is the size of the vocabulary.
  double perplexity() const { return std::exp(mean()); }
};

/// Area under the receiver operating characteristic: the probability that a target 1 has a greater score than a target
/// 0, where equal scores count one half (the U statistic of Mann and Whitney, "On a test of whether one of two random
/// variables is stochastically larger than the other", 1947, divided by the number of pairs; equal to the trapezoidal
/// area). Exact, because all scores are kept.
class RocArea {
 public:
  explicit RocArea(int64_t ignore_index = -100) : ignore_index_(ignore_index) {}
  /// Takes scores (probabilities or logits) and targets, 0 or 1, of the same shape (else a ShapeError). A NaN among the
  /// scores is a ValueError.
  void update(const Tensor& scores, const Tensor& target, Loc where = Loc::current());
  /// Gives each rank the scores of all ranks.
  void all_reduce(dist::ProcessGroup& group);
  void reset() { scores_[0].clear(), scores_[1].clear(); }
  /// The area. Throws a ValueError unless there are targets 0 and targets 1.
  double area() const;

 private:
  int64_t ignore_index_;
  std::vector<double> scores_[2];  // [0]: the scores of targets 0; [1]: of targets 1
};

}  // namespace gradus::training
