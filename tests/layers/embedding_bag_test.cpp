// embedding_bag and EmbeddingBag. Expected values are from PyTorch 1.13. With scale_grad_by_freq they are from
// PyTorch's embedding, because its embedding_bag divides by the frequency of a wrong row on the CPU.
#include <gradus/core/runtime/runtime.h>
#include <gradus/gradus.h>
#include <gradus/layers/embedding.h>
#include <gradus/tests/catch.h>

using namespace gradus;
namespace F = nn::functional;

namespace {

/// Returns a tensor whose element i is sin(step i).
Tensor bag_wave(const Shape& shape, double step = 0.7) {
  return (arange(0, numel_of(shape), kDouble) * step).sin().reshape(shape);
}

struct BagCase {
  nn::EmbeddingBagMode mode;
  bool by_freq;
  int padding;
  bool weighted;
  std::vector<double> y, dw, dfactors;
};

F::EmbeddingBagFuncOptions options_of(const BagCase& c, const Tensor& offsets, const Tensor& factors) {
  auto options = F::EmbeddingBagFuncOptions().offsets(offsets).mode(c.mode).scale_grad_by_freq(c.by_freq);
  if (c.padding >= 0) options.padding_idx(c.padding);
  if (factors.defined()) options.per_sample_weights(factors);
  return options;
}

/// Makes each backend the current one and calls `check` with its device.
void on_every_backend(const std::function<void(Device)>& check) {
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const BackendGuard guard(name);
    check(Device(backend(name).device_type()));
  }
}

/// Returns the peak number of bytes that `run` allocates in addition to those that are in use before.
int64_t peak_of(const std::function<void()>& run) {
  DeviceRuntime& cpu = runtime(DeviceType::cpu);
  cpu.reset_peak_memory_stats(0);
  const int64_t before = cpu.memory_stats(0).allocated;
  run();
  return cpu.memory_stats(0).peak_allocated - before;
}

}  // namespace

TEST_CASE("embedding_bag: results and gradients of all modes") {
  const std::vector<BagCase> cases = {
      {kSum,
       false,
       -1,
       false,
       {0.1138739575748724, -0.11924324597545866, 0.0, 0.0, 0.45538712661701153, -0.05163314688888099,
        1.3396328221045986, 1.7432326337820976},
       {-0.951602073889516, -0.7055403255703919, 0.6230827270267574, 2.8675438278154366, -1.903204147779032,
        -1.4110806511407838, -0.951602073889516, 0.1856670344910435, 0.3115413635133787, 0.9881682338770006,
        -0.951602073889516, -0.7055403255703919},
       {}},
      {kSum,
       false,
       -1,
       true,
       {-0.2575682523846801, -0.29033459911771575, 0.0, 0.0, 0.34861019853092506, -0.3026976750613414,
        0.5418811218058759, 0.9664983764013019},
       {-0.8869303271525014, -0.6575911601576473, 0.343581230898221, 1.0897944796194003, -1.8759337231428956,
        -1.390861712149215, -0.7454155117349786, -0.28929893962316133, 0.26892542308331013, 0.8529960753075018,
        -0.5373149486888216, -0.39837803451000464},
       {0.7692985408314467, -0.8755689992823915, -1.3223823473063168, 1.5225532487490807, -0.45452155679188544,
        -0.07128370574800458, -0.07128370574800458, -0.18005070675704585, 1.1600044278619976, 1.1600044278619976}},
      {kSum,
       false,
       3,
       false,
       {0.9854497299884601, 0.8632093666488739, 0.0, 0.0, 1.3269628990305993, 0.9308194657354516, 1.3396328221045986,
        1.7432326337820976},
       {-0.951602073889516, -0.7055403255703919, 0.6230827270267574, 2.8675438278154366, -1.903204147779032,
        -1.4110806511407838, 0.0, 0.0, 0.3115413635133787, 0.9881682338770006, -0.951602073889516, -0.7055403255703919},
       {}},
      {kSum,
       false,
       3,
       true,
       {0.0, 0.0, 0.0, 0.0, 1.0313389548418475, 0.4668838938411239, 0.5418811218058759, 0.9664983764013019},
       {-0.8869303271525014, -0.6575911601576473, 0.343581230898221, 1.0897944796194003, -1.8759337231428956,
        -1.390861712149215, 0.0, 0.0, 0.26892542308331013, 0.8529960753075018, -0.5373149486888216,
        -0.39837803451000464},
       {0.7692985408314467, 0.0, -1.3223823473063168, 0.0, -0.45452155679188544, -0.07128370574800458,
        -0.07128370574800458, -0.18005070675704585, 1.1600044278619976, 1.1600044278619976}},
      {kSum,
       true,
       -1,
       false,
       {0.1138739575748724, -0.11924324597545866, 0.0, 0.0, 0.45538712661701153, -0.05163314688888099,
        1.3396328221045986, 1.7432326337820976},
       {-0.951602073889516, -0.7055403255703919, 0.20769424234225245, 0.9558479426051456, -0.951602073889516,
        -0.7055403255703919, -0.475801036944758, 0.09283351724552175, 0.3115413635133787, 0.9881682338770006,
        -0.951602073889516, -0.7055403255703919},
       {}},
      {kSum,
       true,
       -1,
       true,
       {-0.2575682523846801, -0.29033459911771575, 0.0, 0.0, 0.34861019853092506, -0.3026976750613414,
        0.5418811218058759, 0.9664983764013019},
       {-0.8869303271525014, -0.6575911601576473, 0.11452707696607364, 0.36326482653980013, -0.9379668615714478,
        -0.6954308560746075, -0.3727077558674893, -0.14464946981158064, 0.26892542308331013, 0.8529960753075018,
        -0.5373149486888216, -0.39837803451000464},
       {0.7692985408314467, -0.8755689992823915, -1.3223823473063168, 1.5225532487490807, -0.45452155679188544,
        -0.07128370574800458, -0.07128370574800458, -0.18005070675704585, 1.1600044278619976, 1.1600044278619976}},
      {kSum,
       true,
       3,
       false,
       {0.9854497299884601, 0.8632093666488739, 0.0, 0.0, 1.3269628990305993, 0.9308194657354516, 1.3396328221045986,
        1.7432326337820976},
       {-0.951602073889516, -0.7055403255703919, 0.20769424234225245, 0.9558479426051456, -0.951602073889516,
        -0.7055403255703919, 0.0, 0.0, 0.3115413635133787, 0.9881682338770006, -0.951602073889516, -0.7055403255703919},
       {}},
      {kSum,
       true,
       3,
       true,
       {0.0, 0.0, 0.0, 0.0, 1.0313389548418475, 0.4668838938411239, 0.5418811218058759, 0.9664983764013019},
       {-0.8869303271525014, -0.6575911601576473, 0.11452707696607364, 0.36326482653980013, -0.9379668615714478,
        -0.6954308560746075, 0.0, 0.0, 0.26892542308331013, 0.8529960753075018, -0.5373149486888216,
        -0.39837803451000464},
       {0.7692985408314467, 0.0, -1.3223823473063168, 0.0, -0.45452155679188544, -0.07128370574800458,
        -0.07128370574800458, -0.18005070675704585, 1.1600044278619976, 1.1600044278619976}},
      {kMean,
       false,
       -1,
       false,
       {0.0569369787874362, -0.05962162298772933, 0.0, 0.0, 0.09107742532340231, -0.010326629377776198,
        0.4465442740348662, 0.5810775445940325},
       {-0.1903204147779032, -0.1411080651140784, 0.20769424234225245, 1.1043825026153848, -0.3806408295558064,
        -0.2822161302281568, -0.1903204147779032, 0.3044956149166393, 0.10384712117112622, 0.3293894112923335,
        -0.1903204147779032, -0.1411080651140784},
       {}},
      {kMean,
       false,
       3,
       false,
       {0.9854497299884601, 0.8632093666488739, 0.0, 0.0, 0.3317407247576498, 0.2327048664338629, 0.4465442740348662,
        0.5810775445940325},
       {-0.237900518472379, -0.17638508139259798, 0.20769424234225245, 1.5499861826461023, -0.475801036944758,
        -0.35277016278519596, 0.0, 0.0, 0.10384712117112622, 0.3293894112923335, -0.237900518472379,
        -0.17638508139259798},
       {}},
      {kMean,
       true,
       -1,
       false,
       {0.0569369787874362, -0.05962162298772933, 0.0, 0.0, 0.09107742532340231, -0.010326629377776198,
        0.4465442740348662, 0.5810775445940325},
       {-0.1903204147779032, -0.1411080651140784, 0.06923141411408415, 0.3681275008717949, -0.1903204147779032,
        -0.1411080651140784, -0.0951602073889516, 0.15224780745831967, 0.10384712117112622, 0.3293894112923335,
        -0.1903204147779032, -0.1411080651140784},
       {}},
      {kMean,
       true,
       3,
       false,
       {0.9854497299884601, 0.8632093666488739, 0.0, 0.0, 0.3317407247576498, 0.2327048664338629, 0.4465442740348662,
        0.5810775445940325},
       {-0.237900518472379, -0.17638508139259798, 0.06923141411408415, 0.5166620608820341, -0.237900518472379,
        -0.17638508139259798, 0.0, 0.0, 0.10384712117112622, 0.3293894112923335, -0.237900518472379,
        -0.17638508139259798},
       {}},
      {kMax,
       false,
       -1,
       false,
       {0.9854497299884601, 0.8632093666488739, 0.0, 0.0, 0.6569865987187891, 0.9881682338770003, 0.9854497299884601,
        0.8632093666488739},
       {0.0, 0.0, 0.3115413635133787, 1.879375593938436, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.951602073889516,
        -0.7055403255703919},
       {}},
      {kMax,
       false,
       3,
       false,
       {0.9854497299884601, 0.8632093666488739, 0.0, 0.0, 0.6569865987187891, 0.9881682338770003, 0.9854497299884601,
        0.8632093666488739},
       {0.0, 0.0, 0.3115413635133787, 1.879375593938436, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.951602073889516,
        -0.7055403255703919},
       {}},
  };
  on_every_backend([&](Device device) {
    const auto near = [](const Tensor& x, const std::vector<double>& wanted) {
      return x.cpu().reshape(-1).allclose(tensor(wanted, kDouble), 0, 1e-13);
    };
    const auto longs = [&](const std::vector<int64_t>& values) { return tensor(values, kLong).to(device); };
    const Tensor indices = longs({1, 3, 5, 3, 0, 2, 2, 4, 1, 1}), offsets = longs({0, 2, 2, 7});
    for (const BagCase& c : cases) {
      CAPTURE(static_cast<int>(c.mode.kind), c.by_freq, c.padding, c.weighted);
      const Tensor weight = bag_wave({6, 2}).to(device).set_requires_grad(true);
      const Tensor factors = c.weighted ? bag_wave({10}, 0.3).to(device).set_requires_grad(true) : Tensor();
      const Tensor y = F::embedding_bag(indices, weight, options_of(c, offsets, factors));
      (y * bag_wave({4, 2}, 1.1).to(device)).sum().backward();
      CHECK(near(y, c.y));
      CHECK(near(weight.grad(), c.dw));
      if (c.weighted) CHECK(near(factors.grad(), c.dfactors));
      // The same bags are given with include_last_offset and, if all have the same length, as rows of a matrix.
      const auto told = options_of(c, longs({0, 2, 2, 7, 10}), factors).include_last_offset(true);
      CHECK(F::embedding_bag(indices, weight, told).equal(y));
      const auto rows = options_of(c, Tensor(), c.weighted ? factors.reshape({2, 5}) : Tensor());
      CHECK(F::embedding_bag(indices.reshape({2, 5}), weight, rows)
                .equal(F::embedding_bag(indices, weight, options_of(c, longs({0, 5}), factors))));
      CHECK(F::embedding_bag(indices.to(kInt), weight, options_of(c, offsets, factors)).equal(y));
    }
  });
}

TEST_CASE("embedding_bag: a row's frequency counts all bags and nothing outside of bags") {
  on_every_backend([](Device device) {
    const Tensor weight = ones({2, 1}).to(device).set_requires_grad(true), indices = tensor({1, 1, 0}).to(device);
    const auto by_freq = F::EmbeddingBagFuncOptions().scale_grad_by_freq(true).offsets(tensor({0, 2}).to(device));
    F::embedding_bag(indices, weight, F::EmbeddingBagFuncOptions(by_freq).mode(kSum)).sum().backward();
    CHECK(weight.grad().equal(ones({2, 1}).to(device)));
    CHECK_THROWS_WITH(F::embedding_bag(indices, weight, F::EmbeddingBagFuncOptions(by_freq).mode(kMax)),
                      test::contains("cannot be combined with scale_grad_by_freq"));
  });
}

TEST_CASE("embedding_bag: of equal maxima the first gets the gradient, and empty bags give zeros") {
  // Bags of every length up to 70 are compared with the maximum of each bag.
  std::vector<int64_t> begins = {0}, flat;
  for (int64_t length = 1; length <= 70; ++length) {
    for (int64_t i = 0; i < length; ++i) flat.push_back((i * i + 7 * length) % 50);
    begins.push_back(static_cast<int64_t>(flat.size()));
  }
  on_every_backend([&](Device device) {
    const Tensor weight = tensor({{1.0, 5.0}, {1.0, 2.0}, {-3.0, 5.0}}).to(device).set_requires_grad(true);
    const auto maximum = F::EmbeddingBagFuncOptions().mode(kMax);
    const Tensor y = F::embedding_bag(tensor({1, 0, 2, 2, 2, 2}).to(device), weight,
                                      F::EmbeddingBagFuncOptions(maximum).offsets(tensor({0, 0, 3, 6}).to(device)));
    CHECK(y.cpu().equal(tensor({{0.0, 0.0}, {1.0, 5.0}, {-3.0, 5.0}, {0.0, 0.0}})));
    y.sum().backward();
    CHECK(weight.grad().cpu().equal(tensor({{0.0, 1.0}, {1.0, 0.0}, {1.0, 1.0}})));
    const Tensor table = bag_wave({50, 3}).to(device), indices = tensor(flat, kLong).to(device);
    const auto lengths = F::EmbeddingBagFuncOptions(maximum).offsets(tensor(begins, kLong).to(device));
    const Tensor all = F::embedding_bag(indices, table, F::EmbeddingBagFuncOptions(lengths).include_last_offset(true));
    for (int64_t bag = 0; bag < 70; ++bag)
      CHECK(all[bag].equal(table.index_select(0, indices.narrow(0, begins[bag], bag + 1)).amax(0)));
  });
}

TEST_CASE("embedding and embedding_bag without indices have gradients of zeros") {
  const Tensor none = zeros({0}, kLong);
  for (const nn::EmbeddingBagMode mode :
       {nn::EmbeddingBagMode(kSum), nn::EmbeddingBagMode(kMean), nn::EmbeddingBagMode(kMax)}) {
    nn::EmbeddingBag bag(nn::EmbeddingBagOptions(4, 3).mode(mode).max_norm(1));
    const Tensor y = bag(none, tensor({0, 0}));
    CHECK(y.equal(zeros({2, 3})));
    y.sum().backward();
    CHECK(bag->weight.grad().equal(zeros({4, 3})));
    CHECK(bag(none, none).sizes() == Shape({0, 3}));
    CHECK(bag(zeros({0, 5}, kLong)).sizes() == Shape({0, 3}));
    CHECK(bag(zeros({5, 0}, kLong)).equal(zeros({5, 3})));
  }
  for (const bool by_freq : {false, true}) {
    nn::Embedding table(nn::EmbeddingOptions(4, 3).max_norm(1).scale_grad_by_freq(by_freq).padding_idx(1));
    for (const Shape& shape : {Shape{0}, Shape{2, 0}, Shape{0, 3}}) {
      const Tensor y = table(zeros(shape, kLong));
      CHECK(y.numel() == 0);
      y.sum().backward();
      CHECK(table->weight.grad().equal(zeros({4, 3})));
    }
  }
}

TEST_CASE("embedding_bag: invalid offsets are errors") {
  const Tensor weight = ones({4, 2}), indices = tensor({1, 2, 3});
  const auto with = [&](const Tensor& offsets, bool last = false) {
    return F::embedding_bag(indices, weight, F::EmbeddingBagFuncOptions().offsets(offsets).include_last_offset(last));
  };
  for (const Tensor& offsets : {tensor({1}), tensor({1, 2})})
    CHECK_THROWS_WITH(with(offsets), test::contains("the first bag begins at 0, not at 1"));
  CHECK_THROWS_AS(with(tensor({0, 2, 1})), IndexError);
  CHECK_THROWS_AS(with(tensor({0, 4})), IndexError);
  CHECK_THROWS_AS(with(tensor({0, 4}), true), IndexError);
  CHECK_THROWS_AS(with(tensor({-1, 2})), IndexError);
  CHECK_THROWS_AS(with(zeros({0}, kLong), true), ShapeError);
  CHECK(with(tensor({0, 2}), true).equal(ones({1, 2})));  // indices after the last offset are in no bag
}

TEST_CASE("embedding_bag: half types are rounded once") {
  const Tensor weight = tensor({{2048.0F}, {1.0F}, {0.25F}}).to(kHalf);
  const auto sum = F::EmbeddingBagFuncOptions().offsets(tensor({0})).mode(kSum);
  CHECK(F::embedding_bag(tensor({0, 1, 1, 1, 1}), weight, sum).to(kFloat).item<float>() == 2052.0F);
  const auto weighted = F::EmbeddingBagFuncOptions(sum).per_sample_weights(tensor({1.0F, 8.0F, -4.0F}).to(kHalf));
  CHECK(F::embedding_bag(tensor({0, 2, 2}), weight, weighted).to(kFloat).item<float>() == 2049.0F - 1.0F);
}

TEST_CASE("embedding_bag: memory is linear in the number of indices even with one long bag") {
  constexpr int64_t kIndices = 20000, kColumns = 16, kRowBytes = kColumns * 4;
  std::vector<int64_t> begins = {0, 18000};
  for (int64_t bag = 1; bag < 2000; ++bag) begins.push_back(18000 + bag);
  begins.push_back(kIndices);
  const Tensor indices = randint(0, 1000, {kIndices}), offsets = tensor(begins, kLong);
  for (const nn::EmbeddingBagMode mode :
       {nn::EmbeddingBagMode(kSum), nn::EmbeddingBagMode(kMean), nn::EmbeddingBagMode(kMax)}) {
    nn::EmbeddingBag bag(nn::EmbeddingBagOptions(1000, kColumns).mode(mode).padding_idx(3));
    const int64_t peak = peak_of([&] { bag(indices, offsets).sum().backward(); });
    CAPTURE(static_cast<int>(mode.kind), peak);
    CHECK(peak < 20 * kIndices * kRowBytes);  // padding to the longest bag would need 2,000 times the rows
  }
}

TEST_CASE("embedding_bag: any row may be the padding, which is in no bag") {
  on_every_backend([](Device device) {
    const Tensor table = bag_wave({4, 3}).to(device);
    for (int64_t padding = -4; padding < 4; ++padding) {
      const int64_t row = padding < 0 ? padding + 4 : padding, one = (row + 1) % 4, other = (row + 2) % 4;
      const Tensor indices = tensor({row, one, row, other, row}, kLong).to(device);
      for (const nn::EmbeddingBagMode mode :
           {nn::EmbeddingBagMode(kSum), nn::EmbeddingBagMode(kMean), nn::EmbeddingBagMode(kMax)}) {
        CAPTURE(padding, static_cast<int>(mode.kind));
        const Tensor pair = stack({table[one], table[other]});
        const Tensor wanted = mode == kSum ? pair.sum(0) : mode == kMean ? pair.mean(0) : pair.amax(0);
        const auto options = F::EmbeddingBagFuncOptions().mode(mode).padding_idx(padding);
        const Tensor weight = table.clone().set_requires_grad(true);
        const Tensor y = F::embedding_bag(indices.unsqueeze(0), weight, options);
        const Tensor by_offsets = F::embedding_bag(
            indices, weight, F::EmbeddingBagFuncOptions(options).offsets(tensor({0, 4}, kLong).to(device)));
        CHECK(y[0].allclose(wanted, 0, 1e-13));
        CHECK(by_offsets[0].allclose(wanted, 0, 1e-13));
        CHECK(by_offsets[1].equal(zeros_like(wanted)));
        (y.sum() + by_offsets.sum()).backward();
        CHECK(weight.grad()[row].equal(zeros_like(wanted)));
        CHECK((weight.grad()[one] + weight.grad()[other]).abs().min().item<double>() > 0);
      }
    }
  });
}
