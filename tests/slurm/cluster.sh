#!/bin/bash
# A Slurm cluster of our own for tests: a controller and two nodes with 8 pretend GPUs each, all on this host. Everything lies below DIR;
# nothing in /etc is read or written.
#
#     tests/slurm/cluster.sh up [DIR]              install what is missing (as root, by apt-get), start, print its SLURM_CONF
#     tests/slurm/cluster.sh down [DIR]            cancel its jobs, stop it
#     tests/slurm/cluster.sh controller DIR off|on stop or start the controller alone; jobs continue
#     tests/slurm/cluster.sh node DIR NODE off|on  stop or start the daemon of one node alone; its jobs continue
#
# DIR defaults to target/slurm. Its path must be short, because it holds a socket.
set -Eeuo pipefail

verb=${1:-}
dir=$(realpath -m "${2:-$PWD/target/slurm}")
export SLURM_CONF=$dir/slurm.conf

say() { echo "cluster.sh: $*" >&2; }
answers() { [ -e "$SLURM_CONF" ] && timeout 5 scontrol ping >/dev/null 2>&1; }

install_slurm() {
  local missing=()
  command -v munged >/dev/null || missing+=(munge)
  { command -v slurmctld && command -v slurmd && command -v sbatch; } >/dev/null || missing+=(slurm-wlm)
  [ ${#missing[@]} -eq 0 ] && return
  [ "$(id -u)" = 0 ] || { say "${missing[*]} must be installed, and only root may"; exit 1; }
  say "installing ${missing[*]}"
  # The packages must not start daemons of the host's: ours are others. RUNLEVEL says so to their scripts.
  {
    apt-get update
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
  } >"$dir/install.log" 2>&1 || { tail -20 "$dir/install.log" >&2; exit 1; }
}

# The first of three free ports in a row.
free_ports() {
  local port
  for port in $(seq 28100 10 29900); do
    local offset free=1
    for offset in 0 1 2; do
      if (exec 3<>"/dev/tcp/127.0.0.1/$((port + offset))") 2>/dev/null; then free=0; fi
    done
    [ $free = 0 ] || { echo "$port"; return; }
  done
  say 'no port is free'
  exit 1
}

write_config() {
  local host port index
  host=$(hostname -s) port=$(free_ports)
  mkdir -p "$dir"/{state,spool,log,run}
  dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
  chmod 600 "$dir/munge.key"
  # Slurm counts only devices, so that these stand for GPUs.
  for index in 0 1 2 3 4 5 6 7; do [ -e "$dir/gpu$index" ] || mknod "$dir/gpu$index" c 1 3; done
  echo "Name=gpu Type=h100 File=$dir/gpu[0-7]" >"$dir/gres.conf"
  cat >"$SLURM_CONF" <<CONF
ClusterName=matrix
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock,cred_expire=5
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdSpoolDir=$dir/spool/%n
SlurmdPidFile=$dir/run/%n.pid
SlurmdLogFile=$dir/log/%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=2,batch_sched_delay=1,sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
SlurmdTimeout=10
ReturnToService=1
MinJobAge=300
GresTypes=gpu
NodeName=node1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=16 RealMemory=64000 Gres=gpu:h100:8
NodeName=node2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=16 RealMemory=64000 Gres=gpu:h100:8
PartitionName=gpu Nodes=node[1-2] Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=low Nodes=node[1-2] MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=short Nodes=node[1-2] MaxTime=00:10:00 State=UP PriorityTier=10 PreemptMode=OFF
CONF
}

start_munge() {
  [ -S "$dir/munge.sock" ] && munge -S "$dir/munge.sock" -n >/dev/null 2>&1 && return
  munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --pid-file="$dir/run/munged.pid" \
    --log-file="$dir/log/munged" --seed-file="$dir/run/munged.seed" --num-threads=2
}

# The process of a pid file, if it is the program meant.
process_of() { # PID-FILE PROGRAM
  local pid
  pid=$(cat "$1" 2>/dev/null) || return 1
  grep -qz "$2" "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
}

stop() { # PID-FILE PROGRAM
  local pid
  pid=$(process_of "$1" "$2") || return 0
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 50); do process_of "$1" "$2" >/dev/null || return 0; sleep 0.1; done
  kill -9 "$pid" 2>/dev/null || true
}

up() {
  mkdir -p "$dir"
  if ! answers; then
    install_slurm
    [ -e "$SLURM_CONF" ] || write_config
    start_munge
    process_of "$dir/run/slurmctld.pid" slurmctld >/dev/null || slurmctld -f "$SLURM_CONF"
    for node in node1 node2; do process_of "$dir/run/$node.pid" slurmd >/dev/null || slurmd -f "$SLURM_CONF" -N "$node"; done
  fi
  for _ in $(seq 100); do
    [ "$(timeout 5 sinfo -h -N -p gpu -t idle,mixed,allocated -o %N 2>/dev/null | wc -l)" = 2 ] && { echo "$SLURM_CONF"; return; }
    sleep 0.2
  done
  say 'the nodes did not become ready'
  tail -5 "$dir"/log/* >&2
  exit 1
}

down() {
  [ -e "$SLURM_CONF" ] || return 0
  if answers; then
    timeout 20 scancel --user "$(id -un)" || true
    for _ in $(seq 100); do [ -z "$(timeout 5 squeue -h 2>/dev/null)" ] && break; sleep 0.1; done
  fi
  stop "$dir/run/slurmctld.pid" slurmctld
  for node in node1 node2; do stop "$dir/run/$node.pid" slurmd; done
  stop "$dir/run/munged.pid" munged
  rm -rf "$dir/state" "$dir/spool" "$dir/run" "$SLURM_CONF"
}

case $verb in
  up) up ;;
  down) down ;;
  controller)
    case ${3:-} in
      off) stop "$dir/run/slurmctld.pid" slurmctld ;;
      on) slurmctld -f "$SLURM_CONF" ;;
      *) say 'off or on'; exit 2 ;;
    esac
    ;;
  node)
    case ${4:-} in
      off) stop "$dir/run/$3.pid" slurmd ;;
      on) slurmd -f "$SLURM_CONF" -N "$3" ;;
      *) say 'off or on'; exit 2 ;;
    esac
    ;;
  *) sed -n '2,11p' "$0" >&2; exit 2 ;;
esac
