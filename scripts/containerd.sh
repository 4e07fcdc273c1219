#!/usr/bin/env bash
#
# A private containerd for the whole-system tests. All of its files are in one directory; `down` removes them.
#
#   containerd.sh up [--version 1.7|2] DIR         start a daemon in an empty or missing DIR; prints KEY=VALUE lines
#                                                  ENDPOINT, VERSION, PID, IMAGE, CGROUP, LOG, DIR
#   containerd.sh down DIR                         remove the daemon, its pods, shims, mounts, cgroups and DIR
#   containerd.sh kill DIR                         kill -9 the daemon only; pods and shims go on
#   containerd.sh start DIR                        start a killed daemon again over the same state; prints as `up` does
#   containerd.sh stop-signal SIGSTOP|SIGCONT DIR  stop the daemon, or continue it
#   containerd.sh import ARCHIVE IMAGE DIR         import one more image, from an OCI archive
#   containerd.sh tasks DIR                        print the ids of the daemon's tasks, one per line
#   containerd.sh install [--version 1.7|2]        only download missing binaries; prints their directory
#   containerd.sh can [--version 1.7|2]            exit 0 if this machine can run this version, else 3 and print why not
#
# The default version is 2. Any number of daemons may run at the same time, each in its directory. All commands except
# `install` and `can` need root.
#
# Notes for tests:
#   * IMAGE is the only image: sandbox image of the pods, and one program for their containers (scripts/containerd/app.c):
#     /app pause [CODE], /app exit CODE [MILLISECONDS], /app ignore-term. Its entrypoint is /app, its default argument `pause`.
#   * Pods must be on the host network (linux.security_context.namespace_options.network = NODE): there is no CNI.
#   * Pods should have CGROUP as linux.cgroup_parent; nobody else uses it, and `down` removes everything below it.
#   * DIR/containerd.pid contains the daemon's pid, to which tests may send signals. LOG is DIR/containerd.log.
#   * If `up` fails, it prints the end of the log and removes everything.
#   * The daemon gets the caller's environment. For example, ENABLE_CRI_SANDBOXES=1 makes 1.7 use its newer CRI server.
#
# Binaries: if PATH has a containerd of the requested version (with ctr and containerd-shim-runc-v2), this script uses
# it. If not, it downloads Debian's package from the archive of this machine's apt, and unpacks it, without installing
# it, into the cache: $PLEG_CONTAINERD_CACHE, by default ${XDG_CACHE_HOME:-~/.cache}/pleg-containerd. The same for runc.

set -euo pipefail
shopt -s inherit_errexit nullglob

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
readonly here
readonly parts=$here/containerd
readonly cache=${PLEG_CONTAINERD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/pleg-containerd}
readonly image=localhost/pleg-test:1
readonly cgroups=/sys/fs/cgroup

say() { printf 'containerd.sh: %s\n' "$*" >&2; }
die() {
  say "$@"
  exit 1
}

usage() { sed -n '3,/^$/s/^#\( \|$\)//p' "${BASH_SOURCE[0]}"; }

# within SECONDS COMMAND...: repeats the command until it succeeds; fails if it has not succeeded after SECONDS.
within() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.05
  done
}

# ---- the binaries ---------------------------------------------------------------------------------------------------

# The Debian release with this version of containerd. Both versions run on Debian 12 and later: they need no newer libc.
suite_of() {
  case $1 in
    1.7) echo trixie ;;
    2) echo forky ;;
    *) die "no version '$1' here: it is 1.7 or 2" ;;
  esac
}

# version_in DIR: the version number of the containerd there, like 1.7.24.
version_in() {
  "$1/containerd" --version | sed -En '1s/^[^ ]+ [^ ]+ v?([0-9.]+).*/\1/p'
}

# on_path VERSION: the directory of a containerd of this version on PATH.
on_path() {
  local found
  found=$(command -v containerd) || return 1
  found=$(dirname -- "$found")
  [[ -x $found/ctr && -x $found/containerd-shim-runc-v2 && $(version_in "$found") == "$1".* ]] && echo "$found"
}

# This machine's own release, like bookworm.
codename() {
  # shellcheck source=/dev/null
  (. /etc/os-release && echo "${VERSION_CODENAME:-}")
}

# The address of the Debian archive, from apt's sources in either of their two formats: that of the source with the
# component main of this release's own suite (not of its suites for updates and security).
debian_archive() {
  local suite files
  suite=$(codename)
  [[ -n $suite ]] || return 1
  files=(/etc/apt/sources.lis[t] /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources)
  ((${#files[@]})) || return 1
  awk -v suite="$suite" '
    function has(list, word) { return index(" " list " ", " " word " ") }
    function consider(uris, suites, components,    uri, n, i) {
      if (!has(suites, suite) || !has(components, "main")) return
      n = split(uris, uri, " ")
      for (i = 1; i <= n; i++) if (!found && uri[i] ~ /\/debian(\.list)?\/?$/) found = uri[i]
    }
    function end_stanza() {
      if (has(field["types"], "deb") && field["enabled"] != "no")
        consider(field["uris"], field["suites"], field["components"])
      split("", field)
    }
    FNR == 1 { end_stanza() }
    /^[[:space:]]*#/ { next }
    FILENAME ~ /\.list$/ {
      sub(/\[[^]]*\]/, "")
      if ($1 != "deb") next
      uri = $2; release = $3
      $1 = $2 = $3 = ""
      gsub(/^ +/, "")
      consider(uri, release, $0)
      next
    }
    NF == 0 { end_stanza(); next }
    /^[^[:space:]]/ { key = tolower($1); sub(/:.*/, "", key); sub(/^[^:]*:/, "") }
    { gsub(/[[:space:]]+/, " "); gsub(/^ | $/, ""); field[key] = field[key] (field[key] ? " " : "") $0 }
    END { end_stanza(); if (!found) exit 1; print found }
  ' "${files[@]}"
}

# fetch SUITE PACKAGE: downloads and unpacks the package unless it is cached, and prints its directory. apt gets its own
# directories and only this suite, so the machine's lists do not change. apt checks the archive's signature as usual: if
# this fails because Debian has newer keys than this machine, upgrade debian-archive-keyring.
fetch() (
  into=$cache/$1/$2
  mkdir -p -- "$cache/$1"
  exec {lock}>"$cache/lock"
  flock "$lock"
  if [[ ! -d $into ]]; then
    archive=$(debian_archive) || die "no Debian archive among apt's sources to fetch $2 from"
    say "fetching $2 of Debian $1"
    work=$(mktemp -d -- "$cache/fetch.XXXXXX")
    trap 'rm -rf -- "$work"' EXIT
    mkdir -p -- "$work"/{state,cache,deb}
    : >"$work/status"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    {
      printf 'Types: deb\nTargets: Packages\nURIs: %s\nSuites: %s\nComponents: main\n' "$archive" "$1"
      [[ ! -e $keyring ]] || printf 'Signed-By: %s\n' "$keyring"
    } >"$work/debian.sources"
    cat >"$work/apt.conf" <<EOF
Dir::Etc::SourceList "$work/debian.sources";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "$work/state";
Dir::State::Status "$work/status";
Dir::Cache "$work/cache";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "";
#clear APT::Update;
EOF
    apt-get -c="$work/apt.conf" -q=2 update >&2
    (cd -- "$work/deb" && apt-get -c="$work/apt.conf" -q=2 download "$2" >&2)
    dpkg -x "$work"/deb/*.deb "$work/tree"
    mv -T -- "$work/tree" "$into"
  fi
  echo "$into"
)

# install_binaries VERSION: prints the directory of containerd.
install_binaries() {
  local suite tree bin
  install_runc >/dev/null
  if ! bin=$(on_path "$1"); then
    suite=$(suite_of "$1")
    tree=$(fetch "$suite" containerd)
    bin=$tree/usr/bin
    [[ $(version_in "$bin") == "$1".* ]] || die "the containerd of Debian $suite is not $1: see $bin"
  fi
  echo "$bin"
}

# Prints the path of runc. Any version works, so this takes the one of this machine's release.
install_runc() {
  local tree
  ! command -v runc || return 0
  tree=$(fetch "$(codename)" runc)
  echo "$tree/usr/sbin/runc"
}

# why_not VERSION: prints one sentence on what this machine lacks, or nothing if it can run this version of containerd.
why_not() {
  local tool suite
  suite=$(suite_of "$1")
  [[ $(uname -s) == Linux ]] || { echo "containerd runs on Linux only." && return; }
  ((EUID == 0)) || { echo "It takes root to run containerd." && return; }
  for tool in python3 cc flock setsid unshare; do
    command -v "$tool" >/dev/null || { echo "The program $tool is missing." && return; }
  done
  [[ $(cc -print-file-name=libc.a) == /* ]] || { echo "The static C library (libc.a) is missing." && return; }
  unshare --mount true 2>/dev/null || { echo "Root may not mount here, as in an unprivileged container." && return; }
  grep -qw overlay /proc/filesystems || modprobe -q overlay 2>/dev/null ||
    { echo "The kernel has no overlayfs." && return; }
  [[ -e $cgroups/cgroup.controllers || -d $cgroups/memory ]] || { echo "No cgroups are mounted at $cgroups." && return; }
  if ! { command -v runc && { on_path "$1" || [[ -d $cache/$suite/containerd ]]; }; } >/dev/null; then
    { command -v apt-get && command -v dpkg && debian_archive; } >/dev/null ||
      echo "There is no runc with a containerd $1 on PATH, and no Debian archive among apt's sources to fetch them from."
  fi
}

# ---- the daemon -----------------------------------------------------------------------------------------------------

# The functions below use the directory $dir, which `enter` sets. The file $dir/settings shows that this script made it.

# enter DIR: fails if the directory does not exist.
enter() {
  [[ -n ${1:-} ]] || die "which directory?"
  [[ -d $1 ]] || return 1
  dir=$(cd -- "$1" && pwd -P)
  socket=$dir/run/containerd.sock
  [[ -e $dir/settings ]] && return
  [[ -z $(ls -A -- "$dir") ]] || die "$dir is not of this script's making"
}

# setting KEY
setting() { sed -n "s/^$1=//p" "$dir/settings"; }

# The parent of the cgroups of this daemon's pods.
cgroup_parent() {
  local hash
  hash=$(printf %s "$dir" | sha256sum)
  echo "/pleg-${hash:0:12}"
}

# runs_as PID WORD: succeeds if the process exists and has exactly this word in its command line.
runs_as() {
  local -a words=()
  local word
  { mapfile -d '' -t words <"/proc/$1/cmdline"; } 2>/dev/null || return 1
  for word in "${words[@]}"; do [[ $word != "$2" ]] || return 0; done
  return 1
}

# Prints the daemon's pid; fails if it does not run. (Another process may have the pid of a dead daemon.)
daemon() {
  local pid
  { pid=$(<"$dir/containerd.pid"); } 2>/dev/null && runs_as "$pid" "$dir/config.toml" && echo "$pid"
}
gone() { ! daemon >/dev/null; }

# write_config VERSION RUNC: writes containerd's configuration. What all containerds of a machine share by default (its
# and runc's state, /opt/containerd, CNI's configuration, NRI's socket) is moved into the directory or turned off.
write_config() {
  local format cri sandbox_image
  if [[ $1 == 1.7 ]]; then
    format=2
    cri='plugins."io.containerd.grpc.v1.cri"'
    sandbox_image=$cri.sandbox_image
  else
    format=3
    cri='plugins."io.containerd.cri.v1.runtime"'
    sandbox_image='plugins."io.containerd.cri.v1.images".pinned_images.sandbox'
  fi
  cat <<EOF
version = $format
root = "$dir/root"
state = "$dir/state"
grpc.address = "$socket"
plugins."io.containerd.internal.v1.opt".path = "$dir/opt"
plugins."io.containerd.nri.v1.nri".disable = true
$sandbox_image = "$image"
$cri.restrict_oom_score_adj = true
$cri.disable_apparmor = true
$cri.netns_mounts_under_state_dir = true
$cri.cni.conf_dir = "$dir/cni/net.d"
$cri.containerd.runtimes.runc.runtime_type = "io.containerd.runc.v2"
$cri.containerd.runtimes.runc.options.BinaryName = "$2"
$cri.containerd.runtimes.runc.options.Root = "$dir/state/runc"
# The time limit for a shim's answer, 2 s by default. If a shim on a busy machine answers later, containerd assumes that
# the shim has no process, creates the pod's next container with the namespaces of process 0, and can never start it.
timeouts."io.containerd.timeout.task.state" = "60s"
EOF
}

cri() { python3 "$parts/cri.py" "$socket" "$@"; }
ctr() { "$(setting BIN)/ctr" --address "$socket" --namespace k8s.io "$@"; }

answers() { cri ready && ctr version; } &>/dev/null

# Starts the daemon, detached from the caller (in a new session, without the caller's open files), and waits for it.
start_daemon() {
  PATH=$(setting BIN):$PATH setsid env --chdir=/ --unset=NOTIFY_SOCKET \
    "$(setting BIN)/containerd" --config "$dir/config.toml" </dev/null &>>"$dir/containerd.log" &
  echo "$!" >"$dir/containerd.pid"
  # On a loaded machine, containerd connects to the shims of its earlier life for longer than half a minute.
  within 90 answers_or_ended && answers
}
answers_or_ended() { [[ -z $(jobs -rp) ]] || answers; }

log_tail() {
  say "the end of $dir/containerd.log:"
  tail -n 30 -- "$dir/containerd.log" >&2
}

report() {
  printf '%s\n' "ENDPOINT=unix://$socket" "VERSION=$(setting VERSION)" "PID=$(daemon)" "IMAGE=$image" \
    "CGROUP=$(cgroup_parent)" "LOG=$dir/containerd.log" "DIR=$dir"
}

import_image() {
  cc -static -Os -s -Wall -Wextra -o "$dir/app" "$parts/app.c"
  python3 "$parts/image.py" "$dir/app" "$image" "$dir/image.tar"
  ctr images import "$dir/image.tar" >/dev/null
  # The CRI service learns of the new image a little later, from an event of containerd.
  within 10 cri image "$image" || die "the CRI service does not know the image $image"
}

up() {
  local version=$1 bin runc why longest
  why=$(why_not "$version")
  [[ -z $why ]] || die "$why"
  [[ -n $2 ]] || die "which directory?"
  bin=$(install_binaries "$version")
  runc=$(install_runc)
  dir=$(realpath -m -- "$2")
  # $dir and $cache are written into configuration files, and $dir also appears in lists of mounts. So neither may
  # contain characters that these files and lists would escape.
  [[ $dir$cache =~ ^[A-Za-z0-9/._@+-]+$ ]] || die "no strange characters in paths, please: $dir, $cache"
  longest=$dir/run/containerd.sock.ttrpc
  ((${#longest} <= 107)) || die "the path of a unix socket has at most 107 bytes, so DIR is too long: $longest"
  mkdir -p -- "$dir"
  enter "$dir"
  if [[ -e $dir/settings ]]; then
    gone || die "a containerd runs in $dir already"
    die "an earlier containerd's state is in $dir: start it again, or take it down first"
  fi
  trap 'failed_up' EXIT
  printf '%s\n' "BIN=$bin" "VERSION=$(version_in "$bin")" >"$dir/settings"
  mkdir -- "$dir/run"
  write_config "$version" "$runc" >"$dir/config.toml"
  start_daemon || die "containerd does not answer"
  import_image
  trap - EXIT
  report
}

failed_up() {
  trap - EXIT
  [[ ! -e $dir/containerd.log ]] || log_tail
  (take_down) || true
  exit 1
}

# ---- removal of the daemon ------------------------------------------------------------------------------------------

# The ids of all pods and containers that containerd runs or its CRI service knows. Such an id is practically unique on
# the machine. Names that are not such ids are left out, because all processes in the cgroup of an id are killed.
ids() {
  local path
  for path in "$dir"/state/io.containerd.runtime.v2.task/k8s.io/* "$dir"/root/io.containerd.grpc.v1.cri/*/*; do
    [[ ! ${path##*/} =~ ^[0-9a-f]{64}$ ]] || echo "${path##*/}"
  done | sort -u
}

# The pids of the daemon's shims, of their runc processes, and of processes that an interrupted `up` may have left.
helpers() {
  local proc words
  for proc in /proc/[0-9]*; do
    { mapfile -d '' -t words <"$proc/cmdline"; } 2>/dev/null || continue
    [[ ${words[0]:-} =~ (^|/)(containerd(-shim[^/]*)?|runc|ctr)$ ]] || continue
    [[ " ${words[*]} " != *" $dir/"* ]] || echo "${proc#/proc/}"
  done
}

# own_cgroups ID...: the cgroups of these ids, and all below the parent cgroup of this directory; deepest first. (With
# `-`, awk's list of ids is never empty: otherwise awk would take the output of find for that list.)
own_cgroups() {
  local parent
  parent=$(cgroup_parent)
  find "$cgroups" -depth -type d 2>/dev/null | awk -v parent="$parent" '
    NR == FNR { own[$0]; next }
    { name = $0; sub(/.*\//, "", name) }
    name in own || index($0 "/", parent "/")
  ' <(printf '%s\n' "$@" -) -
}

# kill_rest ID...: kills all processes that `helpers` lists or that are in these ids' cgroups. Fails if it found any.
kill_rest() {
  local -a pids
  mapfile -t pids < <(helpers; own_cgroups "$@" | sed 's:$:/cgroup.procs:' | xargs -r cat -- 2>/dev/null | grep -vx 0)
  ((${#pids[@]})) || return 0
  kill -9 "${pids[@]}" 2>/dev/null || true
  return 1
}

# remove_shim_sockets ID...: removes the sockets of killed shims. All containerds of a machine have these sockets in one
# directory outside of $dir. Each name is a hash of the daemon's socket, the namespace and the pod's id.
remove_shim_sockets() {
  local id hash
  for id in "$@"; do
    hash=$(printf %s "$socket/k8s.io/$id" | sha256sum)
    rm -f -- "/run/containerd/s/${hash%% *}"
  done
}

# Lists mounts below the directory: the latest, and so the innermost, comes first.
mounts() { awk -v below="$dir/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | tac; }

unmount_all() {
  local point
  mounts | while read -r point; do umount -- "$point" 2>/dev/null || umount --lazy -- "$point" || true; done
  [[ -z $(mounts) ]]
}

remove_cgroups() {
  local group
  own_cgroups "$@" | while read -r group; do rmdir -- "$group" 2>/dev/null || true; done
  [[ -z $(own_cgroups "$@") ]]
}

take_down() {
  local pid
  local -a own
  # `up` has written nothing to this directory.
  [[ -e $dir/settings ]] || { rmdir -- "$dir" && return; }
  mapfile -t own < <(ids)

  # Remove pods through the CRI. For that, continue stopped processes, and start a dead daemon.
  if ((${#own[@]})); then
    for pid in $(helpers); do kill -CONT "$pid" 2>/dev/null || true; done
    if pid=$(daemon); then kill -CONT "$pid" || true; else start_daemon || true; fi
    timeout 60 python3 "$parts/cri.py" "$socket" remove-pods || say "not all pods went through the CRI; killing the rest"
  fi
  if pid=$(daemon); then
    kill -TERM "$pid" || true
    kill -CONT "$pid" || true
    within 5 gone || kill -9 "$pid" || true
  fi
  within 10 gone || die "containerd ($pid) does not die"

  # Remove what is left without the CRI.
  within 10 kill_rest "${own[@]}" || die "processes of $dir do not die: $(helpers | xargs)"
  remove_shim_sockets "${own[@]}"
  within 5 unmount_all || die "still mounted: $(mounts | xargs)"
  within 5 remove_cgroups "${own[@]}" || die "cgroups left: $(own_cgroups "${own[@]}" | xargs)"
  # Remove the cgroup of pods that name no parent cgroup. rmdir fails if another containerd has pods in this cgroup.
  find "$cgroups" -maxdepth 2 -type d -name k8s.io -exec rmdir -- {} + 2>/dev/null || true
  rm -rf --one-file-system -- "$dir"
}

# ---- the commands ---------------------------------------------------------------------------------------------------

# --version is the only option; all other arguments go to $arguments.
version=2
arguments=()
while (($#)); do
  case $1 in
    --version) version=${2:-} && shift $(($# > 1 ? 2 : 1)) ;;
    --version=*) version=${1#*=} && shift ;;
    -h | --help | help) usage && exit ;;
    *) arguments+=("$1") && shift ;;
  esac
done
set -- "${arguments[@]}"
suite_of "$version" >/dev/null

enter_existing() {
  enter "$1" || die "there is no directory $1"
  [[ -e $dir/settings ]] || die "there was never an up in $1"
}

case ${1:-} in
  up)
    up "$version" "${2:-}"
    ;;
  down)
    if enter "${2:-}"; then take_down; fi
    ;;
  kill)
    enter_existing "${2:-}"
    pid=$(daemon) || die "no containerd runs in $dir"
    kill -9 "$pid"
    within 10 gone || die "containerd ($pid) does not die"
    ;;
  start)
    enter_existing "${2:-}"
    gone || die "a containerd runs in $dir already"
    start_daemon || { log_tail && die "containerd does not answer"; }
    report
    ;;
  stop-signal)
    [[ ${2:-} == SIGSTOP || ${2:-} == SIGCONT ]] || die "the signal is SIGSTOP or SIGCONT"
    enter_existing "${3:-}"
    pid=$(daemon) || die "no containerd runs in $dir"
    kill -s "${2#SIG}" "$pid"
    ;;
  import)
    enter_existing "${4:-}"
    ctr images import "$2" >/dev/null
    # The CRI service learns of the new image a little later, from an event of containerd.
    within 10 cri image "$3" || die "the CRI service does not know the image $3"
    ;;
  tasks)
    enter_existing "${2:-}"
    ctr tasks ls --quiet
    ;;
  install)
    install_binaries "$version"
    ;;
  can)
    why=$(why_not "$version")
    [[ -z $why ]] || { echo "$why" && exit 3; }
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac
