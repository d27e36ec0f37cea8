#!/usr/bin/env bash
# Prints the folder that holds CIFAR-10's unpacked binary files; downloads them to data/cifar-10-batches-bin where none does.
# usage: scripts/cifar10_data.sh [--data DIR] [--mirror URL]
# Looks in DIR, $GRADUS_DATA, data/ and ../shared/data, each itself and its cifar-10-batches-bin/. Fewer training batches
# than five are taken too. Says on stderr what it does. Exit status 1: not here, and no mirror gave the archive.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=CIFAR-10
folder=cifar-10-batches-bin
needed=(data_batch_1.bin test_batch.bin)
archive=cifar-10-binary.tar.gz
members=("$folder"/{data_batch_{1,2,3,4,5},test_batch}.bin)
md5=c32a1d4ab5d03f1284b67883e8d87530  # published at https://www.cs.toronto.edu/~kriz/cifar.html
size="170 MB"
mirrors=(https://www.cs.toronto.edu/~kriz)
. scripts/archive_data.sh
