#!/bin/busybox sh
# First process of the guest: loads modules, mounts the host's file system read-only, runs one command in it.
# /mnt/share is a folder of the host that both can write; the exit status is left there.
export PATH=/bin
/bin/busybox --install -s /bin 2>/dev/null
mount -t proc proc /proc
for module in /modules/*; do insmod "$module" || echo "guest: $module was not loaded"; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose,ro host /host || poweroff -f
mount -t devtmpfs dev /host/dev
mount -t proc proc /host/proc
mount -t sysfs sys /host/sys
mount -t tmpfs tmp /host/mnt
mkdir /host/mnt/share /host/mnt/tmp
chmod 1777 /host/mnt/tmp
mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=none share /host/mnt/share || poweroff -f
ip link set lo up
chroot /host /bin/sh /mnt/share/command </dev/null >/dev/console 2>&1
echo $? >/host/mnt/share/exit_status
sync
poweroff -f
