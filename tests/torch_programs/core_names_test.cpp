// What LibTorch programs say about tensors, devices and recording beside operators, by the headers that they include.
#include <algorithm>
#include <cmath>
#include <sstream>

#include <ATen/ATen.h>
#include <c10/util/irange.h>
#include <torch/nn.h>
#include <torch/script.h>

#include <gradus/tests/catch.h>

namespace {

// Sets the default element type until the end of the scope.
struct DefaultType {
  explicit DefaultType(torch::Dtype type) { torch::set_default_dtype(torch::scalarTypeToTypeMeta(type)); }
  ~DefaultType() { torch::set_default_dtype(before); }
  torch::Dtype before = torch::typeMetaToScalarType(torch::get_default_dtype());
};

}  // namespace

TEST_CASE("devices and options in LibTorch's words") {
  const torch::Device gpu(torch::kCUDA, 1), host("cpu");
  CHECK(gpu.type() == torch::DeviceType::CUDA);
  CHECK(gpu.index() == 1);
  CHECK(host.type() == c10::DeviceType::CPU);
  CHECK(torch::Device("cuda").has_index() == false);
  const auto options =
      torch::TensorOptions().dtype(torch::kInt64).layout(torch::kStrided).device(torch::kCUDA, 2).requires_grad(true);
  CHECK(options.device().index() == 2);
  CHECK(options.requires_grad());
  CHECK_FALSE(torch::TensorOptions("cuda:1").requires_grad());
  CHECK(c10::str(options) == "TensorOptions(dtype=Long, device=cuda:2, layout=Strided, requires_grad=true)");
  CHECK(torch::zeros({2}, torch::TensorOptions("cpu")).to("cpu").is_cpu());
  CHECK(torch::zeros({2}).get_device() == -1);
  CHECK(torch::zeros({1, 2, 2, 2})
            .to(torch::kCPU, torch::kByte, false, false, torch::MemoryFormat::ChannelsLast)
            .stride(1) == 1);
}

TEST_CASE("vectors are printed") {
  std::ostringstream stream;
  stream << std::vector<torch::Device>{torch::kCPU, torch::Device("cuda:1")} << std::vector<double>(101, 2);
  CHECK(stream.str().starts_with("cpu cuda:12 2 "));
  CHECK(stream.str().ends_with(" 2 ..."));
}

TEST_CASE("undefined tensors have no elements, others say their type and take the number of another") {
  CHECK(torch::Tensor().numel() == 0);
  CHECK(torch::ones({2}, torch::kLong).toString() == "CPULongType");
  const torch::Tensor value = torch::tensor({2.0f}, torch::requires_grad()), x = torch::zeros({3});
  (x * 1).fill_(value).sum().backward();
  CHECK(value.grad().item<float>() == 3);
  CHECK(torch::ones({2}, torch::kLong).fill_(value.detach()).equal(torch::full({2}, 2)));
}

TEST_CASE("the default type is that of fractions, of tensors made of nothing and of quotients of integers") {
  const std::vector<double> fractions = {1.5, 2.5};
  {
    const DefaultType as_double(torch::kDouble);
    CHECK(torch::ones(3).dtype() == torch::kDouble);
    CHECK(torch::tensor({1.5f}).dtype() == torch::kDouble);
    CHECK(torch::tensor(std::vector<float>{1.5f}).dtype() == torch::kDouble);
    CHECK((torch::arange(4) / 3).dtype() == torch::kDouble);
    CHECK(torch::arange(0., 5).dtype() == torch::kDouble);
    CHECK(torch::arange(4).exp().dtype() == torch::kDouble);
    CHECK((torch::arange(4) * 0.5).dtype() == torch::kDouble);
    CHECK(torch::nn::Linear(2, 2)->weight.dtype() == torch::kDouble);
    CHECK(torch::ones(3, torch::kFloat).dtype() == torch::kFloat);
  }
  CHECK(torch::tensor(fractions).dtype() == torch::kFloat);
  CHECK(torch::tensor(at::ArrayRef<double>(fractions)).dtype() == torch::kFloat);
  CHECK(torch::tensor(std::vector<int>{1, 2}).dtype() == torch::kLong);
  CHECK_THROWS_AS(torch::set_default_dtype(torch::kInt), torch::Error);
}

TEST_CASE("resize_ keeps the elements that stay and the memory where it is enough") {
  torch::Tensor x = torch::arange(6), view = x.narrow(0, 2, 2);
  const void* memory = x.data_ptr();
  x.resize_({2, 2});
  CHECK(x.equal(torch::tensor({{0, 1}, {2, 3}})));
  CHECK(x.data_ptr() == memory);
  x.resize_({2, 3});
  CHECK(x.flatten().equal(torch::arange(6)));
  view.resize_({4});
  CHECK(view.equal(torch::arange(2, 6)));
  x.resize_({3, 4});
  CHECK(x.flatten().narrow(0, 0, 6).equal(torch::arange(6)));
  CHECK(x.resize_({0}).numel() == 0);
  CHECK(torch::empty({0}).resize_as_(x).sizes() == x.sizes());
  CHECK_THROWS_AS(torch::ones({2}, torch::requires_grad()).resize_({3}), torch::Error);
  CHECK_THROWS_AS(x.resize_({-1}), torch::Error);
}

TEST_CASE("random_ draws whole numbers of the type") {
  torch::manual_seed(3);
  const torch::Tensor x = torch::empty({2000});
  x.random_(2, 5);
  CHECK((x.min().item<float>() == 2 && x.max().item<float>() == 4));
  x.random_(3);
  CHECK((x.min().item<float>() == 0 && x.max().item<float>() == 2));
  CHECK(x.equal(x.floor()));
  const torch::Tensor bytes = torch::empty({4000}, torch::kByte).random_();
  CHECK((bytes.min().item<int>() < 5 && bytes.max().item<int>() > 250));
  for (const torch::Dtype type : {torch::kHalf, torch::kBFloat16, torch::kFloat, torch::kDouble, torch::kLong}) {
    const torch::Tensor all = torch::empty({500}, type).random_().to(torch::kDouble);
    CHECK((all.min().item<double>() >= 0 && all.max().item<double>() > 200));
  }
  CHECK_THROWS_AS(x.random_(3, 3), torch::Error);
}

TEST_CASE("normal numbers have the mean and deviation of their place") {
  torch::manual_seed(4);
  const torch::Tensor mean = torch::tensor({-5., 7.}).expand({4000, 2}), deviation = torch::tensor({0.5, 3.});
  const torch::Tensor y = torch::normal(mean, deviation);
  CHECK(y.sizes() == mean.sizes());
  CHECK(torch::allclose(y.mean(0), mean[0], 0, 0.2));
  CHECK(torch::allclose(y.std(at::IntArrayRef{0}), deviation, 0.1));
  CHECK(std::abs(torch::normal(mean, 0.5).select(1, 1).std().item<float>() - 0.5) < 0.05);
  CHECK(std::abs(torch::normal(2., mean.abs()).select(1, 1).std().item<float>() - 7) < 0.5);
}

TEST_CASE("lists, ranges, warnings and versions") {
  const std::vector<int64_t> sizes = {2, 3};
  const at::ArrayRef<int64_t> list(sizes);
  CHECK(torch::zeros(list).sizes() == sizes);
  CHECK(at::ArrayRef<int64_t>(torch::zeros({4, 5}).sizes()).vec() == std::vector<int64_t>{4, 5});
  CHECK((list.slice(1) == at::ArrayRef<int64_t>(3) && list.at(0) == 2));
  CHECK_THROWS_AS(list.at(2), torch::Error);
  int64_t sum = 0;
  for (const auto i : c10::irange(sizes.size())) sum += sizes[i];
  for (const auto i : c10::irange(-2, int64_t{2})) sum += i;
  for (const auto i : c10::irange(-2)) sum += i;
  CHECK(sum == 3);
  std::ostringstream text;
  std::streambuf* const before = std::cerr.rdbuf(text.rdbuf());
  for (int i = 0; i < 3; ++i) TORCH_WARN_ONCE("once ", 1);
  for (int i = 0; i < 2; ++i) TORCH_WARN("twice");
  std::cerr.rdbuf(before);
  const std::string lines = text.str();
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 3);
  CHECK(lines.find("Warning: once 1\n") != std::string::npos);
  CHECK((TORCH_VERSION_MAJOR == 1 && TORCH_VERSION_MINOR == 13));
  try {
    TORCH_CHECK(false, "three is ", 3);
    FAIL("no exception");
  } catch (const c10::Error& error) {
    CHECK(std::string(error.what_without_backtrace()).find("three is 3") != std::string::npos);
    CHECK(error.msg() == error.what());
  }
  CHECK((torch::arange(5) % 3).equal(torch::tensor({0, 1, 2, 0, 1})));
  CHECK(torch::scalar_tensor(2).item().isFloatingPoint());
}

TEST_CASE("memory of somebody else's with strides") {
  std::vector<float> numbers = {0, 1, 2, 3, 4, 5, 6, 7};
  const torch::Tensor columns = torch::from_blob(numbers.data(), {2, 3}, {1, 3}, torch::kFloat);
  CHECK(columns.equal(torch::tensor({{0., 3., 6.}, {1., 4., 7.}})));
  int freed = 0;
  torch::from_blob(numbers.data(), {2}, {4}, [&](void*) { ++freed; }).sum();
  CHECK(freed == 1);
  CHECK_THROWS_AS(torch::from_blob(numbers.data(), {2, 3}, {1}), torch::Error);
  CHECK_THROWS_AS(torch::from_blob(numbers.data(), {2}, {-1}), torch::Error);
}

TEST_CASE("masks of bytes, and values with leading ones") {
  const torch::Tensor x = torch::arange(6).reshape({2, 3}), mask = torch::tensor({1, 0}, torch::kByte);
  CHECK(x.index({mask}).equal(torch::tensor({{0, 1, 2}})));
  CHECK(x.masked_select(mask.unsqueeze(1)).equal(torch::arange(3)));
  CHECK(torch::where(mask.unsqueeze(1), x, 9).equal(torch::tensor({{0, 1, 2}, {9, 9, 9}})));
  x.index_put_({mask}, torch::full({1, 1, 3}, 7));
  CHECK(x.equal(torch::tensor({{7, 7, 7}, {3, 4, 5}})));
  x.index_put_({torch::indexing::Slice()}, torch::ones({1, 1, 2, 3}, torch::kLong));
  CHECK(x.equal(torch::ones({2, 3}, torch::kLong)));
  CHECK_THROWS_AS(x.index_put_({torch::indexing::Slice()}, torch::ones({2, 1, 3})), torch::Error);
}

TEST_CASE("a view made without recording wants its base's gradient, and cannot be written where recording is on") {
  const torch::Tensor leaf = torch::ones({2, 3}, torch::requires_grad()), base = leaf * 2;
  torch::Tensor view;
  {
    torch::NoGradGuard no_grad;
    view = base.view({6});
    CHECK(view.requires_grad());
    CHECK(view.is_leaf());
    CHECK_FALSE((view * 2).requires_grad());
  }
  const torch::Tensor y = view * view;
  CHECK(y.requires_grad());
  y.backward(torch::ones_like(y));
  CHECK_FALSE(leaf.grad().defined());
  CHECK_THROWS_WITH(view.mul_(2), gradus::test::contains("created in no_grad mode"));
  CHECK_THROWS_AS(view.view({2, 3}).mul_(2), c10::Error);
  base.mul_(3);
  CHECK_THROWS_WITH(view.grad_fn(), gradus::test::contains("modified inplace"));
  const torch::NoGradGuard no_grad;
  view.zero_();
  CHECK(base.sum().item<float>() == 0);
}

TEST_CASE("tensors of inference mode, and those of before in it") {
  const torch::Tensor leaf = torch::ones({2, 3}, torch::requires_grad()), normal = leaf * 2;
  torch::Tensor made, view;
  {
    const c10::InferenceMode guard;
    CHECK_FALSE(torch::GradMode::is_enabled());
    made = torch::ones({2, 3});
    view = normal.view({6});
    CHECK((made.is_inference() && made.view({6}).is_inference() && !made.view({6}).is_view()));
    CHECK((!view.is_inference() && view.is_view() && view.requires_grad()));
    made.add_(1), view.add_(1);
    const c10::InferenceMode off(false);
    CHECK(torch::GradMode::is_enabled());
    CHECK_FALSE(torch::ones(1).is_inference());
  }
  CHECK(made.view({6}).is_inference());
  CHECK_FALSE((made * 2).is_inference());
  CHECK((made + leaf).requires_grad());  // keeps nothing for backward
  CHECK_THROWS_WITH(made * leaf, gradus::test::contains("cannot be saved for backward"));
  CHECK_THROWS_WITH(made.add_(1), gradus::test::contains("Inplace update to inference tensor"));
  CHECK_THROWS_AS(made.set_requires_grad(true), torch::Error);
  CHECK_THROWS_WITH(view.add_(1), gradus::test::contains("created in inference mode"));
  CHECK((made.clone() * leaf).requires_grad());
}

TEST_CASE("hooks that only look, inputs in braces, and lists of tensors in functions") {
  const torch::Tensor x = torch::ones({2}, torch::requires_grad()), y = torch::ones({2}, torch::requires_grad());
  double seen = 0;
  x.register_hook([&](torch::Tensor gradient) { seen = gradient.sum().item<double>(); });
  y.register_hook([](torch::Tensor gradient) { return gradient * 10; });
  (x * y * 3).sum().backward({}, true, false, {x});
  CHECK(seen == 6);
  CHECK_FALSE(y.grad().defined());
  (x * y * 3).sum().backward();
  CHECK(y.grad().sum().item<float>() == 60);
  CHECK_THROWS_AS((x * y).sum().backward({}, true, false, std::vector<torch::Tensor>{}), torch::Error);
  CHECK_THROWS_AS(torch::autograd::grad({(x * y).sum()}, {}), torch::Error);

  struct Product : torch::autograd::Function<Product> {
    static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::TensorList factors, double scale) {
      context->save_for_backward(factors);
      context->saved_data["scale"] = scale;
      return factors[0] * factors[1] * scale;
    }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::tensor_list gradient) {
      const auto factors = context->get_saved_variables();
      const double scale = context->saved_data["scale"].toDouble();
      return {gradient[0] * factors[1] * scale, gradient[0] * factors[0] * scale, torch::Tensor()};
    }
  };
  const torch::Tensor a = torch::full({2}, 2., torch::requires_grad()),
                      b = torch::full({2}, 5., torch::requires_grad());
  Product::apply(torch::TensorList{a, b}, 3.).sum().backward();
  CHECK((a.grad().sum().item<float>() == 30 && b.grad().sum().item<float>() == 12));
  CHECK(torch::autograd::make_variable(a, true).is_leaf());
}

TEST_CASE("mark_dirty counts a version, also of what was written through data_ptr") {
  struct Written : torch::autograd::Function<Written> {
    static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x) {
      x.data_ptr<float>()[0] = 4;
      context->mark_dirty({x});
      return x;
    }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list dy) {
      return {dy[0] * 2};
    }
  };
  const torch::Tensor leaf = torch::ones({2}, torch::requires_grad()), x = leaf.clone();
  const auto before = x._version();
  Written::apply(x).sum().backward();
  CHECK(x._version() > before);
  CHECK(leaf.grad().sum().item<float>() == 4);
}

TEST_CASE("smooth_l1_loss takes beta behind its options") {
  const torch::Tensor x = torch::tensor({0.25, 3.}), zero = torch::zeros({2});
  const double loss = torch::nn::functional::smooth_l1_loss(x, zero, torch::kSum, 0.5).item<double>();
  CHECK(loss == Approx(0.25 * 0.25 / 2 / 0.5 + 3 - 0.25));
}
