"""The nets of pixels.cpp in PyTorch."""

from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import Residual, conv_3x3
from frame import Net, Phase, one_phase, regression


def double_conv(width, out):
    return nn.Sequential(conv_3x3(width, out), nn.GroupNorm(8, out), nn.SiLU(),
                         conv_3x3(out, out), nn.GroupNorm(8, out), nn.SiLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (16, 32, 64, 128)
        self.down = nn.ModuleList([double_conv(w // 2 if w > 16 else 3, w) for w in widths])
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[:-1]])
        self.merge = nn.ModuleList([double_conv(2 * w, w) for w in widths[:-1]])
        self.last = nn.Conv2d(16, 3, 1)

    def forward(self, x):
        skipped = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            skipped.append(x)
        for level in (2, 1, 0):
            x = self.merge[level](torch.cat([skipped[level], self.up[level](x)], 1))
        return self.last(x)


def reflected(width, out, kernel, stride, with_relu):
    """Returns a convolution of images that are padded by reflection, and instance norm."""
    last = [nn.ReLU()] if with_relu else []
    return [nn.ReflectionPad2d(kernel // 2), nn.Conv2d(width, out, kernel, stride),
            nn.InstanceNorm2d(out, affine=True), *last]


def style_block(channels):
    return Residual(*reflected(channels, channels, 3, 1, True), *reflected(channels, channels, 3, 1, False))


def style_transfer():
    layers = [*reflected(3, 16, 9, 1, True), *reflected(16, 32, 3, 2, True), *reflected(32, 64, 3, 2, True)]
    layers += [style_block(64) for _ in range(5)]
    for out in (32, 16):
        layers += [nn.Upsample(scale_factor=2, mode="nearest"), *reflected(2 * out, out, 3, 1, True)]
    return nn.Sequential(*layers, nn.ReflectionPad2d(4), nn.Conv2d(16, 3, 9))


def dcgan_generator():
    layers, width = [], 100
    for out in (256, 128, 64, 32):
        stride, padding = (1, 0) if width == 100 else (2, 1)
        layers += [nn.ConvTranspose2d(width, out, 4, stride, padding, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


def dcgan_discriminator():
    layers, width = [], 3
    for out in (32, 64, 128, 256):
        layers.append(nn.Conv2d(width, out, 4, 2, 1, bias=False))
        layers += [nn.BatchNorm2d(out)] if width > 3 else []
        layers.append(nn.LeakyReLU(0.2))
        width = out
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 4, bias=False))


class Dcgan(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.discriminator = dcgan_generator(), dcgan_discriminator()

    def discriminator_loss(self, images, noise):
        real, fake = self.discriminator(images), self.discriminator(self.generator(noise).detach())
        return (F.binary_cross_entropy_with_logits(real, torch.ones_like(real)) +
                F.binary_cross_entropy_with_logits(fake, torch.zeros_like(fake)))

    def generator_loss(self, images, noise):
        fake = self.discriminator(self.generator(noise))
        return F.binary_cross_entropy_with_logits(fake, torch.ones_like(fake))


def dcgan():
    net = Dcgan()
    return Net(net, [Phase(net.discriminator, net.discriminator_loss), Phase(net.generator, net.generator_loss)])


class ConvVae(nn.Module):
    def __init__(self):
        super().__init__()
        channels, encoder, decoder = (3, 32, 64, 128, 256), [], []
        for i in range(4):
            encoder += [nn.Conv2d(channels[i], channels[i + 1], 4, 2, 1), nn.ReLU()]
            decoder = [nn.ConvTranspose2d(channels[i + 1], channels[i], 4, 2, 1), nn.ReLU(), *decoder]
        self.encoder, self.decoder = nn.Sequential(*encoder), nn.Sequential(*decoder[:-1])
        self.mean, self.log_variance, self.expand = nn.Linear(4096, 64), nn.Linear(4096, 64), nn.Linear(64, 4096)

    def loss(self, images, noise):
        features = self.encoder(images).flatten(1)
        mu, log_var = self.mean(features), self.log_variance(features)
        code = mu + noise * torch.exp(0.5 * log_var)
        logits = self.decoder(self.expand(code).view(-1, 256, 4, 4))
        reconstruction = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
        divergence = -0.5 * (1 + log_var - mu * mu - torch.exp(log_var)).sum()
        return (reconstruction + divergence) / images.shape[0]


def norm_conv(width, out):
    """Returns group norm, SiLU and a 3x3 convolution."""
    return nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), conv_3x3(width, out))


def autoencoder_block(channels):
    return Residual(norm_conv(channels, channels), norm_conv(channels, channels))


def autoencoder():
    encoder = [conv_3x3(3, 32)]
    decoder = [conv_3x3(4, 128), autoencoder_block(128)]
    for channels in (32, 64):
        encoder += [autoencoder_block(channels), conv_3x3(channels, 2 * channels, 2)]
    for channels in (64, 32):
        decoder += [nn.Upsample(scale_factor=2, mode="nearest"), conv_3x3(2 * channels, channels),
                    autoencoder_block(channels)]
    encoder = nn.Sequential(*encoder, autoencoder_block(128), norm_conv(128, 4))
    net = nn.Sequential(OrderedDict(encoder=encoder, decoder=nn.Sequential(*decoder, norm_conv(32, 3))))
    return one_phase(net, lambda images: F.l1_loss(net(images), images))


NETS = {
  "unet" : lambda : regression(UNet()),
                    "style_transfer" : lambda : regression(style_transfer()),
                                                "dcgan" : dcgan,
                                                          "conv_vae" : lambda : one_phase(ConvVae()),
                                                                                "autoencoder" : autoencoder}
