"""The nets of recurrent.cpp in PyTorch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from frame import classifier, language_model, one_phase, step_classifier


class Readout(nn.Module):
    """Maps sequences (N, L, features) to logits (N, L, classes): a recurrent layer, and a linear layer of its output at
    each step."""

    def __init__(self, layer, features, classes):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(features, classes)

    def forward(self, x):
        return self.head(self.layer(x)[0])


def gru_language():
    gru = nn.GRU(256, 256, num_layers=2, batch_first=True)
    return nn.Sequential(nn.Embedding(2000, 256), Readout(gru, 256, 2000))


def lstm_1024():
    return nn.Sequential(nn.Embedding(4000, 256), Readout(nn.LSTM(256, 1024, batch_first=True), 1024, 4000))


def bilstm_tagger():
    lstm = nn.LSTM(128, 256, num_layers=2, bidirectional=True, batch_first=True)
    return nn.Sequential(nn.Embedding(5000, 128), Readout(lstm, 512, 20))


def projected_lstm():
    return Readout(nn.LSTM(40, 512, num_layers=2, proj_size=128, batch_first=True), 128, 48)


class PixelRowRnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.RNN(28, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, images):
        return self.head(self.rnn(images)[0][:, -1])


class AttentionSeq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(2000, 128), nn.Embedding(2000, 128)
        self.encoder, self.decoder = nn.GRU(128, 256, batch_first=True), nn.GRUCell(128 + 256, 256)
        self.query, self.combine = nn.Linear(256, 256, bias=False), nn.Linear(512, 256)
        self.head = nn.Linear(256, 2000)

    def forward(self, sentence, translation):
        states, last = self.encoder(self.source(sentence))
        h, attended, outputs = last[0], torch.zeros_like(last[0]), []
        for word in self.target(translation).unbind(1):
            h = self.decoder(torch.cat([word, attended], 1), h)
            weights = torch.softmax(torch.bmm(states, self.query(h).unsqueeze(2)), 1)
            context = (weights * states).sum(1)
            attended = torch.tanh(self.combine(torch.cat([context, h], 1)))
            outputs.append(attended)
        return self.head(torch.stack(outputs, 1))


def attention_seq2seq():
    net = AttentionSeq2Seq()

    def loss(sentence, translation):
        return F.cross_entropy(net(sentence, translation[:, :-1]).flatten(0, 1), translation[:, 1:].flatten())

    return one_phase(net, loss)


NETS = {"gru_language": lambda: language_model(gru_language()), "lstm_1024": lambda: language_model(lstm_1024()),
        "bilstm_tagger": lambda: step_classifier(bilstm_tagger()),
        "projected_lstm": lambda: step_classifier(projected_lstm()),
        "pixel_row_rnn": lambda: classifier(PixelRowRnn()), "attention_seq2seq": attention_seq2seq}
