#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# build-guest.sh: puts the kernel and the initramfs of the lab's guest below build/lab/guest.
#
# Both come from Debian packages, of which the guest needs a kernel with some modules, and busybox. It needs
# no root file system: it mounts the one of the host, read-only, so DPDK and what was just built are there.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
lab=$(cd "$here/../.." && pwd)/build/lab
packages=$lab/packages
guest=$lab/guest

die() {
	echo "build-guest.sh: $*" >&2
	exit 1
}

[ "$(dpkg --print-architecture)" = amd64 ] || die "the lab emulates a PC: it needs an amd64 machine"

# The kernels of linux-image-amd64; the kernel for clouds has no 9p.
image=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends:/ { print $2; exit }')
if [ -z "$image" ]; then
	[ ! -s "$guest/initrd.gz" ] || exit 0
	die "apt knows no linux-image-amd64: try 'apt-get update' first"
fi
kernel=${image#linux-image-}
wanted="$kernel $(cat "$0" "$here/guest-init" | sha256sum | cut -d ' ' -f 1)"
[ "$(cat "$guest/version" 2>/dev/null)" != "$wanted" ] || exit 0

mkdir -p "$packages" "$guest"
scratch=$(mktemp -d "$lab/guest.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# package NAME: the file of a package, downloaded once.
package() {
	local version size file
	version=$(LC_ALL=C apt-cache policy "$1" | awk '/Candidate:/ { print $2 }')
	file=$packages/${1}_${version//:/%3a}_amd64.deb
	if [ ! -s "$file" ]; then
		size=$(apt-cache show "$1=$version" | awk '/^Size:/ { print $2; exit }')
		echo "build-guest.sh: downloading $1 $version, $((size / 1000)) kB" >&2
		(
			cd "$scratch"
			# As root, apt warns that it cannot download as another user into a directory of root's.
			apt-get -qq -o APT::Sandbox::User=root download "$1=$version" >&2
		) || die "cannot download $1: try 'apt-get update' first"
		rm -f "$packages/${1}_"*
		mv "$scratch/${1}_"*.deb "$file"
	fi
	echo "$file"
}
kernel_package=$(package "$image")
busybox_package=$(package busybox-static)

# The kernel's package has 400 MB of modules; these are for the devices of the guest.
modules=/lib/modules/$kernel/kernel
root=$scratch/root
mkdir -p "$root"/{proc,sys,dev,newroot}
dpkg-deb --fsys-tarfile "$kernel_package" | tar -x -C "$root" --wildcards \
	"./boot/vmlinuz-$kernel" "./lib/modules/$kernel/modules.builtin*" "./lib/modules/$kernel/modules.order" \
	".$modules/drivers/virtio/*" ".$modules/net/9p/9pnet.ko" ".$modules/net/9p/9pnet_virtio.ko" \
	".$modules/fs/9p/*" ".$modules/fs/netfs/*" ".$modules/fs/fscache/*" ".$modules/fs/overlayfs/*" \
	".$modules/drivers/vfio/*" ".$modules/virt/lib/irqbypass.ko" ".$modules/drivers/net/vmxnet3/*" \
	".$modules/drivers/net/ethernet/intel/e1000/*" \
	".$modules/drivers/uio/uio.ko" ".$modules/drivers/uio/uio_pci_generic.ko"
dpkg-deb --fsys-tarfile "$busybox_package" | tar -x -C "$root" ./bin/busybox
mv "$root/boot/vmlinuz-$kernel" "$scratch/vmlinuz"
rmdir "$root/boot"
(cd "$root" && bin/busybox depmod -b . "$kernel")
[ -s "$root/lib/modules/$kernel/modules.dep" ] || die "depmod found no modules of $kernel"
install -m 755 "$here/guest-init" "$root/init"
(cd "$root" && find . | LC_ALL=C sort | bin/busybox cpio -o -H newc 2>/dev/null) | gzip -1 >"$scratch/initrd.gz"

rm -f "$guest/version"
mv "$scratch/vmlinuz" "$scratch/initrd.gz" "$guest"
echo "$wanted" >"$guest/version"
echo "build-guest.sh: Linux $kernel in $guest, $(du -sh "$guest" | cut -f 1)"
