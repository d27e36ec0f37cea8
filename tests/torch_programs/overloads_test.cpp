// Overloads and options of LibTorch's operators, line by line as its programs have them. The numbers are those that
// LibTorch 1.13 gives for the same source.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wbraced-scalar-init"  // LibTorch's one-dimensional sizes are lists
#endif
#include <gradus/torch.h>

#include <gradus/tests/catch.h>

namespace F = torch::nn::functional;

namespace {

// One number that tells results and their order: the sum of the elements, each times 1 to 7 in turn.
double total(const torch::Tensor& y) {
  const torch::Tensor flat = y.to(torch::kDouble).reshape({-1});
  return (flat * torch::arange(flat.numel(), torch::kDouble).remainder(7).add(1)).sum().item<double>();
}

Approx near(double value) { return Approx(value).epsilon(1e-5).margin(1e-5); }

// Numbers between -1.1 and 1.2, which `step` mixes.
torch::Tensor numbers(std::vector<int64_t> shape, int64_t step) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return ((torch::arange(count) * step).remainder(37) - 18).to(torch::kFloat).div(16).add(0.03125).reshape(shape);
}

struct Inputs {
  torch::Tensor x = numbers({4, 6}, 7), y = numbers({4, 6}, 11);
  torch::Tensor im = numbers({2, 3, 5, 5}, 13), sq = numbers({2, 3, 8}, 5);  // images and sequences
  torch::Tensor w2 = numbers({4, 3, 3, 3}, 3), w1 = numbers({4, 3, 3}, 3), b = numbers({4}, 5);
  torch::Tensor t2 = numbers({3, 2, 3, 3}, 3), t1 = numbers({3, 2, 3}, 3);
  torch::Tensor bw = numbers({3}, 4), bb = numbers({3}, 9), bm = numbers({3}, 2), bv = numbers({3}, 8).abs();
  torch::Tensor lw = numbers({6}, 4), lb = numbers({6}, 9), lo = numbers({6}, 5) - 0.5, hi = numbers({4, 1}, 9) + 0.5;
  torch::Tensor table = numbers({5, 3}, 7), idx = torch::tensor({0, 2, 2, 1});
};

}  // namespace

TEST_CASE_METHOD(Inputs, "pooling: braces, numbers and vectors mean windows") {
  CHECK(total(torch::max_pool2d(im, {2, 2}, {1, 1})) == near(315.21875));
  CHECK(total(torch::max_pool2d(im, 2)) == near(72.625));
  CHECK(total(torch::max_pool2d(im, {3, 2}, {}, {1, 1})) == near(111.21875));
  CHECK(total(torch::max_pool2d(im, {2, 2}, {2, 2}, {0, 0}, {2, 2}, true)) == near(73.6875));
  CHECK(total(torch::max_pool2d(im, std::vector<int64_t>{2, 2}, std::vector<int64_t>{1, 1})) == near(315.21875));
  CHECK(total(std::get<0>(torch::max_pool2d_with_indices(im, {2, 2}, {1, 1}))) == near(315.21875));
  CHECK(total(std::get<1>(torch::max_pool2d_with_indices(im, {2, 2}))) == near(803));
  CHECK(total(torch::max_pool1d(sq, {2}, {1})) == near(71.8125));
  CHECK(total(torch::max_pool1d(sq, 3)) == near(19.15625));
  CHECK(total(std::get<1>(torch::max_pool1d_with_indices(sq, 2))) == near(337));
  CHECK(total(torch::avg_pool2d(im, {2, 2}, {1, 1}, {1, 1}, false, false)) == near(11.359375));
  CHECK(total(torch::avg_pool2d(im, 2, 2, 0, false, true, 3)) == near(-0.354166754));
  CHECK(total(torch::avg_pool1d(sq, {2}, {2})) == near(-0.09375));
  CHECK(total(torch::adaptive_avg_pool2d(im, {2, 3})) == near(3.18749998));
  CHECK(total(torch::adaptive_avg_pool1d(sq, {2})) == near(0.6875));
  CHECK(total(torch::adaptive_avg_pool1d(sq, 2)) == near(0.6875));
  CHECK(total(F::max_pool2d(im, F::MaxPool2dFuncOptions({2, 2}).stride({1, 1}).padding({1, 1}))) == near(504.15625));
  CHECK(total(F::max_pool2d(im, F::MaxPool2dFuncOptions(3).stride(2))) == near(90.1875));
  CHECK(total(F::avg_pool2d(im, F::AvgPool2dFuncOptions({2, 2}).divisor_override(3))) == near(-0.354166754));
  CHECK(total(F::adaptive_avg_pool2d(im, F::AdaptiveAvgPool2dFuncOptions({2, torch::nullopt}))) == near(-0.979166573));
  CHECK(total(F::adaptive_avg_pool2d(im, F::AdaptiveAvgPool2dFuncOptions(3))) == near(11.7881944));
  CHECK(total(F::adaptive_max_pool1d(sq, F::AdaptiveMaxPool1dFuncOptions(2))) == near(30.40625));
  CHECK(total(std::get<0>(F::max_pool2d_with_indices(im, F::MaxPool2dFuncOptions(2)))) == near(72.625));
}

TEST_CASE_METHOD(Inputs, "convolutions: sizes by number, braces and vector, padding by name") {
  CHECK(total(torch::conv2d(im, w2, {}, 1, "same")) == near(67.921875));
  CHECK(total(torch::conv2d(im, w2, b, {1, 1}, "valid")) == near(-111.920898));
  CHECK(total(torch::conv2d(im, w2, b, {2, 2}, {1, 1}, {1, 1}, 1)) == near(-137.30957));
  CHECK(total(torch::conv2d(im, w2, b, std::vector<int64_t>{2, 2}, std::vector<int64_t>{1, 1})) == near(-137.30957));
  CHECK(total(torch::conv1d(sq, w1, {}, 1, "same")) == near(-33.2802734));
  CHECK(total(torch::conv1d(sq, w1, b, {2}, {1}, {1}, 1)) == near(-108.036133));
  CHECK(total(torch::conv_transpose2d(im, t2, {}, {2, 2}, {1, 1}, {1, 1})) == near(-42.9667969));
  CHECK(total(torch::conv_transpose1d(sq, t1, {}, 2, 1)) == near(-57.0097656));
  CHECK(total(F::conv2d(im, w2, F::Conv2dFuncOptions().bias(b).stride({2, 2}).padding({1, 1}))) == near(-137.30957));
  CHECK(total(F::conv2d(im, w2, F::Conv2dFuncOptions().padding(torch::kSame))) == near(67.921875));
  CHECK(total(F::conv1d(sq, w1, F::Conv1dFuncOptions().stride(2).padding(1))) == near(-31.4736328));
  CHECK(total(F::conv_transpose2d(im, t2, F::ConvTranspose2dFuncOptions().stride(2))) == near(-21.1796875));
}

TEST_CASE_METHOD(Inputs, "softmax and reductions in another element type") {
  CHECK(total(torch::softmax(x, 1)) == near(15.0095853));
  CHECK(total(torch::softmax(x, 1, torch::kDouble)) == near(15.0095853));
  CHECK(total(torch::log_softmax(x, -1, torch::kDouble)) == near(-178.856709));
  CHECK(total(x.softmax(0, torch::kDouble)) == near(24.9475463));
  CHECK(total(x.log_softmax(0, torch::kDouble)) == near(-129.24078));
  CHECK(total(F::softmax(x, F::SoftmaxFuncOptions(1))) == near(15.0095853));
  CHECK(total(F::softmax(x, F::SoftmaxFuncOptions(1).dtype(torch::kDouble))) == near(15.0095853));
  CHECK(total(F::log_softmax(x, F::LogSoftmaxFuncOptions(0).dtype(torch::kDouble))) == near(-129.24078));
  CHECK(total(F::softmin(x, F::SoftminFuncOptions(1).dtype(torch::kDouble))) == near(14.3635664));
  CHECK(total(torch::sum(x, torch::kDouble)) == near(-0.3125));
  CHECK(total(x.sum(0, true, torch::kDouble)) == near(5.25));
  CHECK(total(x.mean(torch::kDouble)) == near(-0.0130208333));
  CHECK(total(torch::mean(x, {1}, true, torch::kDouble)) == near(0.0833333333));
  CHECK(total(x.prod(1, false, torch::kDouble)) == near(-0.0684454758));
  CHECK(total(x.prod(torch::kDouble)) == near(-6.57070812e-09));
  CHECK(total(torch::cumsum(x, 1, torch::kDouble)) == near(-29.25));
  CHECK(total(x.cumprod(0, torch::kDouble)) == near(10.6986294));
}

TEST_CASE_METHOD(Inputs, "views of another element type") {
  CHECK(total(x.view(torch::kInt)) == near(-1.03350272e+10));
  CHECK(total(x.to(torch::kDouble).view(torch::kLong)) == near(-3.78303776e+19));
}

TEST_CASE_METHOD(Inputs, "elu with its scales") {
  CHECK(total(torch::elu(x, 0.5)) == near(17.3693657));
  CHECK(total(torch::elu(x, 0.5, 1.5, 2.0)) == near(19.0729547));
  CHECK(total(F::elu(x, F::ELUFuncOptions().alpha(0.5))) == near(17.3693657));
}

TEST_CASE_METHOD(Inputs, "norm with any of its arguments") {
  CHECK(total(x.norm()) == near(3.34593964));
  CHECK(total(x.norm(1)) == near(14.25));
  CHECK(total(x.norm(2, 1)) == near(16.3117192));
  CHECK(total(torch::norm(x, 2, {1})) == near(16.3117192));
  CHECK(total(x.norm(torch::nullopt, torch::kDouble)) == near(3.3459397));
  CHECK(total(x.norm(2, torch::kDouble)) == near(3.3459397));
  CHECK(total(x.norm(torch::optional<torch::Scalar>(3), {1}, false, torch::kDouble)) == near(13.257865));
  CHECK(total(torch::norm(x, torch::nullopt, {0}, true)) == near(29.74194));
  CHECK(total(torch::frobenius_norm(x, {1})) == near(16.3117192));
}

TEST_CASE_METHOD(Inputs, "normalisation with LibTorch's order and its last argument") {
  CHECK(total(torch::batch_norm(im, bw, bb, bm, bv, false, 0.1, 1e-5, true)) == near(-1101.07373));
  CHECK(total(torch::batch_norm(im, bw, bb, bm.clone(), bv.clone(), true, 0.1, 1e-5, false)) == near(-307.824308));
  CHECK(total(torch::batch_norm(im, {}, {}, {}, {}, true, 0.1, 1e-5, true)) == near(-2.87701118));
  CHECK(total(torch::instance_norm(im, bw, bb, {}, {}, true, 0.1, 1e-5, true)) == near(-307.269221));
  CHECK(total(torch::layer_norm(x, {6})) == near(2.13899577));
  CHECK(total(torch::layer_norm(x, {6}, lw, lb, 1e-5, false)) == near(-9.40298836));
  CHECK(total(torch::group_norm(im, 3, bw, bb, 1e-5, true)) == near(-307.26922));
  CHECK(total(torch::group_norm(im, 1)) == near(-2.89729374));
  CHECK(total(F::batch_norm(im, bm, bv, F::BatchNormFuncOptions().weight(bw).bias(bb).eps(1e-4))) == near(-1100.87854));
  CHECK(total(F::layer_norm(x, F::LayerNormFuncOptions({6}).weight(lw))) == near(8.03451241));
  CHECK(total(F::group_norm(im, F::GroupNormFuncOptions(3))) == near(-3.4390561));
  CHECK(total(F::instance_norm(im, F::InstanceNormFuncOptions().eps(1e-3))) == near(-3.43417213));
}

TEST_CASE_METHOD(Inputs, "embedding with all its options") {
  CHECK(total(torch::embedding(table, idx)) == near(-4.21875));
  CHECK(total(torch::embedding(table, idx, -1, false, false)) == near(-4.21875));
  CHECK(total(torch::embedding(table, idx, 2, true)) == near(-4.21875));
  CHECK(total(F::embedding(idx, table, F::EmbeddingFuncOptions().padding_idx(-1))) == near(-4.21875));
  CHECK(total(F::embedding(idx, table.clone(), F::EmbeddingFuncOptions().max_norm(1.0).norm_type(1))) ==
        near(-5.23931593));
  CHECK(total(F::embedding(idx, table, F::EmbeddingFuncOptions().scale_grad_by_freq(true).sparse(false))) ==
        near(-4.21875));
  CHECK(total(torch::nn::Embedding(
            torch::nn::EmbeddingOptions(5, 3).padding_idx(-1).scale_grad_by_freq(true).sparse(false)._weight(
                table.clone()))(idx)) == near(-4.21875));
}

TEST_CASE_METHOD(Inputs, "clamp by numbers and by tensors") {
  CHECK(total(torch::clamp(x, -0.5, 0.5)) == near(-0.5));
  CHECK(total(torch::clamp(x, {}, 0.5)) == near(-7.8125));
  CHECK(total(torch::clamp(x, torch::nullopt, 0.5)) == near(-7.8125));
  CHECK(total(torch::clamp(x, 0.5)) == near(54.1875));
  CHECK(total(torch::clamp(x, lo, hi)) == near(-15.8125));
  CHECK(total(torch::clamp(x, lo)) == near(11.5625));
  CHECK(total(torch::clamp(x, torch::nullopt, hi)) == near(-26));
  CHECK(total(x.clamp(lo, hi)) == near(-15.8125));
  CHECK(total(x.clamp_min(lo)) == near(11.5625));
  CHECK(total(x.clamp_max(hi)) == near(-26));
  CHECK(total(torch::clamp_min(x, 0.25)) == near(39.03125));
  CHECK(total(torch::clamp_max(x, hi)) == near(-26));
  CHECK(total(x.clone().clamp_(lo, hi)) == near(-15.8125));
  CHECK(total(x.clone().clamp_(-0.5)) == near(8.6875));
  CHECK(total(x.clone().clamp_min_(lo)) == near(11.5625));
  CHECK(total(x.clone().clamp_max_(hi)) == near(-26));
}

TEST_CASE_METHOD(Inputs, "variance and deviation by dimension, unbiased and with correction") {
  CHECK(total(x.var()) == near(0.486575812));
  CHECK(total(x.var(false)) == near(0.466301799));
  CHECK(total(x.var({0})) == near(11.1985678));
  CHECK(total(x.std({1}, true)) == near(7.13666993));
  CHECK(total(torch::var(x, {0}, torch::optional<int64_t>(2), true)) == near(16.7978516));
  CHECK(total(torch::var(x, torch::nullopt, torch::optional<int64_t>(0))) == near(0.466301799));
  CHECK(total(x.var(torch::nullopt, torch::optional<int64_t>(2))) == near(0.508692861));
  CHECK(total(x.std({0}, torch::optional<int64_t>(2))) == near(17.486287));
  CHECK(total(x.std(torch::nullopt, torch::optional<int64_t>(0), true)) == near(0.682862937));
  CHECK(total(torch::std(x, {1}, false)) == near(6.51485866));
  CHECK(total(std::get<0>(torch::var_mean(x, {0}, true))) == near(11.1985678));
  CHECK(total(std::get<0>(torch::var_mean(x, {0}, torch::optional<int64_t>(2)))) == near(16.7978516));
  CHECK(total(std::get<0>(torch::std_mean(x, torch::nullopt, torch::optional<int64_t>(0)))) == near(0.682862937));
  CHECK(total(std::get<0>(torch::std_mean(x, false))) == near(0.682862937));
}

TEST_CASE_METHOD(Inputs, "division with a rounding mode") {
  CHECK(total(torch::div(x, y)) == near(145.360893));
  CHECK(total(torch::div(x, y, "floor")) == near(95));
  CHECK(total(torch::div(x, y, "trunc")) == near(130));
  CHECK(total(torch::div(x, 0.25, "floor")) == near(-44));
  CHECK(total(x.div(y, torch::nullopt)) == near(145.360893));
  CHECK(total(x.div(3, "trunc")) == near(0));
  CHECK(total(x.clone().div_(y, "floor")) == near(95));
  CHECK(total(torch::divide(x, y, "floor")) == near(95));
  CHECK(total(torch::floor_divide(x, y)) == near(95));
  CHECK(total(x.floor_divide(0.25)) == near(-44));
}

TEST_CASE_METHOD(Inputs, "sorting with stable, dim and descending") {
  CHECK(total(std::get<0>(torch::sort(x))) == near(-0.375));
  CHECK(total(std::get<1>(torch::sort(x, 0, true))) == near(116));
  CHECK(total(std::get<0>(torch::sort(x, true, 0, true))) == near(-6.125));
  CHECK(total(std::get<1>(x.sort(true, 1, false))) == near(288));
  CHECK(total(std::get<0>(x.sort(/*stable=*/c10::optional<bool>(true), 0))) == near(-10.4375));
  CHECK(total(torch::argsort(x, 1, true)) == near(218));
  CHECK(total(torch::argsort(x, true, 1, false)) == near(288));
  CHECK(total(x.argsort(true, 0, true)) == near(116));
}

TEST_CASE("options of layers by the number of directions", "[torch]") {
  const torch::nn::MaxPool2d pool(torch::nn::MaxPoolOptions<2>({3, 2}).stride(2).padding(1));
  CHECK(c10::str(pool).find("kernel_size=[3, 2], stride=[2, 2], padding=[1, 1]") != std::string::npos);
  CHECK(torch::nn::Conv1d(torch::nn::ConvOptions<1>(2, 3, 5))->weight.sizes() == torch::IntArrayRef{3, 2, 5});
}

TEST_CASE("operators that have another name in gradus", "[torch]") {
  const torch::Tensor x = torch::randn({2, 3}), target = torch::tensor({2, 0});
  CHECK(torch::equal(torch::cross_entropy_loss(x, target), gradus::cross_entropy(x, target)));
  const torch::Tensor image = torch::arange(4.f).reshape({1, 1, 2, 2});
  CHECK(torch::equal(at::upsample_nearest2d(image, {4, 4}), image.repeat_interleave(2, 2).repeat_interleave(2, 3)));
}

TEST_CASE("torch::binary_cross_entropy overlooks dimensions of one, the layer does not", "[torch]") {
  const torch::Tensor x = torch::full({3, 1}, 0.25), target = torch::tensor({0.0f, 1.0f, 1.0f});
  const torch::Tensor wanted = gradus::binary_cross_entropy(x, target.reshape({3, 1}));
  CHECK(torch::equal(torch::binary_cross_entropy(x, target), wanted));
  CHECK_THROWS_AS(torch::nn::BCELoss()(x, target), gradus::ShapeError);
  CHECK_THROWS_AS(torch::binary_cross_entropy(x, torch::ones({2})), gradus::ShapeError);
  using namespace torch;
  CHECK(equal(binary_cross_entropy(x, target.reshape({3, 1})), wanted));
}
