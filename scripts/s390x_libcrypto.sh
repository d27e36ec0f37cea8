#!/usr/bin/env bash
# Debian's libcrypto for s390x, static, and its headers, into build/s390x-libcrypto: what the preset `s390x` links. The package
# is unpacked and not installed: apt runs with lists and a state of its own, so the system learns of no foreign
# architecture, and nobody need be root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=build/s390x-libcrypto
[ ! -f "$target/libcrypto.a" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/unpacked"
touch "$work/status"
apt() {
  apt-get -q -o APT::Architecture=s390x -o APT::Architectures=s390x -o "Dir::State=$work/state" \
    -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User= "$@" >&2
}
apt update
(cd "$work" && apt download libssl-dev)
dpkg-deb -x "$work"/libssl-dev_*.deb "$work/unpacked"
mkdir -p "$target"
cp -r "$work/unpacked/usr/include" "$target"
cp -r "$work"/unpacked/usr/include/s390x-linux-gnu/openssl "$target/include"
cp "$work/unpacked/usr/lib/s390x-linux-gnu/libcrypto.a" "$target"
