"""The nets of transformers.cpp in PyTorch."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import Residual, small_embedding
from frame import classifier, language_model, one_phase


def mlp(width, hidden, approximate="none"):
    """Returns two linear layers with GELU between them."""
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(approximate), nn.Linear(hidden, width))


def positions_of(tokens):
    return torch.arange(tokens.shape[1], device=tokens.device)


def causal_attention(q, k, v):
    """Attention of each position to itself and to those before it. PyTorch has a function for it since 2.0."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    position = torch.arange(q.shape[-2], device=q.device)
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(position > position.unsqueeze(1), -math.inf)
    return scores.softmax(-1) @ v


class CausalAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        parts = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1)]
        return self.c_proj(causal_attention(*parts).transpose(1, 2).flatten(2))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = [(Residual(nn.LayerNorm(384), CausalAttention(384, 6)),
                   Residual(nn.LayerNorm(384), mlp(384, 4 * 384, "tanh"))) for _ in range(6)]
        self.wte, self.wpe = small_embedding(256, 384, 0.02), small_embedding(256, 384, 0.02)
        self.h, self.ln_f = nn.Sequential(*sum(blocks, ())), nn.LayerNorm(384)

    def forward(self, tokens):
        return F.linear(self.ln_f(self.h(self.wte(tokens) + self.wpe(positions_of(tokens)))), self.wte.weight)


def position_angles(length, width):
    """Returns the angles (length, width / 2) of encodings of positions: each position times frequencies that fall."""
    return torch.arange(length).unsqueeze(1) * torch.exp(torch.arange(0, width, 2) * (-math.log(10000) / width))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, True) + 1e-6))


class RotaryAttention(nn.Module):
    def __init__(self, length, width, heads):
        super().__init__()
        self.head_width = width // heads
        self.q_proj, self.k_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width // 2, bias=False)
        self.v_proj, self.o_proj = nn.Linear(width, width // 2, bias=False), nn.Linear(width, width, bias=False)
        self.register_buffer("cosines", torch.cos(position_angles(length, self.head_width)))
        self.register_buffer("sines", torch.sin(position_angles(length, self.head_width)))

    def split(self, x):
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)

    def rotate(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cosines - b * self.sines, b * self.cosines + a * self.sines], -1)

    def forward(self, x):
        q, k = (self.rotate(self.split(project(x))) for project in (self.q_proj, self.k_proj))
        v = self.split(self.v_proj(x))
        y = causal_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
        return self.o_proj(y.transpose(1, 2).flatten(2))


class SwiGlu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def llama():
    blocks = [(Residual(RmsNorm(256), RotaryAttention(128, 256, 8)), Residual(RmsNorm(256), SwiGlu(256, 688)))
              for _ in range(4)]
    return nn.Sequential(nn.Embedding(2000, 256), *sum(blocks, ()), RmsNorm(256), nn.Linear(256, 2000, bias=False))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0, activation=F.gelu)
        self.words, self.positions = small_embedding(8000, 256, 0.02), small_embedding(128, 256, 0.02)
        self.norm, self.encoder = nn.LayerNorm(256), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.transform = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))
        self.bias = nn.Parameter(torch.zeros(8000))

    def loss(self, tokens, last, chance):
        is_padding = positions_of(tokens) > last.unsqueeze(1)
        is_hidden = (chance < 0.15) & ~is_padding
        mask_token, ignored = 103, -100
        x = self.words(tokens.masked_fill(is_hidden, mask_token)) + self.positions(positions_of(tokens))
        y = self.encoder(self.norm(x).transpose(0, 1), None, is_padding).transpose(0, 1)
        logits = F.linear(self.transform(y), self.words.weight, self.bias)
        return F.cross_entropy(logits.flatten(0, 1), tokens.masked_fill(~is_hidden, ignored).flatten())


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = small_embedding(4000, 256, 1 / 16)
        self.transformer = nn.Transformer(256, 4, 3, 3, 1024, dropout=0)
        angles = position_angles(64, 256)
        self.register_buffer("encodings", torch.stack([angles.sin(), angles.cos()], 2).flatten(1))

    def embed(self, tokens):
        return (16 * self.words(tokens) + self.encodings[:tokens.shape[1]]).transpose(0, 1)

    def loss(self, source, last, target):
        is_padding = positions_of(source) > last.unsqueeze(1)
        before = target[:, :-1]
        position = positions_of(before)
        is_later = position > position.unsqueeze(1)
        y = self.transformer(self.embed(source), self.embed(before), None, is_later, None, is_padding, None, is_padding)
        logits = F.linear(y.transpose(0, 1), self.words.weight)
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)


class Patches(nn.Module):
    """Cuts images (N, 3, 32, 32) into 64 patches, and maps each to features: (N, 64, width)."""

    def __init__(self, width):
        super().__init__()
        self.proj = nn.Conv2d(3, width, 4, 4)

    def forward(self, images):
        return self.proj(images).flatten(2).transpose(1, 2)


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        return self.attn(x, x, x, need_weights=False)[0]


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = [(Residual(nn.LayerNorm(192), SelfAttention(192, 3)), Residual(nn.LayerNorm(192), mlp(192, 4 * 192)))
                  for _ in range(6)]
        self.patches, self.blocks = Patches(192), nn.Sequential(*sum(blocks, ()))
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 10)
        self.class_token = nn.Parameter(torch.zeros(1, 1, 192))
        self.positions = nn.Parameter(0.02 * torch.randn(65, 192))

    def forward(self, images):
        x = self.patches(images)
        y = self.blocks(torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions)
        return self.head(self.norm(y[:, 0]))


class Transposed(nn.Module):
    """Applies layers to the transposed input: across patches instead of across features."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x.transpose(1, 2)).transpose(1, 2)


class MlpMixer(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = [(Residual(nn.LayerNorm(256), Transposed(mlp(64, 128))), Residual(nn.LayerNorm(256), mlp(256, 1024)))
                  for _ in range(8)]
        self.patches, self.blocks = Patches(256), nn.Sequential(*sum(blocks, ()))
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 10)

    def forward(self, images):
        return self.head(self.norm(self.blocks(self.patches(images))).mean(1))


NETS = {
  "gpt" : lambda : language_model(Gpt()),
                   "llama" : lambda : language_model(llama()),
                                      "bert" : lambda : one_phase(Bert()),
                                                        "translator" : lambda : one_phase(Translator()),
                                                                                "vit" : lambda : classifier(Vit()),
                                                                                                 "mlp_mixer" : lambda
      : classifier(MlpMixer())}
