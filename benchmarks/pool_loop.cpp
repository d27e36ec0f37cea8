// Shows what a kernel saves: times an epoch of LeNet on MNIST with the library's max pooling, and with a max pooling
// whose backward pass is a loop of tensor operations over the windows. Prints a JSON line for each.
//
//   pool_loop --threads 2 --data ../shared/data
#include <cstdio>

#include <gradus/benchmarks/common/program.h>
#include <gradus/benchmarks/timing.h>
#include <gradus/gradus.h>

namespace {

using namespace gradus;

/// Max pooling with windows of 2x2.
struct LoopMaxPool : autograd::Function<LoopMaxPool> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    const Tensor y = max_pool2d(x, 2);
    context->save_for_backward({x, y});
    return y;
  }

  // The gradient of a window goes to its greatest value. (If several values are the greatest, all of them get it. After
  // a ReLU, these values are zeros, whose gradient the ReLU sets to 0.)
  static TensorList backward(AutogradContext* context, const TensorList& dy) {
    const Tensor x = context->get_saved_variables()[0], y = context->get_saved_variables()[1];
    const Tensor dx = zeros_like(x);
    for (int64_t i = 0; i < y.size(2); ++i)
      for (int64_t j = 0; j < y.size(3); ++j) {
        const auto window = [&](const Tensor& of) { return of.narrow(2, 2 * i, 2).narrow(3, 2 * j, 2); };
        const auto pixel = [&](const Tensor& of) { return of.narrow(2, i, 1).narrow(3, j, 1); };
        window(dx).copy_((window(x) == pixel(y)).to(kFloat) * pixel(dy[0]));  // (N, C, 2, 2)
      }
    return {dx};
  }
};

nn::Sequential lenet(bool loop) {
  nn::Sequential net(nn::ConvReLU2d(nn::Conv2dOptions(1, 6, 5).padding(2)));
  const auto pool = [&] {
    if (loop) net->push_back(nn::Functional([](const Tensor& x) { return LoopMaxPool::apply(x); }));
    else net->push_back(nn::MaxPool2d(2));
  };
  pool();
  net->push_back(nn::ConvReLU2d(nn::Conv2dOptions(6, 16, 5)));
  pool();
  net->extend(*nn::Sequential(nn::Flatten(), nn::Linear(400, 120), nn::ReLU(), nn::Linear(120, 84), nn::ReLU(),
                              nn::Linear(84, 10)));
  return net;
}

void run(const data::datasets::MNIST& digits, bool loop) {
  manual_seed(1);
  auto loader =
      data::make_data_loader(digits.map(data::transforms::Normalize<>(0.1307, 0.3081)).map(data::transforms::Stack<>()),
                             data::DataLoaderOptions(64).workers(1));
  const nn::Sequential net = lenet(loop);
  optim::Adam optimizer(net->parameters(), optim::AdamOptions(2e-3));
  double loss_sum = 0;
  int64_t steps = 0;
  const double start = benchmarks::now_ms();
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(net->forward(batch.data), batch.target);
    loss.backward();
    optimizer.step();
    loss_sum += loss.item<double>();
    ++steps;
  }
  std::printf("%s\n", benchmarks::to_json({{"backward", loop ? "loop" : "kernel"},
                                           {"seconds", (benchmarks::now_ms() - start) / 1000},
                                           {"steps", steps},
                                           {"train_loss", loss_sum / static_cast<double>(steps)}})
                          .c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder;
  benchmarks::Program program("pool_loop",
                              "Trains LeNet for an epoch with max-pooling's backward as a kernel and as a loop");
  program.option("--data", folder, "folder of MNIST (default: where the examples search)");
  return program.run(argc, argv, [&] {
    const std::string root = data::datasets::find_mnist(folder);
    GRADUS_CHECK(!root.empty(), IoError, "no MNIST: give its folder with --data, or fetch it with scripts/mnist.sh");
    const data::datasets::MNIST digits(root);
    for (const bool loop : {false, true}) run(digits, loop);
  });
}
