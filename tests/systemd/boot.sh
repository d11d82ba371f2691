#!/bin/sh
# Boots systemd as process 1 of its own namespaces.
#
#   boot.sh enter NAME NETWORK ROOT DISK
#
# NAME is its host name and the name of its cgroups, NETWORK a network namespace, ROOT a read-only
# root, DISK an empty folder for writes. The process becomes unshare(1), whose child is systemd;
# when either dies, everything inside does. Only the cgroups are left.
set -eu

CGROUPS=/sys/fs/cgroup

# Folders of all hierarchies: only v2, or v1 and hybrid.
hierarchies() {
  for folder in $CGROUPS $CGROUPS/*; do
    [ ! -e "$folder/cgroup.procs" ] || echo "$folder"
    [ "$folder" != $CGROUPS ] || [ ! -e $CGROUPS/cgroup.procs ] || return 0
  done
}

enter() {
  name=$1 network=$2
  shift 2
  for folder in $(hierarchies); do
    mkdir "$folder/$name"
    for key in cpuset.cpus cpuset.mems; do # v1: required before a process can enter
      [ ! -e "$folder/$key" ] || cat "$folder/$key" >"$folder/$name/$key"
    done
    echo $$ >"$folder/$name/cgroup.procs"
  done
  exec setpriv --pdeathsig KILL --bounding-set -sys_time,-sys_module,-sys_boot \
    nsenter --net="/run/netns/$network" \
    unshare --mount --pid --uts --ipc --cgroup --fork --kill-child --propagation private \
    "$0" init "$name" "$@"
}

init() {
  name=$1 lower=$2 disk=$3
  root=$disk/root
  mkdir "$disk/upper" "$disk/work" "$root" "$disk/docker" "$disk/containerd"
  mount -t overlay -o "lowerdir=$lower,upperdir=$disk/upper,workdir=$disk/work" overlay "$root"
  kernel_files
  devices
  mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$root/run"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  # The engine uses overlays, which cannot be on another overlay.
  for part in docker containerd; do
    mkdir -p "$root/var/lib/$part"
    mount --bind "$disk/$part" "$root/var/lib/$part"
  done
  hostname "$name"
  echo "$name" >"$root/etc/hostname"
  tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
  cd "$root"
  mkdir run/outside
  pivot_root . run/outside
  exec chroot . /bin/sh -c '
    umount -l /run/outside
    rmdir /run/outside
    exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
      /sbin/init --log-target=journal-or-kmsg --show-status=0
  ' </dev/null
}

kernel_files() {
  mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
  mount -t sysfs -o nosuid,nodev,noexec,ro sysfs "$root/sys"
  # Network settings belong to the namespace, all others to the machine.
  mount --bind "$root/proc/sys" "$root/proc/sys"
  mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
  mount -o remount,bind,ro "$root/proc/sys"
  [ ! -e /proc/sysrq-trigger ] || mount --bind /dev/null "$root/proc/sysrq-trigger"
  if [ -e $CGROUPS/cgroup.procs ]; then
    mount -t cgroup2 cgroup2 "$root$CGROUPS"
    return
  fi
  mount -t tmpfs -o mode=755 tmpfs "$root$CGROUPS"
  for folder in $(hierarchies); do
    mkdir "$root$folder"
    case ${folder##*/} in
      unified) mount -t cgroup2 cgroup2 "$root$folder" ;;
      systemd) mount -t cgroup -o none,name=systemd cgroup "$root$folder" ;;
      *) mount -t cgroup -o "${folder##*/}" cgroup "$root$folder" ;;
    esac
  done
}

devices() {
  mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
  for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
  done
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s fd/0 "$root/dev/stdin"
  ln -s fd/1 "$root/dev/stdout"
  ln -s fd/2 "$root/dev/stderr"
}

"$@"
