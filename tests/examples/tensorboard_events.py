"""Reads the event files of TensorBoard: TFRecord files of protocol buffer messages."""

import struct


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def read_message(data):
    """The fields of a protocol buffer message: {number: [value, …]}; integers as such, all else as bytes."""
    fields, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value = data[at : at + size]
            assert len(value) == size
            at += size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def read_events(data):
    """The messages of a TFRecord file, checksums verified."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        for begin, size in ((at, 8), (at + 12, length)):
            crc = crc32c(data[begin : begin + size])
            masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
            assert struct.unpack("<I", data[begin + size : begin + size + 4]) == (masked,)
        yield read_message(data[at + 12 : at + 12 + length])
        at += 16 + length
