#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs programs on a processor with AVX-512 and AMX that Bochs emulates: boots a Linux kernel with them and the libraries they need, runs
# commands, and prints what these print.
#
#   tests/emulated/boot.sh BOCHS KERNEL FOLDER COMMANDS FILE...
#
# BOCHS: the source tree in which Bochs 3 was built (docs/testing.md says how); KERNEL: a vmlinuz; FOLDER: made anew, for what is needed
# meanwhile; COMMANDS: of a shell, in a folder that holds the FILEs.
# packages: isolinux syslinux-common xorriso busybox-static cpio
set -eu
bochs=$1 kernel=$2 folder=$3 commands=$4
shift 4

rm -rf "$folder"
root=$folder/root
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/files" "$folder/disc"
cp "$(command -v busybox)" "$root/bin/busybox"
for file; do
    cp -L "$file" "$root/files/"
    strip "$root/files/$(basename "$file")" 2>/dev/null || true # what is no program stays as it is
    # ldd fails for what is no program
    { ldd "$file" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root/$(dirname "$library")"
        cp -L "$library" "$root/$library"
    done
done
cat > "$root/init" <<EOF
#!/bin/busybox sh
/bin/busybox --install /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/shm
mount -t tmpfs none /dev/shm
mount -t tmpfs none /tmp
exec >/dev/ttyS0 2>&1
export HOME=/tmp XDG_CACHE_HOME=/tmp LD_LIBRARY_PATH=/files
cd /files
grep -m1 -o -E 'avx512f|amx_bf16' /proc/cpuinfo
$commands
echo "emulated: done"
sleep 3 # until all is written
poweroff -f
EOF
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 > "$folder/disc/initrd"
cp "$kernel" "$folder/disc/vmlinuz"
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$folder/disc/"
cat > "$folder/disc/isolinux.cfg" <<EOF
DEFAULT linux
LABEL linux
  KERNEL /vmlinuz
  APPEND initrd=/initrd console=ttyS0 mitigations=off nokaslr tsc=reliable lpj=1000000 random.trust_cpu=on loglevel=4
EOF
xorriso -as mkisofs -quiet -o "$folder/disc.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
    -boot-info-table "$folder/disc" 2>/dev/null
cat > "$folder/bochsrc" <<EOF
plugin_ctrl: unmapped=false, biosdev=true, speaker=false
megs: 1024
cpu: model=corei7_skylake_x, add_features="amx,amx_int8,amx_bf16,avx512vnni,avx512bf16,avx_vnni", count=1, ips=100000000, reset_on_triple_fault=0
romimage: file=$bochs/bios/BIOS-bochs-latest
vgaromimage: file=$bochs/bios/VGABIOS-lgpl/VGABIOS-lgpl-latest.bin
ata0-master: type=cdrom, path=$folder/disc.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$folder/out.txt
log: $folder/bochs.log
clock: sync=none
display_library: nogui
panic: action=fatal
error: action=report
EOF
"$bochs/bochs" -q -f "$folder/bochsrc" > "$folder/bochs.txt" 2>&1 || true # to power off is a failure to it
cat "$folder/out.txt"
grep -q "emulated: done" "$folder/out.txt"
