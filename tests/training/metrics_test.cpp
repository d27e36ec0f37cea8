// Compares metrics with values in the manuals of scikit-learn and torchmetrics, and with simple, slow implementations.
#include <cmath>
#include <limits>

#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/distributed/ranks.h>
#include <gradus/training/metrics.h>

using namespace gradus;
using test::contains;
using training::Average;
using training::ConfusionMatrix;
using training::Perplexity;
using training::RocArea;
using training::TopK;

namespace {

Tensor labels(const std::vector<int64_t>& classes) { return tensor(classes); }

/// Returns scores (N, C) in which the class of each target has the greatest score.
Tensor scores_of(const Tensor& classes, int64_t count) { return one_hot(classes, count).to(kFloat) - 0.5; }

/// Returns the number of true elements.
double count_of(const Tensor& condition) { return condition.to(kDouble).sum().item<double>(); }

/// Returns the share of the pairs of a target 1 and a target 0 in which the target 1 has the greater score. Equal
/// scores count one half.
double area_of_pairs(const std::vector<double>& scores, const std::vector<int64_t>& targets) {
  double won = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i)
    for (size_t j = 0; j < scores.size(); ++j)
      if (targets[i] == 1 && targets[j] == 0) {
        won += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
        ++pairs;
      }
  return won / pairs;
}

double area_of(const std::vector<double>& scores, const std::vector<int64_t>& targets) {
  RocArea metric;
  metric.update(tensor(scores), labels(targets));
  return metric.area();
}

}  // namespace

TEST_CASE("the confusion matrix and its averages equal those of scikit-learn", "[metrics]") {
  // sklearn.metrics.precision_score(y_true, y_pred, average=…, zero_division=0) and so on.
  const Tensor target = labels({0, 1, 2, 0, 1, 2}), predicted = labels({0, 2, 1, 0, 0, 1});
  ConfusionMatrix confusion(3);
  if (GENERATE(false, true)) confusion.update(scores_of(predicted, 3), target);
  else confusion.update(predicted, target);
  CHECK(confusion.matrix().equal(tensor({{2, 0, 0}, {1, 0, 1}, {0, 2, 0}}, kLong)));
  CHECK(confusion.accuracy() == Approx(2.0 / 6));
  CHECK(confusion.precision() == Approx(2.0 / 9));
  CHECK(confusion.recall() == Approx(1.0 / 3));
  CHECK(confusion.f1() == Approx(0.8 / 3));
  CHECK(confusion.mean_iou() == Approx(2.0 / 9));
  CHECK(confusion.precision(Average::micro) == Approx(2.0 / 6));
  CHECK(confusion.recall(Average::micro) == Approx(2.0 / 6));
  CHECK(confusion.f1(Average::micro) == Approx(2.0 / 6));
  const auto classes = confusion.per_class();
  REQUIRE(classes.size() == 3);
  CHECK(classes[0].precision() == Approx(2.0 / 3));
  CHECK(classes[0].recall() == 1);
  CHECK(classes[0].f1() == Approx(0.8));
  CHECK(classes[0].iou() == Approx(2.0 / 3));
  CHECK(classes[1].precision() == 0);
  CHECK(classes[2].support == 2);
}

TEST_CASE("classes that are never predicted or never occur", "[metrics]") {
  ConfusionMatrix confusion(5);
  confusion.update(labels({0, 0, 0, 1}), labels({0, 0, 2, 1}));  // 2 is never predicted; 3 and 4 do not occur
  const auto classes = confusion.per_class();
  CHECK(classes[2].precision() == 0);
  CHECK(classes[2].f1() == 0);
  CHECK(classes[4].iou() == 0);
  CHECK(confusion.precision() == Approx((2.0 / 3 + 1 + 0) / 3));
  CHECK(confusion.recall() == Approx(2.0 / 3));
  CHECK(confusion.mean_iou() == Approx((2.0 / 3 + 1 + 0) / 3));

  ConfusionMatrix one(1);
  one.update(zeros({4, 1}), zeros({4}, kLong));
  CHECK(one.matrix().equal(full({1, 1}, 4, kLong)));
  CHECK(one.accuracy() == 1);
  CHECK(one.f1() == 1);
  CHECK(one.mean_iou() == 1);
}

TEST_CASE("counts of many labels, in parts and in one update", "[metrics]") {
  const int64_t count = 300, classes = 6;
  const Tensor target = randint(0, classes - 1, {count}), logits = randn({count, classes});  // without the last class
  const Tensor predicted = logits.argmax(1);
  ConfusionMatrix whole(classes), parts(classes);
  whole.update(logits, target);
  for (int64_t i = 0; i < count; i += 70) {
    const int64_t size = std::min<int64_t>(70, count - i);
    parts.update(logits.narrow(0, i, size), target.narrow(0, i, size));
    parts.update(logits.narrow(0, i, 0), target.narrow(0, i, 0));  // empty
  }
  CHECK(parts.matrix().equal(whole.matrix()));
  double precision = 0, recall = 0, f1 = 0, iou = 0;
  for (int64_t c = 0; c < classes; ++c) {
    for (int64_t d = 0; d < classes; ++d)
      CHECK(whole.matrix()[c][d].item<double>() == count_of((target == c) & (predicted == d)));
    const double both = count_of((target == c) & (predicted == c)), either = count_of((target == c) | (predicted == c));
    const double support = count_of(target == c), found = count_of(predicted == c);
    precision += both / found;
    recall += support > 0 ? both / support : 0;
    f1 += 2 * both / (support + found);
    iou += both / either;
  }
  CHECK(whole.accuracy() == Approx(count_of(target == predicted) / count));
  CHECK(whole.precision() == Approx(precision / classes));
  CHECK(whole.recall() == Approx(recall / classes));
  CHECK(whole.f1() == Approx(f1 / classes));
  CHECK(whole.mean_iou() == Approx(iou / classes));

  ConfusionMatrix copy = whole;
  whole.reset();
  CHECK(whole.matrix().equal(zeros({classes, classes}, kLong)));
  CHECK(copy.matrix().equal(parts.matrix()));
}

TEST_CASE("metrics of images, of any layout, type and device", "[metrics]") {
  const std::vector<Device> devices =
      cuda::is_available() ? std::vector<Device>{kCPU, kCUDA} : std::vector<Device>{kCPU};
  const Tensor pixels = randn({2, 4, 5, 3}), target = randint(0, 3, {2, 4, 5});  // (N, H, W, C)
  const Tensor logits = pixels.permute({0, 3, 1, 2});                            // not contiguous
  ConfusionMatrix expected(3), expected_rest(3);
  expected.update(pixels.reshape({-1, 3}), target.reshape({-1}));
  const Tensor rest = target.slice(2, 1);
  expected_rest.update(logits.slice(3, 1).contiguous(), rest.contiguous());
  Tensor ignoring = target.to(kByte);
  ignoring.select(2, 0).fill_(255);
  for (Device device : devices) {
    ConfusionMatrix confusion(3), of_classes(3), left_out(3, 255);
    confusion.update(logits.to(device).requires_grad_(), target.to(device));
    CHECK(confusion.matrix().equal(expected.matrix()));
    of_classes.update(logits.to(device).argmax(1).to(kInt).transpose(1, 2), target.transpose(1, 2));
    CHECK(of_classes.matrix().equal(expected.matrix()));
    left_out.update(logits.to(device), ignoring.to(device));
    CHECK(left_out.matrix().equal(expected_rest.matrix()));
    TopK first(1, 255);
    first.update(logits.to(device).requires_grad_(), ignoring);
    CHECK(first.accuracy() == Approx(expected_rest.accuracy()));
    RocArea whole, image;
    whole.update(logits.select(1, 0).reshape({-1}), (target == 0).reshape({-1}));
    image.update(logits.to(device).select(1, 0), target.to(device) == 0);
    CHECK(image.area() == whole.area());
  }
  ConfusionMatrix binary(2), half(2), single(3);
  binary.update(tensor({0.2, 0.7, 0.9}) > 0.5, tensor({0, 0, 1}, kBool));
  CHECK(binary.matrix().equal(tensor({{1, 1}, {0, 1}}, kLong)));
  half.update(tensor({{0.2, 0.7}, {3.0, 3.0}}).to(kHalf), labels({1, 0}));  // the first of equal scores is chosen
  CHECK(half.accuracy() == 1);
  single.update(tensor({0.1, 0.3, 0.2}), tensor(1));  // without a batch dimension
  CHECK(single.accuracy() == 1);
}

TEST_CASE("top-k accuracy", "[metrics]") {
  // In the example of sklearn.metrics.top_k_accuracy_score, three of four targets are among the two best classes.
  const Tensor scores = tensor({{0.5, 0.2, 0.2}, {0.3, 0.4, 0.2}, {0.2, 0.4, 0.3}, {0.7, 0.2, 0.1}});
  const Tensor target = labels({0, 1, 2, 2});
  TopK two(2), all(3), parts(2);
  two.update(scores, target);
  CHECK(two.accuracy() == 0.75);
  all.update(scores, target);
  CHECK(all.accuracy() == 1);
  parts.update(scores.narrow(0, 0, 3), target.narrow(0, 0, 3));
  parts.update(scores.narrow(0, 3, 1), target.narrow(0, 3, 1));
  CHECK(parts.accuracy() == 0.75);
  parts.update(scores, labels({-100, -100, -100, 2}));
  CHECK(parts.accuracy() == Approx(3.0 / 5));
  parts.reset();
  CHECK_THROWS_WITH(parts.accuracy(), contains("no target has been counted"));
  parts.update(scores, labels({1, -100, 0, 2}));
  CHECK(parts.accuracy() == Approx(1.0 / 3));
  TopK none(1);
  none.update(scores, labels({1, 0, 0, 1}));
  CHECK(none.accuracy() == 0);

  // With k = 1, TopK predicts the same class as a ConfusionMatrix, also for equal scores.
  const Tensor coarse = randint(0, 3, {100, 4}).to(kFloat), classes = randint(0, 4, {100});
  TopK best(1), single(2);
  ConfusionMatrix confusion(4);
  best.update(coarse, classes);
  confusion.update(coarse, classes);
  CHECK(best.accuracy() == Approx(confusion.accuracy()));
  single.update(tensor({0.1, 0.3, 0.2}), tensor(2));  // without a batch dimension
  CHECK(single.accuracy() == 1);
}

TEST_CASE("ROC area is the share of pairs in the right order", "[metrics]") {
  CHECK(area_of({0.1, 0.4, 0.35, 0.8}, {0, 0, 1, 1}) == 0.75);  // the example of sklearn.metrics.roc_auc_score
  CHECK(area_of({1, 2, 3}, {0, 0, 1}) == 1);
  CHECK(area_of({1, 2, 3}, {1, 1, 0}) == 0);
  CHECK(area_of({2, 2, 2, 2, 2}, {1, 0, 1, 0, 0}) == 0.5);
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(area_of({-infinity, infinity, infinity}, {0, 0, 1}) == 0.75);

  std::vector<double> scores;
  std::vector<int64_t> targets;
  for (int i = 0; i < 211; ++i) {
    targets.push_back(std::uniform_int_distribution<int64_t>(0, 2)(test::engine()) == 0);
    scores.push_back(std::uniform_int_distribution<int>(0, 12)(test::engine()) +
                     2.0 * static_cast<double>(targets.back()));  // ties
  }
  const double expected = area_of_pairs(scores, targets);
  CHECK(area_of(scores, targets) == Approx(expected));
  RocArea parts;
  const Tensor all = tensor(scores), which = labels(targets);
  for (int64_t i = 0; i < 211; i += 50) {
    const int64_t size = std::min<int64_t>(50, 211 - i);
    parts.update(all.narrow(0, i, size), which.narrow(0, i, size));
  }
  parts.update(all, full({211}, -100, kLong));  // ignored
  CHECK(parts.area() == area_of(scores, targets));
  parts.reset();
  CHECK_THROWS_WITH(parts.area(), contains("[RocArea::area]") && contains("0 times 0 and 0 times 1"));
}

TEST_CASE("perplexity is exp of the mean over all tokens", "[metrics]") {
  const Tensor logits = randn({40, 7}, kDouble), target = randint(0, 7, {40});
  target.narrow(0, 0, 5).fill_(-100);
  const std::vector<int64_t> bounds = {0, 5, 8, 30, 40};  // the first part is ignored
  Perplexity perplexity;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    const Tensor x = logits.slice(0, bounds[i], bounds[i + 1]), y = target.slice(0, bounds[i], bounds[i + 1]);
    perplexity.update(cross_entropy(x, y), y.ne(-100).sum().item<int64_t>());
  }
  CHECK(perplexity.mean() == Approx(cross_entropy(logits, target).item<double>()));
  CHECK(perplexity.perplexity() == Approx(std::exp(cross_entropy(logits, target).item<double>())));
  Perplexity uniform;
  uniform.update(cross_entropy(zeros({3, 7}), labels({1, 2, 3})), 3);
  CHECK(uniform.perplexity() == Approx(7));
  uniform.reset();
  uniform.update(cross_entropy(zeros({1, 5}), labels({2})), 1);
  CHECK(uniform.perplexity() == Approx(5));
}

TEST_CASE("all_reduce gives all ranks the metrics of all", "[metrics]") {
  const Tensor logits = randn({20, 3}), target = randint(0, 3, {20}), losses = rand({4}, kDouble);
  const Tensor kinds = tensor({0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0}, kLong);
  const std::vector<int64_t> begins = {0, 3, 3, 11, 20};  // rank 1 has no targets, rank 0 no target 1
  struct Metrics {
    ConfusionMatrix confusion{3};
    TopK top{2};
    RocArea area;
    Perplexity perplexity;
  };
  const auto update = [&](Metrics& metrics, size_t rank) {
    const int64_t begin = begins[rank], end = begins[rank + 1];
    const Tensor x = logits.slice(0, begin, end), y = target.slice(0, begin, end);
    metrics.confusion.update(x, y);
    metrics.top.update(x, y);
    metrics.area.update(x.select(1, 0), kinds.slice(0, begin, end));
    metrics.perplexity.update(losses[static_cast<int64_t>(rank)], end - begin);
  };
  Metrics whole;
  for (size_t rank = 0; rank < 4; ++rank) update(whole, rank);
  std::vector<Metrics> of_ranks(4);
  test::expect_ranks("local", 4, [&](dist::ProcessGroup& group) {
    Metrics& own = of_ranks[static_cast<size_t>(group.rank())];
    update(own, static_cast<size_t>(group.rank()));
    own.confusion.all_reduce(group);
    own.top.all_reduce(group);
    own.area.all_reduce(group);
    own.perplexity.all_reduce(group);
    RocArea none, few;
    none.all_reduce(group);
    if (group.rank() < 2) few.update(tensor({0.5}), labels({group.rank()}));  // no rank has more than one score
    few.all_reduce(group);
    if (few.area() != 0.5) throw ValueError("the area must be 0.5");
  });
  for (const Metrics& own : of_ranks) {
    CHECK(own.confusion.matrix().equal(whole.confusion.matrix()));
    CHECK(own.top.accuracy() == whole.top.accuracy());
    CHECK(own.area.area() == whole.area.area());
    CHECK(own.perplexity.mean() == Approx(whole.perplexity.mean()));
    CHECK(own.perplexity.mean() == of_ranks[0].perplexity.mean());
  }
}

TEST_CASE("invalid input of metrics is an error, and nothing is counted", "[metrics]") {
  ConfusionMatrix confusion(3);
  CHECK_THROWS_WITH(confusion.accuracy(), contains("[ConfusionMatrix] no target has been counted"));
  CHECK_THROWS_AS(confusion.f1(), ValueError);
  CHECK_THROWS_WITH(confusion.update(labels({0, 1}), labels({1, 3})),
                    contains("[ConfusionMatrix::update] target 3 at element 1 is not one of the 3 classes 0 to 2") &&
                        contains("ignore_index, -100") && contains("metrics_test.cpp"));
  CHECK_THROWS_AS(confusion.update(labels({0, 1}), labels({1, -1})), IndexError);
  CHECK_THROWS_WITH(confusion.update(labels({0, 4}), labels({1, 1})), contains("prediction 4 at element 1"));
  CHECK_THROWS_WITH(confusion.update(zeros({2, 4}), labels({1, 1})), contains("(2, 3), got (2, 4)"));
  CHECK_THROWS_AS(confusion.update(zeros({2, 3, 2}), labels({1, 1})), ShapeError);
  CHECK_THROWS_WITH(confusion.update(zeros({2}), labels({1, 1})), contains("scores > 0.5"));
  CHECK_THROWS_WITH(confusion.update(labels({1}), labels({1, 1})), contains("same shape, got (1"));
  CHECK_THROWS_WITH(confusion.update(zeros({2, 3}), zeros({2})), contains("integers, got float32"));
  CHECK_THROWS_AS(confusion.update(zeros({2, 3}), Tensor()), Error);
  CHECK(confusion.matrix().equal(zeros({3, 3}, kLong)));
  confusion.update(labels({7, 1}), labels({-100, 1}));  // the prediction for an ignored target need not be a class
  CHECK(confusion.matrix().sum().item<int64_t>() == 1);
  CHECK_THROWS_WITH(ConfusionMatrix(0), contains("at least 1 class, got 0"));
  CHECK_THROWS_AS(ConfusionMatrix(int64_t{1} << 40), ShapeError);

  CHECK_THROWS_WITH(TopK(0), contains("k must be at least 1, got 0"));
  TopK top(4);
  CHECK_THROWS_WITH(top.update(zeros({2, 3}), labels({0, 1})), contains("[TopK::update] k is 4") && contains("(2, 3)"));
  CHECK_THROWS_AS(top.update(zeros({2, 5}), labels({0, 1, 2})), ShapeError);
  CHECK_THROWS_AS(top.update(zeros({2}), labels({0, 1})), ShapeError);
  CHECK_THROWS_AS(top.update(zeros({2, 5}), labels({0, 5})), IndexError);
  CHECK_THROWS_AS(top.update(zeros({2, 5}), zeros({2})), DTypeError);
  CHECK_THROWS_AS(top.accuracy(), ValueError);

  RocArea area;
  CHECK_THROWS_WITH(area.update(zeros({2, 2}), labels({0, 1})), contains("select(1, 1)"));
  CHECK_THROWS_AS(area.update(zeros({2}), labels({0, 2})), IndexError);
  CHECK_THROWS_AS(area.update(zeros({2}), zeros({2})), DTypeError);
  CHECK_THROWS_WITH(area.update(tensor({0.0, std::nan("")}), labels({0, 1})), contains("element 1 is NaN"));
  CHECK_THROWS_WITH(area.area(), contains("0 times 0"));
  area.update(zeros({2}), labels({1, 1}));
  CHECK_THROWS_WITH(area.area(), contains("0 times 0 and 2 times 1"));
  area.reset();
  area.update(zeros({3}), labels({0, 0, 0}));
  CHECK_THROWS_WITH(area.area(), contains("3 times 0 and 0 times 1"));

  Perplexity perplexity;
  CHECK_THROWS_AS(perplexity.update(zeros({2}), 2), ShapeError);
  CHECK_THROWS_WITH(perplexity.update(zeros({}), -1), contains("got -1"));
  CHECK_THROWS_AS(perplexity.perplexity(), ValueError);
}
