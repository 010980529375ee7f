#!/bin/bash
# A Docker daemon of our own for the container tests: its socket, data and log lie below DIR, and nothing else is touched.
#
#     tests/docker/dockerd.sh up [DIR]             install what is missing (as root, by apt-get), start, print its DOCKER_HOST
#     tests/docker/dockerd.sh down [DIR]           remove its containers, stop it
#     tests/docker/dockerd.sh halt DIR [SIGNAL]    end it by SIGNAL (TERM unless given) and leave everything else as it is
#     tests/docker/dockerd.sh start DIR            start it again, as it was before `halt`
#     tests/docker/dockerd.sh restart DIR [SIGNAL] both
#     tests/docker/dockerd.sh image BINARY NAME    make the image NAME of a program and its libraries (DOCKER_HOST says where)
#
# DIR defaults to $MATRIX_DOCKER_DIR, else target/docker. The daemon knows a pretend runtime `nvidia` (runc itself) and a
# pretend NVIDIA hook, so that `--runtime nvidia --gpus all` goes through the real API on a machine without a GPU.
# MATRIX_DOCKER_CONFIG holds further members of its configuration, such as '"live-restore": true'.
# The hook lets every container pass but those with a variable PRETEND_NVIDIA_FAILS, whose value is its complaint.
set -Eeuo pipefail

verb=${1:-}
dir=${MATRIX_DOCKER_DIR:-$PWD/target/docker}

say() { echo "dockerd.sh: $*" >&2; }

answers() { [ -S "$dir/docker.sock" ] && docker -H "unix://$dir/docker.sock" version >/dev/null 2>&1; }

install_docker() {
  local missing=()
  [ -x /usr/sbin/dockerd ] || missing+=(docker.io)
  command -v iptables >/dev/null || missing+=(iptables)
  command -v docker >/dev/null || ! apt-cache show docker-cli >/dev/null 2>&1 || missing+=(docker-cli)
  [ ${#missing[@]} -eq 0 ] && return
  [ "$(id -u)" = 0 ] || { say "${missing[*]} must be installed, and only root may"; exit 1; }
  say "installing ${missing[*]}"
  # The package must not start a daemon of the host's: ours is another one. RUNLEVEL says so to its scripts.
  {
    apt-get update
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
  } >"$dir/install.log" 2>&1 || { tail -20 "$dir/install.log" >&2; exit 1; }
}

write_config() {
  mkdir -p "$dir/hooks"
  cat >"$dir/hooks/nvidia-container-runtime-hook" <<'HOOK'
#!/bin/sh
# Runs before a container that asks for GPUs: stands for NVIDIA's hook and does nothing, or fails as the container says.
bundle=$(sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p')
complaint=$(sed -n 's/.*"PRETEND_NVIDIA_FAILS=\([^"]*\)".*/\1/p' "$bundle/config.json")
[ -z "$complaint" ] || { echo "$complaint" >&2; exit 1; }
HOOK
  chmod +x "$dir/hooks/nvidia-container-runtime-hook"
  local runc
  runc=$(command -v runc || echo /usr/sbin/runc)
  cat >"$dir/daemon.json" <<JSON
{"runtimes": {"nvidia": {"path": "$runc"}, "no-such-program": {"path": "/no/such/runtime"}}${MATRIX_DOCKER_CONFIG:+, $MATRIX_DOCKER_CONFIG}}
JSON
}

launch() { # STORAGE-DRIVER
  # The daemon has an NVIDIA driver if the hook is in its own PATH when it starts.
  PATH=$dir/hooks:/usr/local/sbin:/usr/sbin:/sbin:$PATH setsid /usr/sbin/dockerd --config-file "$dir/daemon.json" \
    --data-root "$dir/data" --exec-root "$exec_root" --pidfile "$dir/dockerd.pid" --storage-driver "$1" \
    -H "unix://$dir/docker.sock" >"$dir/dockerd.log" 2>&1 </dev/null &
  local daemon=$!
  for _ in $(seq 120); do
    answers && return 0
    kill -0 "$daemon" 2>/dev/null || return 1
    sleep 0.25
  done
  return 1
}

up() {
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  if ! answers; then
    install_docker
    write_config
    rm -f "$dir/dockerd.pid"
    # Sockets below it must not exceed 100 characters, which a deep DIR would.
    exec_root=$(mktemp -d /tmp/matrix-dockerd.XXXXXX)
    echo "$exec_root" >"$dir/exec-root"
    # Inside of some virtual machines and containers there is no overlay; plain copies always work.
    launch overlay2 || launch vfs || { say "the daemon does not come up:"; tail -30 "$dir/dockerd.log" >&2; exit 1; }
  fi
  echo "unix://$dir/docker.sock"
}

down() {
  [ -f "$dir/dockerd.pid" ] || return 0
  local pid
  pid=$(cat "$dir/dockerd.pid")
  if answers; then
    docker -H "unix://$dir/docker.sock" ps -aq | xargs -r docker -H "unix://$dir/docker.sock" rm -f >/dev/null
  fi
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 120); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.25
  done
  if kill -0 "$pid" 2>/dev/null; then
    say "the daemon $pid does not end by SIGTERM; it is killed"
    kill -KILL "$pid"
  fi
  # A daemon that was killed leaves its data mounted on itself.
  { grep -o " $dir/data[^ ]*" /proc/mounts || true; } | xargs -r umount -l
  if [ -f "$dir/exec-root" ]; then
    exec_root=$(cat "$dir/exec-root")
    # The daemon leaves a mount for its network namespace, and one for a container that it did not see end.
    { grep -o " $exec_root/[^ ]*" /proc/mounts || true; } | xargs -r umount -l
    rm -rf "$exec_root" "$dir/exec-root"
  fi
}

halt() { # SIGNAL
  local pid
  dir=$(cd "$dir" && pwd)
  pid=$(cat "$dir/dockerd.pid")
  docker -H "unix://$dir/docker.sock" info -f '{{.Driver}}' >"$dir/driver"
  kill "-$1" "$pid"
  for _ in $(seq 120); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.25
  done
  rm -f "$dir/dockerd.pid"
}

start() {
  dir=$(cd "$dir" && pwd)
  exec_root=$(cat "$dir/exec-root")
  launch "$(cat "$dir/driver")" || { say "the daemon does not come up again:"; tail -30 "$dir/dockerd.log" >&2; exit 1; }
}

image() { # BINARY NAME
  local root name=$2
  root=$(mktemp -d)
  mkdir -p "$root/usr/bin" "$root/tmp"
  # Debug information would make the image ten times as large.
  strip -o "$root/usr/bin/matrix" "$1" 2>/dev/null || cp "$1" "$root/usr/bin/matrix"
  ldd "$1" | grep -o '/[^ ]*' | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
  tar -C "$root" -c . | docker import -c 'ENTRYPOINT ["/usr/bin/matrix", "sim"]' - "$name" >/dev/null
  rm -rf "$root"
}

case $verb in
  up | down)
    dir=${2:-$dir}
    "$verb"
    ;;
  halt | start | restart)
    [ $# -ge 2 ] || { say "usage: $0 $verb DIR [SIGNAL]"; exit 2; }
    dir=$2
    [ "$verb" = start ] || halt "${3:-TERM}"
    [ "$verb" = halt ] || start
    ;;
  image)
    [ $# -eq 3 ] || { say "usage: $0 image BINARY NAME"; exit 2; }
    image "$2" "$3"
    ;;
  *)
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
