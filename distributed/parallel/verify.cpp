#include <gradus/distributed/parallel/verify.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <iomanip>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

#include <gradus/autograd/autograd.h>
#include <gradus/core/random.h>
#include <gradus/distributed/parallel/distributed_data_parallel.h>
#include <gradus/layers/dropout.h>
#include <gradus/layers/norm.h>

namespace gradus::dist {
namespace {

using Kind = VerifyReport::Kind;
using enum VerifyReport::Kind;
constexpr Kind kKinds[] = {kGradients, kParameters, kBuffers};
constexpr const char* kNames[] = {"gradient", "parameter", "buffer"};

std::vector<double> numbers_of(const Tensor& x) {
  const Tensor here = x.to(kCPU);
  return {here.data_ptr<double>(), here.data_ptr<double>() + here.numel()};
}

/// |difference| / |of|.
double relative(double difference, double of) {
  if (difference == 0) return 0;
  const double ratio = difference / of;
  return std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
}

int64_t sum_of(const std::vector<int64_t>& samples) { return std::reduce(samples.begin(), samples.end()); }
double product_of(const Tensor& a, const Tensor& b) { return (a.to(kDouble) * b.to(kDouble)).sum().item<double>(); }
double norm_of(const Tensor& x) { return std::sqrt(product_of(x, x)); }

double largest_norm_of(const nn::StateDict& tensors) {
  double largest = 0;
  for (const auto& item : tensors) largest = std::max(largest, norm_of(item.value()));
  return largest;
}

/// The largest relative difference of a's tensors from b's, and whose it is.
std::pair<double, size_t> difference(const nn::StateDict& a, const nn::StateDict& b) {
  const double largest = largest_norm_of(b);
  std::pair<double, size_t> worst(0, 0);
  for (size_t i = 0; i < b.size(); ++i) {
    const double found = relative(norm_of(a[i].value().to(kDouble) - b[i].value().to(kDouble)),
                                  std::max(norm_of(b[i].value()), 1e-3 * largest));
    if (found > worst.first) worst = {found, i};
  }
  return worst;
}

template <class... Dropouts>
bool is_dropout(nn::Module& module) {
  return ((module.as<Dropouts>() && module.as<Dropouts>()->options.p() > 0) || ...);
}

std::array<nn::StateDict, 3> state_of(const nn::Module& model, bool trained) {
  std::array<nn::StateDict, 3> state;
  const auto add = [&](Kind kind, const std::string& name, const Tensor& x) {
    state[kind].append(name, x.detach().contiguous().to(kCPU, /*non_blocking=*/false, /*copy=*/true));
  };
  for (const auto& item : model.named_parameters()) {
    const Tensor& parameter = item.value();
    add(kParameters, item.key(), parameter);
    if (!trained || !parameter.requires_grad()) continue;
    add(kGradients, item.key(), parameter.grad().defined() ? parameter.grad() : zeros_like(parameter));
  }
  for (const auto& item : model.named_buffers()) add(kBuffers, item.key(), item.value());
  return state;
}

}  // namespace

TrainingComparison::TrainingComparison(std::shared_ptr<ProcessGroup> group, double tolerance)
    : group_(std::move(group)) {
  GRADUS_CHECK(group_, ValueError, "TrainingComparison needs a process group");
  report_.tolerance = tolerance;
}

void TrainingComparison::observe(nn::Module& model, double loss, int64_t samples) {
  const OpContext context("TrainingComparison::observe");
  const NoGradGuard no_grad;
  const size_t step = alone_ ? compared_ : report_.steps.size();
  const State state = state_of(model, step > 0);
  if (alone_) return compare_alone(state, loss, samples);
  if (step == 0) find_modules(model);
  compare_ranks(state, loss, samples);
}

void TrainingComparison::find_modules(nn::Module& model) {
  device_ = model.parameters().at(0).device();
  model.apply([&](const std::string& name, nn::Module& module) {
    if (!module.is_training()) return;
    if (report_.dropout.empty() &&
        is_dropout<nn::DropoutImpl, nn::Dropout2dImpl, nn::AlphaDropoutImpl, nn::FeatureAlphaDropoutImpl>(module))
      report_.dropout = name;
    const auto* batch_norm = module.as<nn::detail::BatchNormBase>();
    if (report_.batch_norm.empty() && batch_norm && !batch_norm->synchronized && group_->size() > 1)
      report_.batch_norm = name;
  });
}

void TrainingComparison::compare_ranks(const State& own, double loss, int64_t samples) {
  std::vector<double> numbers = {loss, static_cast<double>(samples)};
  for (const Kind kind : kKinds) {
    nn::StateDict first;
    for (const auto& item : own[kind]) {
      const Tensor x = item.value().to(device_, /*non_blocking=*/false, /*copy=*/true);
      group_->broadcast(x.array(), 0);
      first.append(item.key(), x.to(kCPU));
    }
    const auto [worst, index] = difference(own[kind], first);
    numbers.insert(numbers.end(), {worst, static_cast<double>(index)});
    names_[kind] = first.keys();
  }
  const Array gathered = Array::empty({group_->size(), static_cast<int64_t>(numbers.size())}, DType::f64, device_);
  group_->all_gather(tensor(numbers).to(device_).array(), gathered);
  const std::vector<double> all = numbers_of(Tensor(gathered));

  VerifyReport::Step& step = report_.steps.emplace_back();
  double sum = 0;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const double* const of = &all[static_cast<size_t>(rank) * numbers.size()];
    step.losses.push_back(of[0]);
    step.samples.push_back(static_cast<int64_t>(of[1]));
    if (of[1] > 0) sum += of[0] * of[1];
    for (const Kind kind : kKinds) {
      const double worst = of[2 + 2 * kind];
      if (worst > step.between_ranks[kind].relative)
        step.between_ranks[kind] = {names_[kind][static_cast<size_t>(of[3 + 2 * kind])], worst, rank};
    }
  }
  step.loss_of_ranks = sum / static_cast<double>(std::max<int64_t>(1, sum_of(step.samples)));
  if (group_->rank() == 0) states_.push_back(own);
}

/// What rank 0 finds about a step, as the numbers in which it is sent.
struct TrainingComparison::Found {
  double loss, samples;
  double product, squares, squares_of_ranks;  // of all gradients, as one vector
  double parameter_gradient, draws;
  double differences[3], indices[3];  // by Kind: of the tensor that differs most
};

void TrainingComparison::compare_alone(const State& alone, double loss, int64_t samples) {
  GRADUS_CHECK(compared_ < states_.size(), ValueError, "the ranks made ", states_.size() - 1,
               " steps, one process makes more");
  const State ranks = std::exchange(states_[compared_], State());
  for (const Kind kind : kKinds)
    GRADUS_CHECK(ranks[kind].keys() == alone[kind].keys(), ValueError, "the model of one process has other ",
                 kNames[kind], "s than that of the ranks");
  double product = 0, squares = 0, squares_of_ranks = 0;  // of gradients
  for (size_t i = 0; i < alone[kGradients].size(); ++i) {
    const Tensor &a = ranks[kGradients][i].value(), &b = alone[kGradients][i].value();
    product += product_of(a, b), squares += product_of(b, b), squares_of_ranks += product_of(a, a);
  }
  const uint64_t offset = default_generator().offset(), before = std::exchange(offset_, offset);
  Found found = {loss, static_cast<double>(samples), product, squares, squares_of_ranks, 1, 0, {}, {}};
  found.draws = compared_ > 0 && offset != before;
  for (const Kind kind : kKinds) {
    const auto [worst, index] = difference(ranks[kind], alone[kind]);
    found.differences[kind] = worst, found.indices[kind] = static_cast<double>(index);
    if (kind != kParameters) continue;
    const Tensor* const gradient = alone[kGradients].find(names_[kind].at(index));
    found.parameter_gradient = gradient ? norm_of(*gradient) / largest_norm_of(alone[kGradients]) : 1;
  }
  share(found);
}

void TrainingComparison::share(const Found& own) {
  using Numbers = std::array<double, sizeof(Found) / sizeof(double)>;
  const auto sent = std::bit_cast<Numbers>(own);
  const Tensor shared = tensor(std::vector<double>(sent.begin(), sent.end())).to(device_);
  group_->broadcast(shared.array(), 0);
  Numbers received;
  std::ranges::copy(numbers_of(shared), received.begin());
  const auto found = std::bit_cast<Found>(received);

  VerifyReport::Step& step = report_.steps[compared_++];
  step.loss_alone = found.loss;
  step.samples_alone = static_cast<int64_t>(found.samples);
  step.loss = relative(std::abs(step.loss_of_ranks - step.loss_alone), std::abs(step.loss_alone));
  if (found.squares > 0) {
    const double factor = found.product / found.squares,
                 rest = found.squares_of_ranks / found.squares - factor * factor;
    step.gradient_factor = factor, step.gradient_rest = std::sqrt(std::max(0.0, rest));
  }
  step.parameter_gradient = found.parameter_gradient;
  step.draws = found.draws != 0;
  for (const Kind kind : kKinds)
    if (const double worst = found.differences[kind]; worst > 0)
      step.from_alone[kind] = {names_[kind][static_cast<size_t>(found.indices[kind])], worst, 0};
}

bool TrainingComparison::alone() {
  GRADUS_CHECK(!alone_ && !report_.steps.empty(), ValueError,
               "TrainingComparison::alone() ends a training over ranks that observe() has seen");
  alone_ = true;
  if (group_->rank() == 0) return true;
  while (compared_ < report_.steps.size()) share({});
  return false;
}

VerifyReport TrainingComparison::report() const {
  GRADUS_CHECK(alone_ && compared_ == report_.steps.size(), ValueError, "one process made ", compared_,
               " observations, the ranks ", report_.steps.size());
  return report_;
}

// ---- What it means ----

namespace {

template <class... Parts>
std::string text(const Parts&... parts) {
  gradus::detail::Message message;
  (message << ... << parts);
  return std::move(message).take();
}

std::string cause_of_batch_norm(const VerifyReport& report) {
  return text("batch norm '", report.batch_norm,
              "' uses the statistics of each rank's part alone; nn::convert_sync_batchnorm makes them those of all");
}

std::string cause_between_ranks(const VerifyReport& report, size_t step, Kind kind) {
  if (step == 0) return "it began with other numbers (another seed?); DistributedDataParallel makes them rank 0's";
  if (kind == kGradients) return "gradients are not averaged over the ranks, as DistributedDataParallel does";
  if (kind == kParameters) return "with the same gradients its optimizer made another step";
  return report.batch_norm.empty() ? "nothing makes it rank 0's" : cause_of_batch_norm(report);
}

std::string cause_of_loss(const VerifyReport::Step& step) {
  for (size_t a = 0; a < step.losses.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (step.samples[a] > 0 && step.losses[a] == step.losses[b])
        return text("ranks ", b, " and ", a, " had the same batch");
  return "the batches of the ranks are not the parts of the whole one";
}

bool is_uneven(const VerifyReport::Step& step) {
  return std::ranges::adjacent_find(step.samples, std::not_equal_to()) != step.samples.end();
}

std::string cause_of_gradients(const VerifyReport& report, size_t index) {
  const VerifyReport::Step& step = report.steps[index];
  const double factor = step.gradient_factor;
  if (step.gradient_rest <= report.tolerance && std::abs(factor - 1) > report.tolerance)
    return text(
        "all gradients are ", factor, " times those of one process",
        std::abs(factor - static_cast<double>(step.samples.size())) < report.tolerance ? ": sums, not averages" : "");
  // A weight that is missing shows in the first step with uneven parts.
  const auto first_uneven = std::ranges::find_if(report.steps, is_uneven);
  if (first_uneven - report.steps.begin() == static_cast<std::ptrdiff_t>(index)) {
    std::string samples;
    for (const int64_t count : step.samples) samples += (samples.empty() ? "" : ", ") + std::to_string(count);
    return text("parts have ", samples,
                " samples: multiply each rank's mean loss by DistributedDataParallel::loss_weight");
  }
  if (index == 1) return "the losses are the same";
  return "all was the same a step before, so it may be rounding that activations near 0 or the learning rate amplify";
}

/// Of a difference from one process that is the same on all ranks; without a kind, of the loss.
std::string cause_from_alone(const VerifyReport& report, size_t step, std::optional<Kind> kind) {
  if (step == 0) return "the two trainings began with other numbers";
  if (!report.dropout.empty())
    return text("dropout '", report.dropout,
                "' draws other numbers on each rank, and hides what else differs: compare with p = 0");
  if (report.steps[step].draws)
    return "random numbers are drawn in the step, others on each rank (augmentation on a device?): compare without";
  if (!report.batch_norm.empty()) return cause_of_batch_norm(report);
  if (!kind) return cause_of_loss(report.steps[step]);
  if (*kind == kGradients) return cause_of_gradients(report, step);
  if (*kind == kParameters && report.steps[step].parameter_gradient < 1e-6)
    return "its gradient is 0 but for rounding, of which the optimizer makes steps; leave out a bias before batch norm";
  if (*kind == kParameters) return "with the same gradients the optimizer made another step";
  return "it is what rank 0 wrote, which saw its own part of the batch alone";
}

}  // namespace

std::string VerifyReport::diagnosis() const {
  const auto beyond = [&](double difference) { return !(difference <= tolerance); };
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const std::string when = i == 0 ? "before training" : text("in step ", i);
    for (const Kind kind : kKinds)
      if (const Difference& found = step.between_ranks[kind]; beyond(found.relative))
        return text(when, ", rank ", found.rank, "'s ", kNames[kind], " '", found.name,
                    "' is not rank 0's (relative difference ", found.relative,
                    "): ", cause_between_ranks(*this, i, kind));
    if (sum_of(step.samples) != step.samples_alone)
      return text(when, ", the ranks have ", sum_of(step.samples), " samples and one process ", step.samples_alone);
    if (beyond(step.loss))
      return text(when, ", the loss is ", step.loss_of_ranks, " over the ranks and ", step.loss_alone,
                  " in one process: ", cause_from_alone(*this, i, std::nullopt));
    for (const Kind kind : kKinds)
      if (const Difference& found = step.from_alone[kind]; beyond(found.relative))
        return text(when, ", the ", kNames[kind], " '", found.name,
                    "' of the ranks is not that of one process (relative difference ", found.relative,
                    "): ", cause_from_alone(*this, i, kind));
  }
  return "";
}

std::string VerifyReport::str() const {
  std::ostringstream out;
  out << "Relative differences of " << (steps.empty() ? 0 : steps[0].samples.size())
      << " ranks from one process, and of ranks from rank 0:\n"
      << "step        loss    gradients   parameters      buffers  between ranks\n"
      << std::setprecision(1) << std::scientific;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    out << std::setw(4) << i << std::setw(12) << step.loss;
    double between = 0;
    for (const Kind kind : kKinds) {
      out << std::setw(13) << step.from_alone[kind].relative;
      between = std::max(between, step.between_ranks[kind].relative);
    }
    out << std::setw(15) << between << "\n";
  }
  for (const Kind kind : kKinds) {
    size_t worst = 0;
    for (size_t i = 0; i < steps.size(); ++i)
      if (steps[i].from_alone[kind].relative > steps[worst].from_alone[kind].relative) worst = i;
    if (steps.empty() || steps[worst].from_alone[kind].name.empty()) continue;
    const Difference& found = steps[worst].from_alone[kind];
    out << "The " << kNames[kind] << " that differs most is '" << found.name << "' in step " << worst << ", by "
        << found.relative << ".\n";
  }
  const std::string found = diagnosis();
  out << (found.empty() ? "They make the same steps, up to " + text(tolerance) : "They differ: " + found) << ".\n";
  return out.str();
}

// ---- verify() ----

VerifyReport verify(const std::shared_ptr<ProcessGroup>& group, const std::function<VerifiedTraining()>& make,
                    const std::function<TensorList(int64_t step, int rank, int ranks)>& batch_of,
                    const VerifyOptions& options) {
  TrainingComparison comparison(group, options.tolerance());
  Generator& generator = default_generator();
  const uint64_t seed = generator.seed(), offset = generator.offset();

  const auto train = [&](int rank, int ranks, const VerifyOptions::Wrap& wrap) {
    const VerifiedTraining training = make();
    nn::Module& model = *training.model;
    const std::shared_ptr<void> wrapped = wrap(model, group);
    comparison.observe(model);
    for (int64_t step = 0; step < options.steps(); ++step) {
      const TensorList batch = batch_of(step, rank, ranks);
      const int64_t samples = batch.at(0).size(0);
      const Tensor all = tensor(std::vector<double>{static_cast<double>(samples)}).to(batch[0].device());
      if (ranks > 1) group->all_reduce(all.array());
      training.optimizer->zero_grad();
      const Tensor loss = training.loss(batch);
      (loss * (static_cast<double>(samples * ranks) / all.item<double>())).backward();
      training.optimizer->step();
      comparison.observe(model, loss.item<double>(), samples);
    }
  };
  const auto make_ddp = [](nn::Module& model, const std::shared_ptr<ProcessGroup>& of) {
    return std::make_shared<DistributedDataParallel>(model, of);
  };
  try {
    train(group->rank(), group->size(), options.wrap() ? options.wrap() : make_ddp);
    if (comparison.alone()) {
      generator.set_state(seed, offset);
      train(0, 1, [](nn::Module&, const auto&) { return nullptr; });
    }
  } catch (const std::exception& error) {
    group->abort(error.what());  // the others wait
    throw;
  }
  return comparison.report();
}

}  // namespace gradus::dist
