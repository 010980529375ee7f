#!/usr/bin/env bash
# Builds wheel, tarball, .deb and image (packaging/build.sh) and tries each in an empty root: the wheel in a fresh environment from a local index,
# by the very line of README.md; the .deb in a Debian without other packages; the image with a container daemon. In each the demo runs. As root, with
# Rust, Python, PyPI and Debian's packages; 10 to 20 minutes on two cores.
#
#     tests/package.sh [DIR]     DIR defaults to target/package
#
# With MATRIX_DOCKER_HOST the image is tried there, else with a daemon of its own (tests/docker/dockerd.sh).
set -Eeuo pipefail
cd "$(dirname "$0")/.."
say() { printf '\n== %s (%ss)\n' "$*" "$SECONDS"; }

say 'build'
bash packaging/build.sh "${1:-target/package}"
dir=$(cd "${1:-target/package}" && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
(cd "$dir/dist" && sha256sum --check --quiet SHA256SUMS)
size=$(tar -xOzf "$dir"/dist/*.tar.gz --wildcards --no-wildcards-match-slash '*/matrix' | wc -c)
[ "$size" -le 25000000 ] || { echo "the binary has $size bytes, more than 25 MB" >&2; exit 1; }

work=$(mktemp -d /tmp/matrix-package.XXXXXX)
index=
docker_dir=
end() {
  [ -z "$index" ] || kill "$index" 2>/dev/null || true
  [ -z "$docker_dir" ] || bash tests/docker/dockerd.sh down "$docker_dir"
  rm -rf "$work"
}
trap end EXIT

# The demo of two simulated engines, in an empty folder.
demo='matrix init . >/dev/null && matrix run matrices/demo.yaml --only model=demo-8b,scenario=sharegpt --no-calibration >out.txt 2>&1; code=$?; tail -3 out.txt; [ $code = 0 ] || [ $code = 3 ]; test -s results/demo-*/report.html; grep -q sim-sglang out.txt'

say 'wheel, from a local index'
mkdir -p "$work/index/serving-matrix"
cp "$dir"/dist/*.whl "$work/index/serving-matrix/"
wheel=$(basename "$dir"/dist/*.whl)
echo "<a href=\"$wheel\">$wheel</a>" >"$work/index/serving-matrix/index.html"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
python3 -m http.server --bind 127.0.0.1 --directory "$work/index" "$port" >/dev/null 2>&1 &
index=$!
python3 -m venv "$work/venv"
# The line that README.md prints, as it is.
line=$(grep -m1 '^pip install ' README.md)
echo "README: $line"
for _ in 1 2 3 4 5 6 7 8 9 10; do curl -fsS "http://127.0.0.1:$port/serving-matrix/" >/dev/null 2>&1 && break || sleep 0.5; done
(
  cd "$work"
  export PATH="$work/venv/bin:$PATH" PIP_INDEX_URL="http://127.0.0.1:$port/" PIP_DISABLE_PIP_VERSION_CHECK=1
  eval "$line"
  [ "$(command -v matrix)" = "$work/venv/bin/matrix" ]
  matrix --version
  test -s "$work/venv/share/man/man1/matrix-run.1"
  test -s "$work/venv/share/bash-completion/completions/matrix"
  mkdir "$work/wheel-demo" && cd "$work/wheel-demo"
  bash -euc "$demo"
)

say 'tarball'
mkdir "$work/tarball"
tar -C "$work/tarball" --strip-components=1 -xzf "$dir"/dist/*.tar.gz
"$work/tarball/matrix" --version

say '.deb, in a Debian of its own'
root=$dir/debian
if [ ! -e "$root/usr/bin/apt-get" ]; then
  command -v mmdebstrap >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends mmdebstrap >/dev/null; }
  rm -rf "$root"
  # A mirror may lag behind for days.
  mmdebstrap --quiet --format=directory --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --include=ca-certificates bookworm "$root"
fi
fresh=$work/debian
cp -a "$root" "$fresh"
cp "$dir"/dist/*.deb "$fresh/tmp/"
in_root() { chroot "$fresh" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"; }
in_root bash -euc 'dpkg -i /tmp/*.deb >/dev/null && matrix --version'
in_root bash -euc 'for file in /usr/share/man/man1/matrix.1.gz /usr/share/man/man1/matrix-nightly.1.gz /usr/share/bash-completion/completions/matrix \
  /usr/share/zsh/vendor-completions/_matrix /usr/share/fish/vendor_completions.d/matrix.fish /usr/lib/systemd/system/matrix-nightly@.timer; do test -s "$file" || { echo "$file is missing" >&2; exit 1; }; done'
mount --bind /proc "$fresh/proc"
mount --bind /dev "$fresh/dev"
outcome=0
in_root bash -euc "mkdir /root/demo && cd /root/demo && $demo" || outcome=$?
umount "$fresh/proc" "$fresh/dev"
[ "$outcome" = 0 ]
in_root bash -euc 'dpkg -r serving-matrix >/dev/null; ! command -v matrix'
if command -v systemd-analyze >/dev/null; then systemd-analyze verify --man=no --recursive-errors=no packaging/systemd/matrix-nightly@.timer; fi

say 'image'
if [ -n "${MATRIX_DOCKER_HOST:-}" ]; then
  export DOCKER_HOST=$MATRIX_DOCKER_HOST
else
  docker_dir=$(mktemp -d /tmp/matrix-docker.XXXXXX)
  bash tests/docker/dockerd.sh up "$docker_dir"
  export DOCKER_HOST="unix://$docker_dir/docker.sock"
fi
tar -C "$root" --exclude=./var/cache --exclude=./var/lib/apt/lists -c . | docker import - serving-matrix-base:test >/dev/null
mkdir "$work/context"
cp packaging/Dockerfile "$work/tarball/matrix" "$work/context"
docker build --quiet --build-arg BASE=serving-matrix-base:test --tag "serving-matrix:$version" "$work/context" >/dev/null
mkdir "$work/image-demo"
docker run --rm --network host --entrypoint bash -v "$work/image-demo:/work" "serving-matrix:$version" -euc "$demo"
docker run --rm "serving-matrix:$version" --version
docker image inspect --format 'image: {{.Size}} bytes' "serving-matrix:$version"
docker rmi --force "serving-matrix:$version" serving-matrix-base:test >/dev/null

say 'source package'
CARGO_NET_OFFLINE=true cargo package --allow-dirty --no-verify --locked --quiet --target-dir "$dir/crate"
stat -c 'crate: %s bytes' "$dir"/crate/package/*.crate
[ "$(stat -c %s "$dir"/crate/package/*.crate)" -le 10000000 ]

say 'wheel, tarball, .deb, image and source package work'
