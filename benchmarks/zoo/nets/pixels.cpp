// Nets that compute images: from images, or from random numbers.
#include <gradus/benchmarks/zoo/nets/blocks.h>
#include <gradus/benchmarks/zoo/zoo.h>

namespace gradus::zoo {

namespace {

namespace F = nn::functional;

// ---- U-Net ----

/// Appends twice: a 3x3 convolution, group norm and SiLU.
nn::Sequential double_conv(int64_t in, int64_t out) {
  nn::Sequential block;
  for (const int64_t channels : {in, out}) {
    block->push_back(conv_3x3(channels, out));
    block->push_back(nn::GroupNorm(8, out));
    block->push_back(nn::SiLU());
  }
  return block;
}

/// A U-Net (Ronneberger et al., "U-Net: convolutional networks for biomedical image segmentation", 2015) with the norm
/// and activation of diffusion models, which predicts the noise in images of 64x64.
struct UNetImpl : nn::Module {
  UNetImpl() {
    for (int level = 0; level < kLevels; ++level) {
      const int64_t width = kWidth << level;
      down->push_back(double_conv(level == 0 ? 3 : width / 2, width));
      if (level + 1 == kLevels) break;
      up->push_back(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2 * width, width, 2).stride(2)));
      merge->push_back(double_conv(2 * width, width));
    }
    register_module("down", down);
    register_module("up", up);
    register_module("merge", merge);
    register_module("last", last);
  }
  Tensor forward(const Tensor& images) {
    TensorList skipped;
    Tensor x = images;
    for (int level = 0; level < kLevels; ++level) {
      if (level > 0) x = F::max_pool2d(x, F::MaxPool2dFuncOptions(2));
      x = down[level]->as<nn::Sequential>()->forward(x);
      skipped.push_back(x);
    }
    for (int level = kLevels - 2; level >= 0; --level) {
      x = up[level]->as<nn::ConvTranspose2d>()->forward(x);
      x = merge[level]->as<nn::Sequential>()->forward(cat({skipped[level], x}, 1));
    }
    return last(x);
  }

  static constexpr int kLevels = 4;
  static constexpr int64_t kWidth = 16;
  nn::ModuleList down, up, merge;
  nn::Conv2d last{nn::Conv2dOptions(kWidth, 3, 1)};
};
GRADUS_MODULE(UNet);

// ---- Style transfer ----

/// Appends a convolution of images that are padded by reflection, and instance norm.
void push_reflected(nn::Sequential& net, int64_t in, int64_t out, int64_t kernel, int64_t stride, bool with_relu) {
  net->push_back(nn::ReflectionPad2d(kernel / 2));
  net->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride)));
  net->push_back(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(out).affine(true)));
  if (with_relu) net->push_back(nn::ReLU());
}

/// Returns two convolutions, to whose result the input is added.
Residual style_block(int64_t channels) {
  nn::Sequential f;
  push_reflected(f, channels, channels, 3, 1, true);
  push_reflected(f, channels, channels, 3, 1, false);
  return Residual(f);
}

/// The image transformation net of Johnson et al., "Perceptual losses for real-time style transfer and
/// super-resolution", 2016, with instance norm and half the channels, trained to copy images.
nn::Sequential style_transfer() {
  nn::Sequential net;
  push_reflected(net, 3, 16, 9, 1, true);
  push_reflected(net, 16, 32, 3, 2, true);
  push_reflected(net, 32, 64, 3, 2, true);
  for (int i = 0; i < 5; ++i) net->push_back(style_block(64));
  for (const int64_t out : {32, 16}) {
    net->push_back(nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(kNearest)));
    push_reflected(net, 2 * out, out, 3, 1, true);
  }
  net->push_back(nn::ReflectionPad2d(4));
  net->push_back(nn::Conv2d(16, 3, 9));
  return net;
}

// ---- DCGAN ----

/// Makes images (N, 3, 64, 64) from noise (N, 100, 1, 1).
nn::Sequential dcgan_generator() {
  nn::Sequential net;
  int64_t in = 100;
  for (const int64_t out : {256, 128, 64, 32}) {
    const bool first = in == 100;
    net->push_back(nn::ConvTranspose2d(
        nn::ConvTranspose2dOptions(in, out, 4).stride(first ? 1 : 2).padding(first ? 0 : 1).bias(false)));
    net->push_back(nn::BatchNorm2d(out));
    net->push_back(nn::ReLU());
    in = out;
  }
  net->push_back(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(in, 3, 4).stride(2).padding(1).bias(false)));
  net->push_back(nn::Tanh());
  return net;
}

/// Returns a logit for each image.
nn::Sequential dcgan_discriminator() {
  nn::Sequential net;
  int64_t in = 3;
  for (const int64_t out : {32, 64, 128, 256}) {
    net->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 4).stride(2).padding(1).bias(false)));
    if (in > 3) net->push_back(nn::BatchNorm2d(out));
    net->push_back(nn::LeakyReLU(0.2));
    in = out;
  }
  net->push_back(nn::Conv2d(nn::Conv2dOptions(in, 1, 4).bias(false)));
  return net;
}

/// Radford et al., "Unsupervised representation learning with deep convolutional generative adversarial networks",
/// 2016, a quarter as wide as there.
struct DcganImpl : nn::Module {
  DcganImpl() {
    register_module("generator", generator);
    register_module("discriminator", discriminator);
  }
  /// The images in batch[0] are real, and the generator makes others from the noise in batch[1].
  Tensor discriminator_loss(const TensorList& batch) {
    const Tensor real = discriminator(batch[0]), fake = discriminator(generator(batch[1]).detach());
    return F::binary_cross_entropy_with_logits(real, ones_like(real)) +
           F::binary_cross_entropy_with_logits(fake, zeros_like(fake));
  }
  Tensor generator_loss(const TensorList& batch) {
    const Tensor fake = discriminator(generator(batch[1]));
    return F::binary_cross_entropy_with_logits(fake, ones_like(fake));
  }

  nn::Sequential generator = dcgan_generator(), discriminator = dcgan_discriminator();
};
GRADUS_MODULE(Dcgan);

Net dcgan() {
  const Dcgan net;
  return {net.ptr(),
          {{net->discriminator.ptr(), [net](const TensorList& batch) { return net->discriminator_loss(batch); }},
           {net->generator.ptr(), [net](const TensorList& batch) { return net->generator_loss(batch); }}}};
}

// ---- Variational autoencoder ----

/// A convolutional variational autoencoder (Kingma, Welling: "Auto-encoding variational Bayes", 2014) of images of
/// 64x64 with values in [0, 1].
struct ConvVaeImpl : nn::Module {
  ConvVaeImpl() {
    const int64_t channels[] = {3, 32, 64, 128, 256};
    for (int i = 0; i < 4; ++i) {
      encoder->push_back(nn::Conv2d(nn::Conv2dOptions(channels[i], channels[i + 1], 4).stride(2).padding(1)));
      encoder->push_back(nn::ReLU());
    }
    for (int i = 4; i > 0; --i) {
      decoder->push_back(
          nn::ConvTranspose2d(nn::ConvTranspose2dOptions(channels[i], channels[i - 1], 4).stride(2).padding(1)));
      if (i > 1) decoder->push_back(nn::ReLU());
    }
    register_module("encoder", encoder);
    register_module("mean", mean);
    register_module("log_variance", log_variance);
    register_module("expand", expand);
    register_module("decoder", decoder);
  }
  /// Returns the bound on the negative log-likelihood of an image, of which `noise` (N, 64) samples the code.
  Tensor loss(const Tensor& images, const Tensor& noise) {
    const Tensor features = encoder(images).flatten(1);  // (N, 4096)
    const Tensor mu = mean(features), log_var = log_variance(features);
    const Tensor code = mu + noise * exp(0.5 * log_var);
    const Tensor logits = decoder(expand(code).view({-1, 256, 4, 4}));
    const Tensor reconstruction = F::binary_cross_entropy_with_logits(
        logits, images, F::BinaryCrossEntropyWithLogitsFuncOptions().reduction(kSum));
    const Tensor divergence = -0.5 * (1 + log_var - mu * mu - exp(log_var)).sum();
    return (reconstruction + divergence) / images.size(0);
  }

  nn::Sequential encoder;
  nn::Linear mean{4096, 64}, log_variance{4096, 64}, expand{64, 4096};
  nn::Sequential decoder;
};
GRADUS_MODULE(ConvVae);

Net conv_vae() {
  const ConvVae net;
  return one_phase(net.ptr(), [net](const TensorList& batch) { return net->loss(batch[0], batch[1]); });
}

// ---- Autoencoder ----

/// Returns group norm, SiLU and a 3x3 convolution.
nn::Sequential norm_conv(int64_t in, int64_t out) {
  return nn::Sequential(nn::GroupNorm(8, in), nn::SiLU(), conv_3x3(in, out));
}

Residual autoencoder_block(int64_t channels) {
  return Residual(nn::Sequential(norm_conv(channels, channels), norm_conv(channels, channels)));
}

/// The autoencoder of Rombach et al., "High-resolution image synthesis with latent diffusion models", 2022, much
/// smaller and without attention: from images of 64x64 to codes (N, 4, 16, 16), and back.
nn::Sequential autoencoder() {
  nn::Sequential encoder(conv_3x3(3, 32)), decoder(conv_3x3(4, 128), autoencoder_block(128));
  for (const int64_t channels : {32, 64}) {
    encoder->push_back(autoencoder_block(channels));
    encoder->push_back(conv_3x3(channels, 2 * channels, 2));
  }
  encoder->push_back(autoencoder_block(128));
  encoder->push_back(norm_conv(128, 4));
  for (const int64_t channels : {64, 32}) {
    decoder->push_back(nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(kNearest)));
    decoder->push_back(conv_3x3(2 * channels, channels));
    decoder->push_back(autoencoder_block(channels));
  }
  decoder->push_back(norm_conv(32, 3));
  return nn::Sequential({{"encoder", encoder}, {"decoder", decoder}});
}

Net copier() {
  const nn::Sequential net = autoencoder();
  return one_phase(net.ptr(), [net](const TensorList& batch) { return F::l1_loss(net(batch[0]), batch[0]); });
}

}  // namespace

std::vector<Entry> pixel_nets() {
  const auto images_and = [](const std::string& kind, const Shape& other) {
    return [=](int64_t batch) {
      Shape shape{batch};
      for (const int64_t side : other) shape.push_back(side);
      return std::vector<Input>{{kind, {batch, 3, 64, 64}}, {"normal", shape}};
    };
  };
  return {{"unet", 32, [] { return regression(nn::AnyModule(UNet())); }, images_and("normal", {3, 64, 64})},
          {"style_transfer", 32, [] { return regression(nn::AnyModule(style_transfer())); },
           images_and("uniform", {3, 64, 64})},
          {"dcgan", 64, dcgan, images_and("normal", {100, 1, 1})},
          {"conv_vae", 64, conv_vae, images_and("uniform", {64})},
          {"autoencoder", 16, copier, [](int64_t batch) {
             return std::vector<Input>{{"uniform", {batch, 3, 64, 64}}};
           }}};
}

}  // namespace gradus::zoo
