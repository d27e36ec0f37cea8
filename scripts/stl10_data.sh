#!/usr/bin/env bash
# Prints the folder that holds STL-10's unpacked labelled images; downloads them to data/stl10_binary where none does.
# usage: scripts/stl10_data.sh [--data DIR] [--mirror URL]
# Looks in DIR, $GRADUS_DATA, data/ and ../shared/data, each itself and its stl10_binary/. Says on stderr what it does.
# Exit status 1: not here, and no mirror gave the archive.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=STL-10
folder=stl10_binary
needed=(train_X.bin train_y.bin test_X.bin test_y.bin)
archive=stl10_binary.tar.gz
members=("$folder"/{train,test}_{X,y}.bin)
md5=91f7769df0f17e558f3565bffb0c7dfb  # as torchvision checks it
size="2.6 GB, most of it images without labels that are not kept"
mirrors=(https://cs.stanford.edu/~acoates/stl10 http://ai.stanford.edu/~acoates/stl10)
. scripts/archive_data.sh
