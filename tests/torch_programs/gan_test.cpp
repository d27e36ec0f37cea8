// A generator against a discriminator: transposed convolutions, batch normalisation, two optimizers, checkpoints.
#include <gradus/torch.h>

#include <gradus/tests/catch.h>
#include <gradus/tests/temporary_directory.h>

using namespace torch;

namespace {

struct ImageGeneratorImpl : nn::Module {
  explicit ImageGeneratorImpl(int64_t noise_size)
      : conv1(nn::ConvTranspose2dOptions(noise_size, 8, 3).bias(false)), batch_norm1(8),
        conv2(nn::ConvTranspose2dOptions(8, 1, 4).stride(2).padding(1).bias(false)) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("batch_norm1", batch_norm1);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(batch_norm1(conv1(x)));  // (N, 8, 3, 3)
    return torch::tanh(conv2(x));            // (N, 1, 6, 6)
  }
  nn::ConvTranspose2d conv1;
  nn::BatchNorm2d batch_norm1;
  nn::ConvTranspose2d conv2;
};
TORCH_MODULE(ImageGenerator);

nn::Sequential make_discriminator() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 8, 4).stride(2).padding(1).bias(false)),
                        nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(8, 8, 3).stride(1).padding(1).bias(false)), nn::BatchNorm2d(8),
                        nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(8, 1, 3).stride(1).padding(0).bias(false)), nn::Sigmoid());
}

}  // namespace

TEST_CASE("a generative adversarial net as LibTorch programs write it") {
  torch::manual_seed(1);
  const int64_t kNoise = 4, kBatch = 16;
  torch::Device device(torch::kCPU);
  ImageGenerator generator(kNoise);
  generator->to(device);
  nn::Sequential discriminator = make_discriminator();
  discriminator->to(device);
  discriminator->apply([](nn::Module& module) {
    if (auto* conv = module.as<nn::Conv2d>()) nn::init::normal_(conv->weight, 0.0, 0.1);
  });
  torch::optim::Adam generator_optimizer(generator->parameters(),
                                         torch::optim::AdamOptions(2e-3).betas(std::make_tuple(0.5, 0.5)));
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(),
                                             torch::optim::AdamOptions(2e-3).betas(std::make_tuple(0.5, 0.5)));

  float first = 0, last = 0;
  for (int step = 0; step < 25; ++step) {
    discriminator->zero_grad();
    torch::Tensor real_images = torch::full({kBatch, 1, 6, 6}, 0.5, device) + 0.1 * torch::randn({kBatch, 1, 6, 6});
    torch::Tensor real_labels = torch::empty(real_images.size(0), device).uniform_(0.8, 1.0);
    torch::Tensor real_output = discriminator->forward(real_images).reshape(real_labels.sizes());
    torch::Tensor d_loss_real = torch::binary_cross_entropy(real_output, real_labels);
    d_loss_real.backward();

    torch::Tensor fake_images = generator->forward(torch::randn({kBatch, kNoise, 1, 1}, device));
    torch::Tensor fake_labels = torch::zeros(real_images.size(0), device);
    torch::Tensor fake_output = discriminator->forward(fake_images.detach()).reshape(fake_labels.sizes());
    torch::Tensor d_loss_fake = torch::binary_cross_entropy(fake_output, fake_labels);
    d_loss_fake.backward();
    torch::Tensor d_loss = d_loss_real + d_loss_fake;
    discriminator_optimizer.step();

    generator->zero_grad();
    fake_labels.fill_(1);
    torch::Tensor g_loss =
        torch::binary_cross_entropy(discriminator->forward(fake_images).reshape(fake_labels.sizes()), fake_labels);
    g_loss.backward();
    generator_optimizer.step();
    if (step == 0) first = d_loss.item<float>();
    last = d_loss.item<float>();
  }
  CHECK(last < first);

  // Checkpoints of models, optimizers and samples come back as they were.
  const gradus::test::TemporaryDirectory directory;
  const std::string model_path = directory.file("generator.pt"), optimizer_path = directory.file("optimizer.pt");
  const std::string samples_path = directory.file(torch::str("sample-", 1, ".pt"));
  torch::save(generator, model_path);
  torch::save(generator_optimizer, optimizer_path);
  generator->eval();
  const torch::Tensor noise = torch::randn({2, kNoise, 1, 1});
  torch::Tensor samples = generator->forward(noise);
  torch::save((samples + 1.0) / 2.0, samples_path);

  ImageGenerator other(kNoise);
  torch::load(other, model_path);
  other->eval();
  CHECK(other->forward(noise).equal(samples));
  torch::optim::Adam other_optimizer(other->parameters(),
                                     torch::optim::AdamOptions(1e-1).betas(std::make_tuple(0.5, 0.5)));
  torch::load(other_optimizer, optimizer_path);
  const auto state = generator_optimizer.state_dict();
  CHECK(other_optimizer.state_dict().keys() == state.keys());
  for (const auto& item : other_optimizer.state_dict()) CHECK(item.value().equal(state[item.key()]));
  torch::Tensor loaded;
  torch::load(loaded, samples_path);
  CHECK(loaded.equal((samples + 1.0) / 2.0));
  std::vector<torch::Tensor> several;
  torch::save({noise, samples}, samples_path);
  torch::load(several, samples_path);
  REQUIRE(several.size() == 2);
  CHECK(several[1].equal(samples));
}
