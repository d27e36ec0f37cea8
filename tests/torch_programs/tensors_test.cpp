// Tensors in LibTorch's words: creation, options, indexing, conversion, assertions, names of at and c10.
#include <gradus/torch.h>

#include <gradus/tests/catch.h>

#include <sstream>

TEST_CASE("tensors are made with LibTorch's options") {
  auto options = torch::TensorOptions().dtype(torch::kFloat64).device(torch::kCPU).requires_grad(true);
  torch::Tensor a = torch::zeros({2, 3}, options);
  CHECK(a.dtype() == torch::kF64);
  CHECK(a.requires_grad());
  CHECK(torch::ones({2}, torch::dtype(torch::kInt32)).scalar_type() == torch::kInt);
  CHECK(torch::full({2, 2}, 7, torch::kLong).sum().item<int64_t>() == 28);
  CHECK(torch::arange(5).sizes() == torch::IntArrayRef({5}));
  CHECK(torch::eye(3).sum().item().toFloat() == 3);
  float numbers[] = {1, 2, 3, 4};
  torch::Tensor view = torch::from_blob(numbers, {2, 2});
  TORCH_CHECK(numbers == view.data_ptr<float>());
  std::vector<double> vector = {1, 2, 3};
  CHECK(torch::tensor(vector).dtype() == torch::kFloat32);
  CHECK(torch::tensor({{1, 2}, {3, 4}}).dtype() == torch::kInt64);
  auto accessor = view.accessor<float, 2>();
  CHECK(accessor[1][0] == 3);
  CHECK(view.to(torch::kFloat64).dtype() == torch::kDouble);
}

TEST_CASE("indexing is Python's") {
  using torch::indexing::Ellipsis;
  using torch::indexing::None;
  using torch::indexing::Slice;
  torch::Tensor s = torch::arange(1, 10).reshape({3, 3});
  CHECK(s.index({0, 2}).item<int64_t>() == 3);
  CHECK(s.index({Slice(None, 2), Slice(1, None)}).equal(torch::tensor({{2, 3}, {5, 6}})));
  CHECK(s.index({Slice(), Slice(None, None, 2)}).equal(torch::tensor({{1, 3}, {4, 6}, {7, 9}})));
  CHECK(s.index({Ellipsis, Slice(None, 2)}).sizes() == torch::IntArrayRef({3, 2}));
  CHECK(s.index({"...", 0}).equal(torch::tensor({1, 4, 7})));
  s.index_put_({Slice(), 0}, 0);
  CHECK(s.sum().item<int>() == 33);
  CHECK(s.index({s > 5}).equal(torch::tensor({6, 8, 9})));
  s[1] = torch::tensor({1, 1, 1});
  s[2][2] = 5;
  CHECK(s.equal(torch::tensor({{0, 2, 3}, {1, 1, 1}, {0, 8, 5}})));
}

TEST_CASE("tensors change their shape in place, and are made like others") {
  torch::Tensor x = torch::arange(6);
  x.unsqueeze_(0).t_();
  CHECK(x.sizes() == torch::IntArrayRef({6, 1}));
  x.squeeze_(1);
  CHECK(x.unfold(0, 3, 2).equal(torch::tensor({{0, 1, 2}, {2, 3, 4}})));
  CHECK(torch::max(x, torch::full_like(x, 3)).equal(torch::tensor({3, 3, 3, 3, 4, 5})));
  CHECK(torch::min(x).item<int>() + x.min(x + 1).sum().item<int>() == 15);
  x.index_put_({torch::tensor({1, 1, 1})}, torch::tensor(10), true);
  CHECK(x[1].item<int>() == 31);
  CHECK(x.split_with_sizes({1, 2, 3}).back().equal(torch::tensor({3, 4, 5})));
  CHECK(torch::randn_like(x, torch::TensorOptions(torch::kDouble).requires_grad(true)).requires_grad());
  CHECK(x.new_zeros({2, 2}, torch::TensorOptions(torch::kDouble)).dtype() == torch::kDouble);
  auto [rows, inverse, counts] = torch::unique_dim(torch::tensor({{1, 2}, {0, 5}, {1, 2}}), 0, false, true, true);
  CHECK(rows.equal(torch::tensor({{0, 5}, {1, 2}})));
  CHECK(inverse.equal(torch::tensor({1, 0, 1})));
  CHECK(counts.equal(torch::tensor({1, 2})));
  const torch::Tensor planes = torch::tensor({{{0, 0, 0}, {1, 0, 1}}, {{0, 1, 0}, {0, 0, 0}}});
  CHECK(std::get<0>(torch::unique_dim(planes, -1)).equal(torch::tensor({{{0, 0}, {0, 1}}, {{1, 0}, {0, 0}}})));
  torch::nn::AnyModule any(torch::nn::Identity{});
  CHECK(any.forward<>(x).is_same(x));
}

TEST_CASE("names of torch, at and c10 are one thing") {
  at::Tensor x = at::ones({2});
  c10::optional<int64_t> none = c10::nullopt;
  torch::optional<double> some = torch::make_optional(2.0);
  CHECK_FALSE(none.has_value());
  CHECK(x.mul(*some).equal(torch::full({2}, 2.0)));
  CHECK(c10::Device("cpu") == torch::Device(torch::kCPU));
  CHECK(torch::str("a", 1, '-', 2.5) == "a1-2.5");
  CHECK_THROWS_AS([] { TORCH_CHECK(1 == 2, "numbers ", 1, " and ", 2); }(), torch::Error);
  CHECK_THROWS_WITH([] { TORCH_CHECK(1 == 2, "numbers ", 1, " and ", 2); }(),
                    gradus::test::contains("numbers 1 and 2"));
  CHECK_NOTHROW([] { AT_ASSERT(true); }());
  torch::ExpandingArray<2> pair({2, 3}), both(4);
  CHECK((*pair)[1] == 3);
  CHECK(torch::nn::Functional(torch::reshape, torch::ExpandingArray<2>({-1, 2}))(torch::ones({4, 3})).size(0) == 6);
  CHECK(torch::nn::Functional(torch::max_pool2d, 2, both, 0, 1, false)(torch::ones({1, 1, 8, 8})).sizes() ==
        torch::IntArrayRef({1, 1, 2, 2}));
  CHECK(torch::constant_pad_nd(torch::ones({2}), {1, 1}, 3).equal(torch::tensor({3., 1., 1., 3.})));
  CHECK(torch::reflection_pad2d(torch::arange(3).view({1, 1, 3}).to(torch::kFloat), {2, 0, 0, 0})
            .equal(torch::tensor({2., 1., 0., 1., 2.}).view({1, 1, 5})));
  CHECK(torch::replication_pad1d(torch::ones({1, 2}), 1).sizes() == torch::IntArrayRef({1, 4}));
  torch::add_out(x, torch::ones(2), torch::ones(2));
  CHECK(x.equal(torch::full({2}, 2.0)));
  CHECK(torch::get_num_threads() >= 1);

  torch::nn::Linear a(2, 3), b(2, 3);
  torch::nn::utils::vector_to_parameters(torch::nn::utils::parameters_to_vector(a->parameters()), b->parameters());
  CHECK(b->weight.equal(a->weight));
  CHECK(b->bias.equal(a->bias));
  CHECK_THROWS_AS(torch::nn::utils::vector_to_parameters(torch::ones(3), b->parameters()), torch::Error);
}

TEST_CASE("the process's switches go by LibTorch's names") {
  auto& context = at::globalContext();
  CHECK(context.hasCuDNN() == gradus::has_backend("cudnn"));
  CHECK(context.hasCUDA() == torch::cuda::is_available());
  CHECK(torch::cuda::cudnn_is_available() == (context.hasCUDA() && context.hasCuDNN()));
  const bool tf32 = context.allowTF32CuDNN();
  context.setAllowTF32CuDNN(!tf32), context.setBenchmarkCuDNN(true), context.setDeterministicCuDNN(false);
  context.setAllowTF32CuBLAS(true);
  CHECK(gradus::cudnn::allow_tf32() == !tf32);
  CHECK(gradus::cudnn::benchmark());
  CHECK_FALSE(gradus::cudnn::deterministic());
  context.setDeterministicAlgorithms(true, true);
  CHECK(context.deterministicAlgorithms());
  CHECK(gradus::cuda::matmul_allow_tf32());
  context.setAllowTF32CuDNN(tf32), context.setBenchmarkCuDNN(false), context.setDeterministicCuDNN(true);
  context.setAllowTF32CuBLAS(false);
  CHECK_FALSE(context.benchmarkCuDNN());
  CHECK(context.deterministicCuDNN());
  CHECK_FALSE(context.allowTF32CuBLAS());
}

TEST_CASE("numbers of tensors are printed", "[torch]") {
  std::ostringstream stream;
  stream << torch::tensor(1.5).item() << ' ' << torch::arange(4)[3].item() << ' ' << torch::tensor(true).item();
  CHECK(stream.str() == "1.5 3 1");
}
