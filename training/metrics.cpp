#include <gradus/training/metrics.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include <gradus/autograd/ops/creation.h>
#include <gradus/distributed/comm/process_group.h>

namespace gradus::training {
namespace {

int64_t class_axis(const Tensor& target) { return target.dim() > 0 ? 1 : 0; }

void check_scores(const Tensor& scores, const Tensor& target, int64_t classes) {
  Shape expected = target.sizes();
  expected.insert(static_cast<int>(class_axis(target)), classes);
  GRADUS_CHECK(scores.sizes() == expected, ShapeError, "target of shape ", target.sizes(), " needs scores of shape ",
               expected, ", got ", scores.sizes(), "; a binary score becomes a class by scores > 0.5");
}

// Copies integer classes to the host as int64 in row-major order.
Tensor host_classes(const Tensor& classes, const char* what) {
  GRADUS_CHECK(!classes.is_floating_point(), DTypeError, what, " must contain classes, which are integers, got ",
               classes.dtype(), "; convert with .to(kLong)");
  return classes.to(Device(), kLong).contiguous();
}

void check_class(int64_t found, int64_t classes, const char* what, int64_t place, int64_t ignore_index) {
  GRADUS_CHECK(found >= 0 && found < classes, IndexError, what, " ", found, " at element ", place,
               " is not one of the ", classes, " classes 0 to ", classes - 1,
               "; targets to leave out must be ignore_index, ", ignore_index);
}

// Calls f(label, i) for the labels that are not `ignore_index`, after checking that they are classes.
template <class F>
void for_each_label(const Tensor& labels, int64_t classes, int64_t ignore_index, const F& f) {
  const int64_t* const values = labels.data_ptr<int64_t>();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const int64_t label = values[i];
    if (label == ignore_index) continue;
    check_class(label, classes, "target", i, ignore_index);
    f(label, i);
  }
}

// Gathers the numbers of all ranks in the order of the ranks. Each rank must have the same number of them. The numbers
// are on the host, which NCCL groups support, too.
template <class T>
std::vector<T> of_all_ranks(const std::vector<T>& own, dist::ProcessGroup& group) {
  const auto size = std::ssize(own);
  const Array in = Array::empty({size}, dtype_of<T>), out = Array::empty({group.size() * size}, dtype_of<T>);
  std::ranges::copy(own, in.data<T>());
  group.gather_on_host(in, out);
  return {out.data<T>(), out.data<T>() + out.numel()};
}

template <class T>
std::vector<T> sum_of_ranks(const std::vector<T>& own, dist::ProcessGroup& group) {
  std::vector<T> sums(own.size());
  size_t i = 0;
  for (const T number : of_all_ranks(own, group)) sums[i++ % sums.size()] += number;
  return sums;
}

}  // namespace

ConfusionMatrix::ConfusionMatrix(int64_t classes, int64_t ignore_index)
    : classes_(classes), ignore_index_(ignore_index) {
  const OpContext context("ConfusionMatrix");
  GRADUS_CHECK(classes >= 1, ValueError, "there must be at least 1 class, got ", classes);
  counts_.resize(static_cast<size_t>(numel_of({classes, classes})));
}

void ConfusionMatrix::update(const Tensor& predictions, const Tensor& target, Loc where) {
  const OpContext context("ConfusionMatrix::update", where);
  const bool scores = predictions.is_floating_point();
  if (scores) check_scores(predictions, target, classes_);
  GRADUS_CHECK(scores || predictions.sizes() == target.sizes(), ShapeError, "target of shape ", target.sizes(),
               " needs predicted classes of the same shape, got ", predictions.sizes());
  const Tensor wanted = host_classes(target, "target");
  const Tensor found = host_classes(scores ? predictions.argmax(class_axis(target)) : predictions, "predictions");
  const int64_t* const predicted = found.data_ptr<int64_t>();
  std::vector<size_t> cells;  // counted only after all checks, so that a bad batch counts nothing
  for_each_label(wanted, classes_, ignore_index_, [&](int64_t label, int64_t i) {
    check_class(predicted[i], classes_, "prediction", i, ignore_index_);
    cells.push_back(static_cast<size_t>(label * classes_ + predicted[i]));
  });
  for (size_t cell : cells) ++counts_[cell];
}

void ConfusionMatrix::all_reduce(dist::ProcessGroup& group) { counts_ = sum_of_ranks(counts_, group); }
void ConfusionMatrix::reset() { std::ranges::fill(counts_, 0); }
Tensor ConfusionMatrix::matrix() const { return tensor(counts_).view({classes_, classes_}); }

std::vector<ClassCounts> ConfusionMatrix::per_class() const {
  const auto n = static_cast<size_t>(classes_);
  std::vector<ClassCounts> classes(n);
  for (size_t i = 0; i < n * n; ++i) {
    classes[i / n].support += counts_[i];
    classes[i % n].predicted += counts_[i];
    if (i / n == i % n) classes[i / n].true_positives = counts_[i];
  }
  return classes;
}

double ConfusionMatrix::average(double (ClassCounts::*figure)() const, Average how) const {
  const OpContext context("ConfusionMatrix");
  ClassCounts together;
  double sum = 0, present = 0;
  for (const ClassCounts& one : per_class()) {
    together.true_positives += one.true_positives;
    together.predicted += one.predicted;
    together.support += one.support;
    sum += (one.*figure)();  // the figure is 0 if the class does not occur
    present += one.predicted + one.support > 0;
  }
  GRADUS_CHECK(present > 0, ValueError, "no target has been counted: update() it first");
  return how == Average::micro ? (together.*figure)() : sum / present;
}

void MeanMetric::all_reduce(dist::ProcessGroup& group) { sums_ = sum_of_ranks(sums_, group); }

double MeanMetric::mean() const {
  const OpContext context("MeanMetric::mean");
  GRADUS_CHECK(sums_[1] > 0, ValueError, "no target has been counted: update() it first");
  return sums_[0] / sums_[1];
}

TopK::TopK(int64_t k, int64_t ignore_index) : k_(k), ignore_index_(ignore_index) {
  const OpContext context("TopK");
  GRADUS_CHECK(k >= 1, ValueError, "k must be at least 1, got ", k);
}

void TopK::update(const Tensor& scores, const Tensor& target, Loc where) {
  const OpContext context("TopK::update", where);
  const int64_t axis = class_axis(target), classes = scores.dim() > axis ? scores.size(axis) : k_;
  check_scores(scores, target, classes);
  const Tensor labels = host_classes(target, "target");
  const Tensor best = std::get<1>(scores.detach().topk(k_, axis));  // (N, k, d…)
  const Tensor hits = host_classes(best.eq(labels.to(best.device()).unsqueeze(axis)).any(axis), "hits");
  double right = 0, all = 0;
  for_each_label(labels, classes, ignore_index_, [&](int64_t, int64_t i) {
    right += static_cast<double>(hits.data_ptr<int64_t>()[i]);
    ++all;
  });
  sums_ = {sums_[0] + right, sums_[1] + all};
}

void Perplexity::update(const Tensor& mean_loss, int64_t count, Loc where) {
  const OpContext context("Perplexity::update", where);
  GRADUS_CHECK(count >= 0, ValueError, "the number of targets must not be negative, got ", count);
  const double loss = mean_loss.item<double>(where), targets = static_cast<double>(count);
  if (count > 0) sums_ = {sums_[0] + loss * targets, sums_[1] + targets};  // without targets, the mean loss is NaN
}

void RocArea::update(const Tensor& scores, const Tensor& target, Loc where) {
  const OpContext context("RocArea::update", where);
  GRADUS_CHECK(scores.sizes() == target.sizes(), ShapeError, "scores of shape ", scores.sizes(),
               " need a target of the same shape, got ", target.sizes(),
               "; of probabilities (N, 2) take scores.select(1, 1)");
  const Tensor classes = host_classes(target, "target"), values = scores.detach().to(Device(), kDouble).contiguous();
  std::vector<double> added[2];
  for_each_label(classes, 2, ignore_index_, [&](int64_t label, int64_t i) {
    const double score = values.data_ptr<double>()[i];
    GRADUS_CHECK(!std::isnan(score), ValueError, "the score at element ", i, " is NaN and cannot be ranked");
    added[label].push_back(score);
  });
  for (int i : {0, 1}) scores_[i].insert(scores_[i].end(), added[i].begin(), added[i].end());
}

void RocArea::all_reduce(dist::ProcessGroup& group) {
  for (std::vector<double>& scores : scores_) {
    const int64_t longest = std::ranges::max(of_all_ranks(std::vector{std::ssize(scores)}, group));
    std::vector<double> padded = scores;  // padded with NaN, which is never a score, to equal lengths on all ranks
    padded.resize(static_cast<size_t>(longest), std::numeric_limits<double>::quiet_NaN());
    if (longest > 0) scores = of_all_ranks(padded, group);
    std::erase_if(scores, [](double score) { return std::isnan(score); });
  }
}

double RocArea::area() const {
  const OpContext context("RocArea::area");
  std::vector<double> zeros = scores_[0];
  GRADUS_CHECK(!zeros.empty() && !scores_[1].empty(), ValueError, "needs targets of both kinds, got ", zeros.size(),
               " times 0 and ", scores_[1].size(), " times 1: update() it with more data first");
  std::ranges::sort(zeros);
  double pairs = 0;  // a sum of multiples of 1/2, so it is exact
  for (double score : scores_[1]) {
    const auto [first, last] = std::equal_range(zeros.begin(), zeros.end(), score);
    pairs += 0.5 * static_cast<double>((first - zeros.begin()) + (last - zeros.begin()));
  }
  return pairs / static_cast<double>(zeros.size()) / static_cast<double>(scores_[1].size());
}

}  // namespace gradus::training
