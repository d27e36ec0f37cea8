// 7. An autoencoder: a net that compresses the 784 pixels of an image to 16 numbers and restores the image from them.
//
// usage: 07_autoencoder [PICTURE.png]     draws some digits, and below them the restored digits
#include <gradus/data/images/image_file.h>
#include <gradus/gradus.h>

#include <iostream>

using namespace gradus;

namespace {

/// All images of a dataset, (N, 784) with values from 0 to 1.
Tensor pixels_of(data::datasets::SyntheticDigits digits) {
  TensorList images;
  for (size_t i = 0; i < *digits.size(); ++i) images.push_back(digits.get(i).data.flatten());
  return stack(images);
}

/// The mean squared difference of the pixels.
double error(const Tensor& x, const Tensor& y) { return (x - y).square().mean().item<double>(); }

}  // namespace

int main(int argc, char** argv) {
  manual_seed(0);
  const Tensor train = pixels_of(data::datasets::SyntheticDigits(4000));
  const Tensor test = pixels_of(data::datasets::SyntheticDigits(500, 0, data::datasets::MNIST::kTest));

  nn::Sequential encoder(nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 16));
  nn::Sequential decoder(nn::Linear(16, 128), nn::ReLU(), nn::Linear(128, 784), nn::Sigmoid());
  std::vector<Tensor> parameters = encoder->parameters();
  for (const Tensor& parameter : decoder->parameters()) parameters.push_back(parameter);
  optim::Adam adam(parameters, 2e-3);

  for (int64_t step = 1; step <= 1500; ++step) {
    const Tensor x = train.index_select(0, randint(train.size(0), {128}, kLong));  // (128, 784)
    adam.zero_grad();
    const Tensor loss = binary_cross_entropy(decoder(encoder(x)), x);  // treats each pixel as the probability of ink
    loss.backward();
    adam.step();
    if (step % 300 == 0) std::cout << "step " << step << "  loss " << loss.item<double>() << "\n";
  }

  const NoGradGuard no_grad;
  const Tensor codes = encoder(test);  // (500, 16)
  const Tensor back = decoder(codes);
  const Tensor mean = train.mean(0, /*keepdim=*/true);
  std::cout << "784 pixels through 16 numbers and back; error a pixel, on digits not seen before: " << error(back, test)
            << "\nthe mean digit in place of each: " << error(mean, test) << "\n";
  if (argc > 1) {
    const Tensor rows = cat({test.narrow(0, 0, 12), back.narrow(0, 0, 12)}).view({24, 1, 28, 28});
    data::save_image(rows, argv[1], /*nrow=*/12);
    std::cout << "wrote " << argv[1] << "\n";
  }
}
