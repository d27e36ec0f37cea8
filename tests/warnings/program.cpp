// A user's program with a broad sample of the interface, which warnings.sh compiles with many warnings as errors. It is
// not run. Options are made in every way that users know, since what g++ warns of depends on what is inlined.
#include <gradus/autograd/diagnosis.h>
#include <gradus/distributed/distributed.h>
#include <gradus/gradus.h>
#include <gradus/torch.h>
#include <gradus/training/metrics.h>

#include <chrono>
#include <iostream>

using namespace gradus;

Tensor make_tensors(int64_t n, const Tensor& like);
Tensor index_and_reduce(const Tensor& x);
void make_layers();
Tensor call_functions(const Tensor& x, const Tensor& w);
void train(const std::string& path);
void train_together();

Tensor make_tensors(int64_t n, const Tensor& like) {
  const Device device(kCPU);
  Tensor sum = arange(n, TensorOptions().dtype(kLong).device(kCPU)).to(kFloat);
  for (int i = 0; i < 3; ++i) sum = sum + arange(10, TensorOptions().dtype(kFloat).device(device));
  sum += arange(0, n, 2, TensorOptions().dtype(like.dtype()).device(like.device()).requires_grad(true));
  sum += zeros({n}, dtype(kDouble).device("cpu")) + ones({n, 1}, device) + full({n}, 3, like.options());
  sum += empty({2, 3}, TensorOptions().device(DeviceType::cuda, 1).memory_format(MemoryFormat::contiguous));
  sum += linspace(0, 1, n, kFloat) + eye(n) + rand({n}, kDouble) + randint(5, {n}, kLong) + randperm(n);
  sum += zeros_like(like, TensorOptions().dtype(kHalf)) + tensor({1.0, 2.0, 3.0}) + tensor({1, 2}, kInt);
  std::vector<float> numbers(12);
  sum += from_blob(numbers.data(), {3, 4}).clone();
  return sum;
}

Tensor index_and_reduce(const Tensor& x) {
  using torch::indexing::Slice;
  Tensor y = x.index({Slice(1, 3), "...", None, Slice(None, None, 2), 0, true});
  y.index_put_({Slice(), x > 0}, 1.5);
  y[0] = 2, y[1][2] += x[-1].item<float>();
  y = y.view({2, -1}).transpose(0, 1).reshape({-1}).unsqueeze(0).expand({3, -1}).contiguous();
  const auto [values, indices] = y.topk(2, 1);
  const auto [most, where] = y.max(1, true);
  y = where.to(y.dtype()) + most + values.sum({0, 1}, true) + indices + y.mean(1) + y.std(0) + y.var({1}) + y.norm();
  y = cat({y, -y}, 1) * 2 + (1 - y) / (y.abs() + 1e-6) + y.pow(2).exp().log().sqrt().tanh() + y.clamp(-1, 1.0);
  y = torch::where(y > 0, y, torch::zeros_like(y)) + stack({y, y}).softmax(-1)[0] + y.matmul(y.t()) + y.cumsum(1);
  for (const Tensor& part : y.split(2)) y += part.sum();
  float last = 0;
  const auto numbers = y.accessor<float, 2>();
  for (int64_t i = 0; i < numbers.size(0); ++i) last += numbers[i][0];
  std::cout << y << " " << y.sizes() << " " << y.options() << " " << last << "\n";
  return y;
}

void make_layers() {
  nn::Conv2d strided(nn::Conv2dOptions(3, 8, 3).stride(2).padding(1).bias(false));
  nn::Conv2d same(nn::Conv2dOptions(3, 8, {3, 5}).padding(kSame).padding_mode(kReflect).dilation({1, 2}).groups(1));
  nn::Conv1d sequence(nn::Conv1dOptions(3, 8, 3).padding(1));
  nn::ConvTranspose2d transposed(nn::ConvTranspose2dOptions(8, 3, 4).stride(2).output_padding({1, 1}));
  nn::Conv2dOptions options(1, 1, 1);
  options.padding({1, 2}).stride() = 2;
  const nn::Conv2dOptions copied = options;
  options = nn::Conv2dOptions(2, 2, 2).padding(torch::kValid);
  nn::Sequential net(strided, nn::BatchNorm2d(nn::BatchNorm2dOptions(8).eps(1e-5).momentum(std::nullopt)), nn::ReLU(),
                     nn::MaxPool2d(nn::MaxPool2dOptions(2).stride({2, 1}).padding(0).ceil_mode(true)),
                     nn::AvgPool2d(nn::AvgPool2dOptions({2, 2}).count_include_pad(false)),
                     nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({std::nullopt, 4})),
                     nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions(2)), nn::Dropout(0.5),
                     nn::Dropout2d(nn::DropoutOptions().p(0.1)), nn::GroupNorm(nn::GroupNormOptions(2, 8)),
                     nn::LayerNorm(nn::LayerNormOptions({4, 4}).elementwise_affine(false)),
                     nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(kBilinear)),
                     nn::Flatten(nn::FlattenOptions().start_dim(1)), nn::Linear(nn::LinearOptions(128, 10).bias(false)),
                     nn::GELU(), nn::LogSoftmax(1));
  nn::LSTM lstm(nn::LSTMOptions(4, 8).num_layers(2).batch_first(true).dropout(0.1).bidirectional(true));
  nn::GRU gru(nn::GRUOptions(4, 8)), copy_of_gru = gru;
  nn::Embedding embedding(nn::EmbeddingOptions(10, 4).padding_idx(0).max_norm(2.0).scale_grad_by_freq(true));
  nn::EmbeddingBag bag(nn::EmbeddingBagOptions(10, 4).mode(torch::kSum));
  nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(8, 2).dropout(0.1).kdim(4));
  nn::TransformerEncoder encoder(nn::TransformerEncoderOptions(nn::TransformerEncoderLayerOptions(8, 2), 2));
  nn::CrossEntropyLoss loss(nn::CrossEntropyLossOptions().ignore_index(-1).label_smoothing(0.1).reduction(kSum));
  nn::TripletMarginLoss triplet(nn::TripletMarginLossOptions().margin(0.5).swap(true));
  nn::ReflectionPad2d reflection(nn::ReflectionPad2dOptions({1, 1, 2, 2}));
  nn::ModuleDict dict;
  dict->insert("one", nn::Linear(1, 1).ptr());
  std::cout << net << copied.kernel_size().h << options.padding().w << "\n";
  for (const auto& item : net->named_parameters()) std::cout << item.key() << item.value().numel();
}

Tensor call_functions(const Tensor& x, const Tensor& w) {
  namespace F = nn::functional;
  Tensor y = F::conv2d(x, w, F::Conv2dFuncOptions().stride(1).padding({1, 1}));
  y = F::max_pool2d(F::relu(y), F::MaxPool2dFuncOptions(2)) + F::avg_pool2d(y, F::AvgPool2dFuncOptions(3).stride(2));
  y = F::interpolate(y,
                     F::InterpolateFuncOptions().size(std::vector<int64_t>{4, 4}).mode(kBilinear).align_corners(false));
  y = F::dropout(F::pad(y, F::PadFuncOptions({1, 1}).mode(kConstant).value(0.5)), F::DropoutFuncOptions().p(0.2));
  y = F::softmax(y, F::SoftmaxFuncOptions(1).dtype(kDouble)) + F::normalize(y, F::NormalizeFuncOptions().p(2).dim(1));
  y = F::batch_norm(y, {}, {}, F::BatchNormFuncOptions().training(true)) + F::one_hot(y.argmax(1), 3);
  y = conv2d(x, w, {}, {2, 1}, kSame) + conv2d(x, w) + max_pool2d(x, 2) + max_pool2d(x, {2, 3}, {2, 2}, 1);
  y = adaptive_avg_pool2d(y, {2, std::nullopt}) + adaptive_avg_pool2d(y, 1) +
      interpolate(y, {}, std::vector<double>{2, 2});
  return y + F::mse_loss(y, x) + F::cross_entropy(y, x, F::CrossEntropyFuncOptions().reduction(kMean));
}

namespace {

struct Double : autograd::Function<Double> {
  static Tensor forward(AutogradContext* context, const Tensor& x, double factor) {
    context->save_for_backward({x});
    context->saved_data["factor"] = factor;
    return x * factor;
  }
  static TensorList backward(AutogradContext* context, const TensorList& dy) {
    return {dy[0] * context->saved_data["factor"].toDouble(), Tensor()};
  }
};

struct NetImpl : nn::Module {
  explicit NetImpl(int64_t width) {
    first = register_module("first", nn::Linear(2, width));
    scale = register_parameter("scale", ones({1}));
    shift = register_buffer("shift", zeros({1}));
  }
  Tensor forward(const Tensor& x) { return relu(first(x)) * scale + shift; }
  nn::Linear first{nullptr};
  Tensor scale, shift;
};
GRADUS_MODULE(Net);

class Points : public data::datasets::Dataset<Points> {
 public:
  data::Example<> get(size_t index) override {
    return {full({2}, static_cast<double>(index)), tensor(static_cast<int64_t>(index % 2))};
  }
  std::optional<size_t> size() const override { return 100; }
};

}  // namespace

void train(const std::string& path) {
  manual_seed(1);
  Net net(16);
  auto loader = data::make_data_loader<data::samplers::RandomSampler>(
      Points().map(data::transforms::Normalize<>(0.5, 0.5)).map(data::transforms::Stack<>()),
      data::DataLoaderOptions(16).workers(2).drop_last(true).timeout(std::chrono::seconds(5)));
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-4));
  optim::Adam adam(net->parameters(), optim::AdamOptions(1e-3).betas({0.9, 0.99}).amsgrad(true));
  optim::AdamW adamw({optim::OptimizerParamGroup(net->parameters())}, optim::AdamWOptions(1e-3));
  optim::LBFGS lbfgs(net->parameters(), optim::LBFGSOptions(1).max_iter(4).max_eval(5));
  optim::StepLR schedule(sgd, 2, 0.5);
  training::EarlyStopping stopping(*net, training::EarlyStoppingOptions().patience(3));
  training::ConfusionMatrix confusion(2);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      sgd.zero_grad();
      const amp::Autocast autocast(kCPU, kBFloat16);
      const Tensor loss = cross_entropy(Double::apply(net(batch.data), 2.0), batch.target);
      loss.backward();
      nn::utils::clip_grad_norm_(net->parameters(), 1.0);
      sgd.step();
      std::cout << loss.item<float>() << "\n";
    }
    schedule.step();
    const NoGradGuard no_grad;
    net->eval();
    for (auto& batch : *loader) confusion.update(net(batch.data), batch.target);
    net->train();
  }
  adam.step(), adamw.step();
  lbfgs.step([&] { return net(ones({1, 2})).sum(); });
  save(net, path), load(net, path);
  torch::save(net->scale, path);
  const Tensor x = randn({2}, kDouble).requires_grad_();
  autograd::gradcheck([](const TensorList& inputs) { return TensorList{inputs[0].sin()}; }, {x});
  const TensorList gradients = autograd::grad({x.sum()}, {x}, {}, true, true);
}

void train_together() {
  auto group = dist::init_process_group({.backend = "tcp"});
  const Array x = ones({4}).array();
  group->all_reduce(x);
  Net net(4);
  dist::DistributedDataParallel parallel(net, group);
  if (group->rank() == 0) std::cout << group->size() << "\n";
  group->barrier();
}

int main() {
  std::cout << make_tensors(3, Tensor()) << index_and_reduce(Tensor()) << call_functions(Tensor(), Tensor());
  make_layers(), train("weights.safetensors"), train_together();
}
