#include <gradus/distributed/parallel/verify.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <limits>
#include <sstream>

#include <gradus/autograd/autograd.h>
#include <gradus/core/runtime/random.h>
#include <gradus/layers/dropout.h>
#include <gradus/layers/norm.h>

namespace gradus::dist {
namespace {

using Observation = VerifyReport::Observation;
using Kind = VerifyReport::Kind;
using State = std::array<nn::StateDict, 3>;  // by Kind
using enum VerifyReport::Kind;
constexpr Kind kKinds[] = {kGradients, kParameters, kBuffers};
constexpr const char* kNames[] = {"gradient", "parameter", "buffer"};

double norm_of(const Tensor& x) { return x.to(kDouble).norm().item<double>(); }

/// The elements of all tensors as one vector.
Tensor joined(const nn::StateDict& tensors) {
  TensorList rows = {empty({0}, kDouble)};  // cat() needs at least one tensor
  for (const auto& item : tensors) rows.push_back(item->to(kDouble).flatten());
  return cat(rows);
}

/// |difference / of|. It is 0 if the difference is 0 and, otherwise, infinite if the quotient is NaN.
double relative(double difference, double of) {
  const double ratio = std::abs(difference / of);
  return difference == 0 ? 0 : std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
}

template <class... Dropouts>
bool drops(nn::Module& module) {
  return ((module.as<Dropouts>() && module.as<Dropouts>()->options.p() > 0) || ...);
}

void find_differences(const State& a, const State& b, Observation& found) {
  for (const Kind kind : kKinds) {
    const double norm = norm_of(joined(b[kind])), least = std::isfinite(norm) ? 1e-3 * norm : 0;
    VerifyReport::Difference& worst = found.differences[kind];
    for (size_t i = 0; i < b[kind].size(); ++i) {
      const Tensor of = b[kind][i]->to(kDouble), there = a[kind][i]->to(kDouble);
      // NaN and infinities have no distance. Tensors with such elements are equal if these are at the same places.
      const bool finite = std::isfinite(norm_of(of) + norm_of(there));
      const double from_b = there.sizes() != of.sizes() ? std::numeric_limits<double>::infinity()
                            : finite                    ? relative(norm_of(there - of), std::max(norm_of(of), least))
                            : there.isfinite().equal(of.isfinite()) ? 0
                                                                    : std::numeric_limits<double>::infinity();
      if (from_b > worst.relative) worst = {from_b, static_cast<double>(i)};
    }
  }
}

}  // namespace

TrainingComparison::TrainingComparison(GroupPtr group, double tolerance) : group_(std::move(group)) {
  GRADUS_CHECK(group_, ValueError, "TrainingComparison needs a process group");
  GRADUS_CHECK(tolerance >= 0, ValueError, "the tolerance must not be negative, got ", tolerance);
  report_.tolerance = tolerance;
}

void TrainingComparison::observe(nn::Module& model, double loss, int64_t samples) {
  const OpContext context("TrainingComparison::observe");
  const NoGradGuard no_grad;
  if (report_.steps.empty()) inspect(model);
  State own;
  const auto add = [&](Kind kind, const std::string& name, const Tensor& x) {
    own[kind].append(name, x.detach().contiguous().to(kCPU, /*non_blocking=*/false, /*copy=*/true));
  };
  Observation found = {loss, static_cast<double>(samples)};
  for (const auto& item : model.named_parameters()) {
    found.gradients += item->grad().defined();
    add(kGradients, item.key(), item->grad().defined() ? item->grad() : zeros_like(*item));
    add(kParameters, item.key(), *item);
  }
  for (const auto& item : model.named_buffers()) add(kBuffers, item.key(), *item);
  for (const Kind kind : {kParameters, kBuffers})
    GRADUS_CHECK(own[kind].keys() == report_.names[kind], ValueError, "the model has other ", kNames[kind],
                 "s than before the first step");
  if (alone_) compare_alone(own, found);
  else compare_ranks(std::move(own), found);
}

void TrainingComparison::inspect(nn::Module& model) {
  device_ = model.parameters().at(0).device();
  const std::vector<std::string> parameters = model.named_parameters().keys();
  report_.names = {parameters, parameters, model.named_buffers().keys()};  // by Kind
  model.apply([&](const std::string& name, nn::Module& module) {
    if (!module.is_training()) return;
    const bool is_dropout =
        drops<nn::DropoutImpl, nn::Dropout2dImpl, nn::AlphaDropoutImpl, nn::FeatureAlphaDropoutImpl>(module);
    if (report_.dropout.empty() && is_dropout) report_.dropout = name;
    const auto* batch_norm = module.as<nn::detail::BatchNormBase>();
    if (report_.batch_norm.empty() && batch_norm && !batch_norm->synchronized && group_->size() > 1)
      report_.batch_norm = name;
  });
}

std::vector<Observation> TrainingComparison::all_gather(const Observation& own) const {
  constexpr int64_t kNumbers = sizeof(Observation) / sizeof(double);
  const Tensor sent = empty({kNumbers}, kDouble);
  const Tensor all = empty({group_->size(), kNumbers}, dtype(kDouble).device(device_));
  std::memcpy(sent.data_ptr(), &own, sizeof(own));
  group_->all_gather(sent.to(device_).array(), all.array());
  std::vector<Observation> gathered(static_cast<size_t>(group_->size()));
  std::memcpy(gathered.data(), all.cpu().data_ptr(), gathered.size() * sizeof(own));
  return gathered;
}

void TrainingComparison::compare_ranks(State own, Observation found) {
  State first;
  for (const Kind kind : kKinds)
    for (const auto& item : own[kind]) {
      const Tensor sent = item->to(device_, /*non_blocking=*/false, /*copy=*/true);
      group_->broadcast(sent.array(), 0);
      first[kind].append(item.key(), sent.to(kCPU));
    }
  find_differences(own, first, found);
  VerifyReport::Step& step = report_.steps.emplace_back();
  step.ranks = all_gather(found);
  for (const Observation& rank : step.ranks)
    if (rank.samples > 0) step.loss += rank.loss * rank.samples, step.samples += rank.samples;
  step.loss /= std::max(1.0, step.samples);
  if (group_->rank() == 0) of_ranks_.push_back(std::move(own));
}

void TrainingComparison::compare_alone(const State& alone, Observation found) {
  GRADUS_CHECK(compared_ < of_ranks_.size(), ValueError, "the ranks made ", of_ranks_.size() - 1,
               " steps, one process made more");
  const State ranks = std::exchange(of_ranks_[compared_], State());
  find_differences(ranks, alone, found);
  const Tensor a = joined(ranks[kGradients]), b = joined(alone[kGradients]);
  if (const double norm = norm_of(b); norm > 0) {
    found.gradient_factor = a.dot(b).item<double>() / (norm * norm);
    found.gradient_rest = norm_of(a - found.gradient_factor * b) / norm;
    const auto parameter = static_cast<size_t>(found.differences[kParameters].index);
    found.parameter_gradient = norm_of(*alone[kGradients][parameter]) / norm;
  }
  const uint64_t offset = default_generator().offset(), before = std::exchange(offset_, offset);
  found.draws = compared_ > 0 && offset != before;
  report_.steps[compared_++].alone = all_gather(found)[0];
}

bool TrainingComparison::alone() {
  GRADUS_CHECK(!alone_ && !report_.steps.empty(), ValueError,
               "TrainingComparison::alone() ends a training over ranks that observe() has seen");
  alone_ = true;
  if (group_->rank() == 0) return true;
  for (; compared_ < report_.steps.size(); ++compared_) report_.steps[compared_].alone = all_gather({})[0];
  return false;
}

VerifyReport TrainingComparison::report() const {
  GRADUS_CHECK(alone_ && compared_ == report_.steps.size(), ValueError, "one process made ", compared_,
               " observations, the ranks ", report_.steps.size());
  return report_;
}

// ---- The diagnosis ----

namespace {

template <class... Parts>
std::string text(const Parts&... parts) {
  gradus::detail::Message message;
  (message << ... << parts);
  return std::move(message).take();
}

/// For example "gradient 'fc.weight'".
std::string named(const VerifyReport& report, Kind kind, const VerifyReport::Difference& of) {
  return text(kNames[kind], " '", report.names[kind][static_cast<size_t>(of.index)], "'");
}

std::string cause_of_batch_norm(const VerifyReport& report) {
  return text("batch norm '", report.batch_norm,
              "' uses the statistics of each rank's part alone; nn::convert_sync_batchnorm makes them those of all");
}

std::string cause_between_ranks(const VerifyReport& report, size_t step, Kind kind) {
  if (step == 0) return "it began with different numbers (another seed?); DistributedDataParallel copies rank 0's";
  if (kind == kGradients) return "gradients are not averaged over the ranks, as DistributedDataParallel does";
  if (kind == kParameters) return "with the same gradients its optimizer made a different step";
  return report.batch_norm.empty() ? "nothing copies it from rank 0" : cause_of_batch_norm(report);
}

std::string cause_of_loss(const std::vector<Observation>& ranks) {
  for (size_t a = 0; a < ranks.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (ranks[a].samples > 0 && ranks[a].loss == ranks[b].loss)
        return text("ranks ", b, " and ", a, " had the same batch");
  return "the batches of the ranks are not the parts of the whole batch";
}

bool is_uneven(const VerifyReport::Step& step) {
  return std::ranges::adjacent_find(step.ranks, std::not_equal_to(), &Observation::samples) != step.ranks.end();
}

double loss_difference(const VerifyReport::Step& step) {
  return relative(step.loss - step.alone.loss, step.alone.loss);
}

std::string cause_of_gradients(const VerifyReport& report, size_t index) {
  const VerifyReport::Step& step = report.steps[index];
  const double factor = step.alone.gradient_factor, ranks = static_cast<double>(step.ranks.size());
  const auto is_near = [&](double a, double b) { return std::abs(a - b) <= report.tolerance; };
  if (is_near(step.alone.gradient_rest, 0) && !is_near(factor, 1))
    return text("all gradients are ", factor, " times those of one process",
                is_near(factor, ranks) ? ": sums, not averages" : "");
  // A missing weight of the loss shows in the first step whose parts have different sizes.
  if (std::ranges::find_if(report.steps, is_uneven) == report.steps.begin() + static_cast<std::ptrdiff_t>(index)) {
    std::string samples;
    for (const Observation& rank : step.ranks) samples += text(samples.empty() ? "" : ", ", rank.samples);
    return text("parts have ", samples,
                " samples: multiply each rank's mean loss by DistributedDataParallel::loss_weight");
  }
  return "one step earlier all was equal, so it may be rounding, amplified by activations near 0 or the learning rate";
}

/// The cause of a difference between the training in one process and the training over ranks, in a step in which the
/// ranks do not differ from each other. `kind` says what differs; std::nullopt stands for the losses.
std::string cause_from_alone(const VerifyReport& report, size_t step, std::optional<Kind> kind) {
  const Observation& alone = report.steps[step].alone;
  if (step == 0) return "the two trainings began with different numbers";
  if (!report.dropout.empty())
    return text("dropout '", report.dropout,
                "' draws different numbers on each rank, which hides other differences: compare with p = 0");
  if (alone.draws != 0)
    return "each rank draws different random numbers in the step (augmentation on a device?): compare without them";
  if (!report.batch_norm.empty()) return cause_of_batch_norm(report);
  if (!kind) return cause_of_loss(report.steps[step].ranks);
  if (kind == kGradients) return cause_of_gradients(report, step);
  if (kind == kBuffers) return "it comes from rank 0, which saw only its own part of the batch";
  if (alone.parameter_gradient >= 1e-6) return "with the same gradients the optimizer made a different step";
  return "its gradient is 0 except for rounding, which the optimizer turns into steps; omit a bias before batch norm";
}

}  // namespace

std::string VerifyReport::diagnosis() const {
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& [ranks, loss, samples, alone] = steps[i];
    const std::string when = i == 0 ? "before training" : text("in step ", i);
    if (!std::isfinite(alone.loss))
      return text(when, ", the loss of one process alone is ", alone.loss,
                  ", which the ranks have not caused: "
                  "AnomalyGuard names the operator that produced it, or says that it was in the data");
    for (const Kind kind : kKinds)
      for (size_t rank = 0; rank < ranks.size(); ++rank)
        if (const Difference& found = ranks[rank].differences[kind]; found.relative > tolerance)
          return text(when, ", rank ", rank, "'s ", named(*this, kind, found), " is not rank 0's (relative difference ",
                      found.relative, "): ", cause_between_ranks(*this, i, kind));
    if (samples != alone.samples)
      return text(when, ", the ranks have ", samples, " samples and one process ", alone.samples);
    if (loss_difference(steps[i]) > tolerance)
      return text(when, ", the loss is ", loss, " over the ranks and ", alone.loss,
                  " in one process: ", cause_from_alone(*this, i, std::nullopt));
    for (const Kind kind : kKinds)
      if (const Difference& found = alone.differences[kind]; found.relative > tolerance)
        return text(when, ", the ", named(*this, kind, found),
                    " of the ranks is not that of one process (relative difference ", found.relative,
                    "): ", cause_from_alone(*this, i, kind));
    if (i > 0 && alone.gradients == 0)
      return text(when, ", no parameter has a gradient to compare: observe() comes before zero_grad()");
  }
  return steps.size() < 2 ? "no step was compared" : "";
}

std::string VerifyReport::str() const {
  std::ostringstream out;
  out << "Relative differences of " << (steps.empty() ? 0 : steps[0].ranks.size())
      << " ranks from one process, and of ranks from rank 0:\n"
      << "step        loss    gradients   parameters      buffers  between ranks  most different\n"
      << std::setprecision(1) << std::scientific;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& [ranks, loss, samples, alone] = steps[i];
    double between = 0;
    for (const Observation& rank : ranks)
      for (const Difference& of : rank.differences) between = std::max(between, of.relative);
    out << std::setw(4) << i << std::setw(12) << loss_difference(steps[i]);
    for (const Difference& of : alone.differences) out << std::setw(13) << of.relative;
    out << std::setw(15) << between;
    if (alone.differences[kGradients].relative > 0)
      out << "  " << named(*this, kGradients, alone.differences[kGradients]);
    out << "\n";
  }
  const std::string found = diagnosis();
  out << (found.empty() ? text("They make the same steps, up to ", tolerance) : "They differ: " + found) << ".\n";
  return out.str();
}

// ---- verify() ----

VerifyReport verify(const GroupPtr& group, const std::function<VerifiedTraining()>& make,
                    const std::function<TensorList(int64_t step, int rank, int ranks)>& batch_of,
                    const VerifyOptions& options) {
  TrainingComparison comparison(group, options.tolerance());
  Generator& generator = default_generator();
  const uint64_t seed = generator.seed(), offset = generator.offset();

  const auto train = [&](bool alone) {
    const VerifiedTraining training = make();
    const std::shared_ptr<void> wrapped = alone ? nullptr : options.wrap()(*training.model, group);
    comparison.observe(*training.model);
    for (int64_t step = 0; step < options.steps(); ++step) {
      const TensorList batch = alone ? batch_of(step, 0, 1) : batch_of(step, group->rank(), group->size());
      const int64_t samples = batch.at(0).size(0);
      const Tensor average = full({1}, samples, dtype(kDouble).device(batch[0].device()));  // of all ranks' numbers
      if (!alone) group->all_reduce(average.array(), ReduceKind::avg);
      training.optimizer->zero_grad();
      const Tensor loss = training.loss(batch);
      (loss * (static_cast<double>(samples) / average.item<double>())).backward();
      training.optimizer->step();
      comparison.observe(*training.model, loss.item<double>(), samples);
    }
  };
  try {
    train(/*alone=*/false);
    if (comparison.alone()) {
      generator.set_state(seed, offset);
      train(/*alone=*/true);
    }
  } catch (const std::exception& error) {
    group->abort(error.what());  // otherwise the other ranks would wait for this one
    throw;
  }
  return comparison.report();
}

}  // namespace gradus::dist
