// SyncBatchNorm compared with batch norm of the whole batch in one process.
#include <sstream>
#include <thread>

#include <gradus/distributed/parallel/sync_batch_norm.h>
#include <gradus/gradus.h>
#include <gradus/tests/catch.h>
#include <gradus/tests/compare.h>
#include <gradus/tests/distributed/processes.h>
#include <gradus/tests/distributed/ranks.h>
#include <gradus/tests/distributed/values.h>

using namespace gradus;
using namespace gradus::dist;
using namespace gradus::test;

namespace {

/// Numbers of samples of each rank. They differ, and with four ranks one rank has none.
std::vector<int64_t> shares(int ranks) {
  switch (ranks) {
    case 1: return {8};
    case 2: return {3, 5};
    case 3: return {4, 1, 3};
    default: return {2, 0, 5, 1};
  }
}

/// One training step: the outputs of a norm, and the gradients of its backward pass for dy.
struct Step {
  Tensor x, dy, y, dx, dweight, dbias, running_mean, running_var, batches;
};

/// Runs forward and backward of a module with one batch norm, whose tensors are found by the end of their names.
template <class M>
void run(M& module, Step* step) {
  step->x = step->x.detach().requires_grad_();
  module.zero_grad();
  step->y = nn::call(module, step->x);
  (step->y * step->dy).sum().backward();
  step->dx = step->x.grad();
  for (const auto& parameter : module.named_parameters()) {
    const bool is_weight = parameter.key().find("weight") != std::string::npos;
    (is_weight ? step->dweight : step->dbias) = parameter->grad().clone();
  }
  for (const auto& buffer : module.named_buffers()) {
    const auto ends_with = [&](const char* name) { return buffer.key().find(name) != std::string::npos; };
    if (ends_with("running_mean")) step->running_mean = buffer->clone();
    if (ends_with("running_var")) step->running_var = buffer->clone();
    if (ends_with("num_batches")) step->batches = buffer->clone();
  }
}

/// Sets parameters that are not ones and zeros, and are the same in every call.
template <class M>
void fill_parameters(M& module, DType dtype) {
  module.to(dtype);
  NoGradGuard no_grad;
  double start = 0.5;
  for (const Tensor& parameter : module.parameters()) {
    for (int64_t c = 0; c < parameter.numel(); ++c) parameter[c].fill_(start + 0.3 * static_cast<double>(c));
    start = -0.4;
  }
}

/// Describes the first difference, "" if there is none. `whole` is one process with the whole batch, `parts` are the
/// ranks.
std::string difference_of(const std::vector<Step>& parts, const Step& whole, double forward, double backward) {
  TensorList y, dx;
  Tensor dweight = zeros_like(whole.dweight), dbias = zeros_like(whole.dbias);
  for (const Step& part : parts) {
    y.push_back(part.y.detach()), dx.push_back(part.dx);
    dweight += part.dweight, dbias += part.dbias;
  }
  std::string text;
  const auto compare = [&](const char* what, const Tensor& actual, const Tensor& expected, double tolerance) {
    if (const std::string found = difference(actual, expected, tolerance); !found.empty())
      text += std::string(what) + ": " + found + "\n";
  };
  compare("y", cat(y), whole.y.detach(), forward);
  compare("dx", cat(dx), whole.dx, backward);
  compare("dweight", dweight, whole.dweight, backward);
  compare("dbias", dbias, whole.dbias, backward);
  for (const Step& part : parts) {
    if (!whole.running_mean.defined()) continue;
    compare("running_mean", part.running_mean, whole.running_mean, forward);
    compare("running_var", part.running_var, whole.running_var, forward);
    compare("num_batches_tracked", part.batches, whole.batches, 0);
    if (!part.running_var.equal(parts[0].running_var)) text += "ranks have different running statistics\n";
  }
  return text;
}

/// x and dy of a whole batch, and each rank's part of them.
Step whole_batch(const Shape& sample, DType dtype, double mean = 3, double deviation = 2) {
  std::vector<int64_t> shape = {8};
  for (int64_t size : sample) shape.push_back(size);
  Step step;
  step.x = (randn(shape, kDouble) * deviation + mean).to(dtype);
  step.dy = randn(shape, kDouble).to(dtype);
  return step;
}
std::vector<Step> split(const Step& whole, int ranks) {
  const TensorList x = whole.x.split(shares(ranks)), dy = whole.dy.split(shares(ranks));
  std::vector<Step> parts(static_cast<size_t>(ranks));
  for (size_t r = 0; r < parts.size(); ++r) parts[r].x = x[r].clone(), parts[r].dy = dy[r].clone();
  return parts;
}

/// Runs `steps` batches by SyncBatchNorm on `ranks` ranks and by a norm of type Plain, and compares the last one.
template <class Plain>
std::string difference_from(const nn::BatchNormOptions& options, const std::vector<Step>& batches, int ranks,
                            double tolerance) {
  const DType parameters = batches[0].x.dtype() == kDouble ? kDouble : kFloat;
  Plain plain(options);
  fill_parameters(*plain, parameters);
  std::vector<std::vector<Step>> parts;
  for (const Step& batch : batches) parts.push_back(split(batch, ranks));
  Step whole;
  for (const Step& batch : batches) run(*plain, &(whole = batch));
  expect_ranks("local", ranks, [&](ProcessGroup& group) {
    nn::SyncBatchNorm norm(options, shared(group));
    fill_parameters(*norm, parameters);
    for (auto& part : parts) run(*norm, &part[static_cast<size_t>(group.rank())]);
  });
  return difference_of(parts.back(), whole, tolerance, tolerance);
}

struct NormNetImpl : nn::Module {
  nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 3, 1).bias(false)));
  nn::BatchNorm2d bn = register_module("bn", nn::BatchNorm2d(3));
  nn::Sequential rest = register_module("rest", nn::Sequential(nn::BNReLU2d(3), nn::Flatten(), nn::BatchNorm1d(12)));
  Tensor forward(const Tensor& x) { return rest->forward(bn(conv(x))); }
};
GRADUS_MODULE(NormNet);

}  // namespace

TEST_CASE("SyncBatchNorm of the ranks' shares is batch norm of the whole batch", "[sync_batch_norm]") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const DType dtype = GENERATE(kDouble, kFloat);
  CAPTURE(ranks, dtype);
  manual_seed(7);
  const double tolerance = tolerance_of(dtype);
  const nn::BatchNormOptions options(5);
  const auto batches = [&](const Shape& sample) {
    return std::vector{whole_batch(sample, dtype), whole_batch(sample, dtype)};
  };
  CHECK(difference_from<nn::BatchNorm1d>(options, batches({5}), ranks, tolerance) == "");
  CHECK(difference_from<nn::BatchNorm1d>(options, batches({5, 7}), ranks, tolerance) == "");
  CHECK(difference_from<nn::BatchNorm2d>(options, batches({5, 6, 7}), ranks, tolerance) == "");

  std::vector<Step> channels_last = batches({5, 6, 7});
  for (Step& batch : channels_last) batch.x = batch.x.to(MemoryFormat::channels_last);
  CHECK(difference_from<nn::BatchNorm2d>(options, channels_last, ranks, tolerance) == "");
  // A momentum of nullopt: the plain average over all batches.
  CHECK(difference_from<nn::BatchNorm2d>(nn::BatchNormOptions(5).momentum(std::nullopt), batches({5, 6, 7}), ranks,
                                         tolerance) == "");
}

TEST_CASE("SyncBatchNorm of half types is computed in float32", "[sync_batch_norm]") {
  const DType dtype = GENERATE(kHalf, kBFloat16);
  const int ranks = GENERATE(2, 4);
  manual_seed(8);
  CHECK(difference_from<nn::BatchNorm2d>(nn::BatchNormOptions(5), {whole_batch({5, 6, 7}, dtype)}, ranks,
                                         tolerance_of(dtype)) == "");
}

TEST_CASE("a mean that is large compared with the deviation costs no precision", "[sync_batch_norm]") {
  const int ranks = GENERATE(2, 3, 4);
  manual_seed(9);
  const Step batch = whole_batch({5, 6, 7}, kFloat, 1e3, 1);
  Step exact = batch;
  exact.x = exact.x.to(kDouble), exact.dy = exact.dy.to(kDouble);
  nn::BatchNorm2d plain(5);
  fill_parameters(*plain, kDouble);
  run(*plain, &exact);
  std::vector<Step> parts = split(batch, ranks);
  expect_ranks("local", ranks, [&](ProcessGroup& group) {
    nn::SyncBatchNorm norm(nn::BatchNormOptions(5), shared(group));
    fill_parameters(*norm, kFloat);
    run(*norm, &parts[static_cast<size_t>(group.rank())]);
  });
  // float32 holds such a mean to 3e-5, which affects the gradients. A difference of squares would lose all digits.
  CHECK(difference_of(parts, exact, tolerance_of(kFloat), 5e-5) == "");
}

TEST_CASE("SyncBatchNorm without parameters, running statistics or a gradient of x", "[sync_batch_norm]") {
  manual_seed(10);
  const Step batch = whole_batch({5, 6, 7}, kDouble);
  const auto options = nn::BatchNormOptions(5).affine(false).track_running_stats(false);
  nn::BatchNorm2d bare(options), affine(5);
  affine->to(kDouble);
  const Tensor expected = bare(batch.x), scaled = affine(batch.x);
  (scaled * batch.dy).sum().backward();
  std::vector<Step> parts = split(batch, 3);
  expect_ranks("local", 3, [&](ProcessGroup& group) {
    Step& part = parts[static_cast<size_t>(group.rank())];
    part.y = nn::SyncBatchNorm(options, shared(group))->forward(part.x);
    nn::SyncBatchNorm norm(nn::BatchNormOptions(5), shared(group));
    norm->to(kDouble);
    (norm(part.x) * part.dy).sum().backward();
    part.dweight = norm->weight.grad(), part.dbias = norm->bias.grad();
  });
  CHECK(difference(cat({parts[0].y, parts[1].y, parts[2].y}), expected, 1e-12) == "");
  CHECK(difference(parts[0].dweight + parts[1].dweight + parts[2].dweight, affine->weight.grad(), 1e-12) == "");
  CHECK(difference(parts[0].dbias + parts[1].dbias + parts[2].dbias, affine->bias.grad(), 1e-12) == "");
}

TEST_CASE("each gradient of SyncBatchNorm is the same without the others", "[sync_batch_norm]") {
  manual_seed(11);
  const Step batch = whole_batch({5, 6}, kDouble);
  nn::BatchNorm1d plain(5);
  fill_parameters(*plain, kDouble);
  Step whole = batch;
  run(*plain, &whole);
  for (int wanted = 0; wanted < 8; ++wanted) {  // bit i: of x, of the weight, of the bias
    std::vector<Step> parts = split(batch, 2);
    expect_ranks("local", 2, [&](ProcessGroup& group) {
      Step& part = parts[static_cast<size_t>(group.rank())];
      nn::SyncBatchNorm norm(nn::BatchNormOptions(5), shared(group));
      fill_parameters(*norm, kDouble);
      part.x.set_requires_grad(wanted & 1);
      norm->weight.set_requires_grad(wanted & 2);
      norm->bias.set_requires_grad(wanted & 4);
      part.y = norm(part.x);
      if (part.y.requires_grad()) (part.y * part.dy).sum().backward();
      part.dx = part.x.grad(), part.dweight = norm->weight.grad(), part.dbias = norm->bias.grad();
    });
    INFO("wanted: " << wanted);
    for (const Step& part : parts) {
      CHECK(part.y.requires_grad() == (wanted != 0));
      CHECK(part.dx.defined() == ((wanted & 1) != 0));
      CHECK(part.dweight.defined() == ((wanted & 2) != 0));
      CHECK(part.dbias.defined() == ((wanted & 4) != 0));
    }
    CHECK(difference(cat({parts[0].y.detach(), parts[1].y.detach()}), whole.y.detach(), 1e-12) == "");
    if (wanted & 1) CHECK(difference(cat({parts[0].dx, parts[1].dx}), whole.dx, 1e-11) == "");
    if (wanted & 2) CHECK(difference(parts[0].dweight + parts[1].dweight, whole.dweight, 1e-11) == "");
    if (wanted & 4) CHECK(difference(parts[0].dbias + parts[1].dbias, whole.dbias, 1e-11) == "");
  }
}

TEST_CASE("convert_sync_batchnorm keeps the modules and everything in them", "[sync_batch_norm]") {
  manual_seed(11);
  NormNet net;
  net->to(kDouble);
  const Tensor x = randn({8, 2, 2, 2}, kDouble), dy = randn({8, 12}, kDouble);
  const auto original = std::dynamic_pointer_cast<NormNetImpl>(std::make_shared<NormNetImpl>());
  original->to(kDouble);
  original->load_state_dict(net->state_dict());
  (original->forward(x) * dy).sum().backward();

  const TensorList xs = x.split(shares(3)), dys = dy.split(shares(3));
  std::vector<nn::StateDict> gradients(3), states(3);
  TensorList outputs(3), evaluated(3);
  expect_ranks("local", 3, [&](ProcessGroup& group) {
    const size_t rank = static_cast<size_t>(group.rank());
    NormNet own;
    own->to(kDouble);
    own->load_state_dict(net->state_dict());
    const TensorList before = own->parameters();
    const auto bn = own->bn.ptr();
    own->bn->eval();
    nn::convert_sync_batchnorm(*own, shared(group));
    require(own->bn.ptr() == bn && !own->bn->is_training(), "the same module in the same mode");
    own->train();
    for (size_t i = 0; i < before.size(); ++i)
      require(own->parameters()[i].is_same(before[i]), "the parameters stay the same tensors");
    require(own->state_dict().keys() == net->state_dict().keys(), "names of the state");
    std::ostringstream text;
    text << own;
    require(text.str().find("(bn): gradus::nn::SyncBatchNorm(3, eps=") != std::string::npos, text.str());

    outputs[rank] = own(xs[rank]);
    (outputs[rank] * dys[rank]).sum().backward();
    for (const auto& parameter : own->named_parameters()) gradients[rank].insert(parameter.key(), parameter->grad());
    states[rank] = own->state_dict();
    if (rank > 0) return;  // evaluation needs no other rank
    own->eval();
    evaluated[0] = own(x);
  });
  CHECK(difference(cat({outputs[0], outputs[1], outputs[2]}), original->forward(x), 1e-12) == "");
  for (const auto& parameter : original->named_parameters()) {
    Tensor sum = gradients[0][parameter.key()];
    for (size_t r = 1; r < 3; ++r) sum = sum + gradients[r][parameter.key()];
    CAPTURE(parameter.key());
    // The gradients of bn, which another norm follows, are 0 except for rounding.
    CHECK(difference(sum, parameter->grad(), 1e-11) == "");
  }
  original->load_state_dict(states[2]);
  original->eval();
  CHECK(difference(evaluated[0], original->forward(x), 1e-12) == "");
}

TEST_CASE("BNReLU2d with a residual, clones and checkpoints are synchronised too", "[sync_batch_norm]") {
  manual_seed(12);
  const Tensor x = randn({8, 3, 4, 4}, kDouble), residual = randn({8, 3, 4, 4}, kDouble);
  nn::BNReLU2d plain(3);
  plain->to(kDouble);
  const Tensor expected = plain->forward(x, residual);
  const TensorList xs = x.split(shares(2)), residuals = residual.split(shares(2));
  TensorList outputs(2), cloned(2), means(2), counts(2);
  expect_ranks("local", 2, [&](ProcessGroup& group) {
    const size_t rank = static_cast<size_t>(group.rank());
    nn::BNReLU2d norm(3);
    norm->to(kDouble);
    nn::convert_sync_batchnorm(*norm, shared(group));
    const auto copy = std::dynamic_pointer_cast<nn::BNReLU2dImpl>(norm->clone());
    cloned[rank] = copy->forward(xs[rank], residuals[rank]).detach();
    const Tensor input = xs[rank].detach().requires_grad_();
    outputs[rank] = autograd::checkpoint([&](const Tensor& of) { return norm->forward(of, residuals[rank]); }, input);
    outputs[rank].sum().backward();
    means[rank] = norm->running_mean, counts[rank] = norm->num_batches_tracked;
  });
  CHECK(difference(cat({outputs[0].detach(), outputs[1].detach()}), expected, 1e-12) == "");
  CHECK(difference(cat(cloned), expected, 1e-12) == "");
  for (size_t r = 0; r < 2; ++r) {
    CHECK(difference(means[r], plain->running_mean, 1e-12) == "");
    CHECK(counts[r].item<int64_t>() == 1);
  }
}

TEST_CASE("a rank in another mode, and what SyncBatchNorm cannot do, are errors that say so", "[sync_batch_norm]") {
  const auto train_beside = [](int milliseconds, const std::function<void(ProcessGroup&)>& after_evaluation) {
    return run_ranks("local", 2,
                     [&](ProcessGroup& group) {
                       nn::BatchNorm1d norm(3);
                       nn::convert_sync_batchnorm(*norm, shared(group));
                       if (group.rank() == 1) norm->eval();
                       norm(ones({4, 3}));
                       if (group.rank() == 1) after_evaluation(group);
                     },
                     {.timeout = Milliseconds(milliseconds)});
  };
  const auto silent = train_beside(300, [](ProcessGroup& group) {
    for (int i = 0; i < 100 && group.status().ok(); ++i) std::this_thread::sleep_for(Milliseconds(50));
  });
  CHECK(silent[0].status.failure == CommFailure::timeout);
  CHECK(silent[0].status.rank == 1);
  CHECK_THAT(silent[0].error, contains("all_gather #1"));
  const auto elsewhere = train_beside(20'000, [](ProcessGroup& group) { group.all_reduce(Array::empty({4})); });
  CHECK(elsewhere[0].status.failure == CommFailure::mismatch);
  CHECK_THAT(elsewhere[0].error, contains("all_gather"));
  CHECK_THAT(elsewhere[0].error, contains("all_reduce"));

  CHECK_THROWS_WITH(nn::convert_sync_batchnorm(*nn::BatchNorm2d(3), nullptr), contains("needs a process group"));
  const auto refused = run_ranks("local", 2, [](ProcessGroup& group) {
    nn::SyncBatchNorm norm(nn::BatchNormOptions(3), shared(group));
    std::string text;
    try {
      norm(ones({4, 2}));
    } catch (const ShapeError& error) { text = error.what(); }
    require(text.find("x of shape (4, 2) has 2 channels, expected 3") != std::string::npos, text);
    const Tensor x = randn({4, 3}).requires_grad_();
    autograd::grad({norm(x).square().sum()}, {x}, {}, std::nullopt, /*create_graph=*/true);
  });
  CHECK_THAT(refused[0].error, contains("SyncBatchNorm is not differentiable twice"));
}

TEST_CASE("SyncBatchNorm between processes over shared memory", "[sync_batch_norm][processes]") {
  Processes processes("shm", 2, Milliseconds(20'000), [](ProcessGroup& group, Store&) {
    manual_seed(13);  // so that all ranks know the whole batch
    Step whole = whole_batch({5, 6, 7}, kDouble);
    std::vector<Step> parts = split(whole, 2);
    nn::BatchNorm2d plain(5), norm(5);
    fill_parameters(*plain, kDouble), fill_parameters(*norm, kDouble);
    nn::convert_sync_batchnorm(*norm, shared(group));
    run(*plain, &whole);
    Step& own = parts[static_cast<size_t>(group.rank())];
    run(*norm, &own);
    group.all_reduce(own.dweight.array()), group.all_reduce(own.dbias.array());
    const int64_t begin = group.rank() == 0 ? 0 : shares(2)[0], end = begin + own.x.size(0);
    own.y = own.y.detach();
    for (const auto& [actual, expected] :
         {std::pair{own.y, whole.y.detach().slice(0, begin, end)}, std::pair{own.dx, whole.dx.slice(0, begin, end)},
          std::pair{own.dweight, whole.dweight}, std::pair{own.dbias, whole.dbias},
          std::pair{own.running_mean, whole.running_mean}, std::pair{own.running_var, whole.running_var}})
      require(difference(actual, expected, 1e-12).empty(), difference(actual, expected, 1e-12));
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(processes.result(rank).error == "");
}
