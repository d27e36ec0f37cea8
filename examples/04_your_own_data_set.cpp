// 4. Training on your own dataset, with transforms and a loader.
//
// The task is to decide whether a point of the plane is in a ring. A dataset is a struct with two functions, get(index)
// and size().
#include <gradus/gradus.h>

#include <iostream>

using namespace gradus;

namespace {

/// Random points (2). A point is in class 1 if 1/2 < |point| < 1. Your dataset might read files instead: the
/// constructor lists the files, and get reads one of them. Each worker of a loader has its own copy of the dataset, so
/// get needs no lock.
class Rings : public data::datasets::Dataset<Rings> {
 public:
  explicit Rings(int64_t size) : points_(rand({size, 2}) * 2 - 1) {
    const Tensor radius = points_.pow(2).sum({1}).sqrt();
    classes_ = logical_and(radius > 0.5, radius < 1.0).to(kLong);
  }

  data::Example<> get(size_t index) override {
    const auto row = static_cast<int64_t>(index);
    return {points_[row], classes_[row]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(points_.size(0)); }

 private:
  Tensor points_, classes_;  // copies of the dataset share these tensors
};

/// Makes a loader. map() only describes the work; the loader's workers do it while the net trains.
template <class Sampler>
auto make_loader(const Rings& rings) {
  auto batches = Rings(rings)
                     .map(data::transforms::TensorLambda<>([](const Tensor& point) { return 2 * point; }))
                     .map(data::transforms::Stack<>());  // makes one batch of many samples
  return data::make_data_loader<Sampler>(batches, data::DataLoaderOptions().batch_size(50).workers(1));
}

}  // namespace

int main() {
  manual_seed(0);
  const Rings train_set(4000), test_set(1000);
  auto train_loader = make_loader<data::samplers::RandomSampler>(train_set);  // a different order in every epoch
  auto test_loader = make_loader<data::samplers::SequentialSampler>(test_set);

  nn::Sequential net(nn::Linear(2, 32), nn::ReLU(), nn::Linear(32, 32), nn::ReLU(), nn::Linear(32, 2));
  optim::Adam adam(net->parameters(), 0.005);
  for (int epoch = 1; epoch <= 8; ++epoch) {
    double loss_sum = 0;
    for (auto& batch : *train_loader) {  // data (50, 2), target (50)
      adam.zero_grad();
      const Tensor loss = cross_entropy(net(batch.data), batch.target);
      loss.backward();
      adam.step();
      loss_sum += loss.item<double>() * static_cast<double>(batch.data.size(0));
    }

    const NoGradGuard no_grad;
    int64_t right = 0;
    for (auto& batch : *test_loader) right += (net(batch.data).argmax(1) == batch.target).sum().item<int64_t>();
    std::cout << "epoch " << epoch << "  train loss " << loss_sum / 4000 << "  test accuracy "
              << 100.0 * static_cast<double>(right) / 1000 << " %\n";
  }
}
