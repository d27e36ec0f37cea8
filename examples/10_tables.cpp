// 10. A table of numbers and words: the net predicts the price of a house. Numbers are normalised, and each word has an
// embedding vector.
//
// usage: 10_tables [HOUSES.csv]     with the columns area, age, town and price; without a file, the program makes
// random houses
#include <gradus/data/datasets/csv.h>
#include <gradus/gradus.h>

#include <cmath>
#include <iostream>

using namespace gradus;

namespace {

/// The price per square metre depends on the town. Very old and very new houses cost more than others.
data::Csv made_up_houses() {
  constexpr int64_t kHouses = 2000;
  const std::vector<std::string> towns = {"Oslo", "Bergen", "Tromso", "Moss"};
  const std::vector<double> prices = {7, 5, 4, 3};
  const Tensor area = 40 + 160 * rand({kHouses}), age = 100 * rand({kHouses});
  std::string text = "area,age,town,price\n";
  for (int64_t i = 0; i < kHouses; ++i) {
    const auto town = static_cast<size_t>(randint(4, {}, kLong).item<int64_t>());
    const double metres = area[i].item<double>(), years = age[i].item<double>();
    const double price =
        metres * prices[town] * (1 + std::pow((years - 50) / 50, 2) / 2) + 20 * randn({}).item<double>();
    text +=
        std::to_string(metres) + "," + std::to_string(years) + "," + towns[town] + "," + std::to_string(price) + "\n";
  }
  return data::parse_csv(text, "made-up houses");
}

struct PriceNet : nn::Module {
  PriceNet(int64_t numbers, int64_t towns)
      : town(register_module("town", nn::Embedding(towns, 4))),
        net(register_module("net", nn::Sequential(nn::Linear(numbers + 4, 64), nn::ReLU(), nn::Linear(64, 64),
                                                  nn::ReLU(), nn::Linear(64, 1)))) {}
  Tensor forward(const Tensor& numbers, const Tensor& towns) {  // (N, 2), (N)
    return net(cat({numbers, town(towns)}, 1)).squeeze(1);      // (N)
  }
  nn::Embedding town;
  nn::Sequential net;
};

double root_mean_square(const Tensor& x) { return std::sqrt(x.square().mean().item<double>()); }

}  // namespace

int main(int argc, char** argv) {
  manual_seed(0);
  const data::Csv houses = argc > 1 ? data::read_csv(argv[1]) : made_up_houses();
  const Tensor raw = stack({houses.numbers("area"), houses.numbers("age")}, 1), prices = houses.numbers("price");
  const auto [towns, names] = houses.categories("town");
  const int64_t count = prices.numel(), train = count * 4 / 5;  // the last fifth is for the test

  // Normalises with mean and deviation of the training part only: the test part must have no influence on training.
  const Tensor seen = raw.narrow(0, 0, train), seen_prices = prices.narrow(0, 0, train);
  const Tensor x = (raw - seen.mean(0, true)) / seen.std(0, true, true);
  const Tensor mean = seen_prices.mean(), deviation = seen_prices.std();
  const Tensor y = (prices - mean) / deviation;

  const auto net = std::make_shared<PriceNet>(x.size(1), static_cast<int64_t>(names.size()));
  optim::AdamW adam(net->parameters(), optim::AdamWOptions(3e-3));
  for (int64_t step = 1; step <= 1500; ++step) {
    const Tensor rows = randint(train, {128}, kLong);
    adam.zero_grad();
    smooth_l1_loss(net->forward(x.index_select(0, rows), towns.index_select(0, rows)), y.index_select(0, rows))
        .backward();
    adam.step();
  }

  const NoGradGuard no_grad;
  const int64_t rest = count - train;
  const Tensor told = net->forward(x.narrow(0, train, rest), towns.narrow(0, train, rest)) * deviation + mean;
  const Tensor real = prices.narrow(0, train, rest);
  std::cout << count << " houses in " << names.size() << " towns; " << rest << " of them for the test\n"
            << "error (root mean square): " << root_mean_square(told - real) << "; of the mean price "
            << root_mean_square(real - mean) << "\n";
}
