#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sysroot.sh ARCHITECTURE FOLDER: the libraries of another Debian architecture (arm64), with all that a build and its tests link, for
# cross-compiling and emulation (cmake/aarch64-linux-gnu.cmake). It installs nothing here: apt keeps lists of its own in FOLDER/.apt.
set -euo pipefail
architecture=${1:?sysroot.sh ARCHITECTURE FOLDER} folder=$(realpath -m "${2:?sysroot.sh ARCHITECTURE FOLDER}")
. "$(dirname "$0")/packages.sh"

apt=$folder/.apt
mkdir -p "$apt"/{lists/partial,archives/partial,sources}
: > "$apt/status"
cat > "$apt/conf" <<END
APT::Architecture "$architecture"; APT::Architectures "$architecture"; APT::Install-Recommends "false"; APT::Sandbox::User "";
Dir::State "$apt"; Dir::State::status "$apt/status"; Dir::State::lists "$apt/lists"; Dir::Cache "$apt"; Dir::Cache::archives "$apt/archives";
Dir::Etc::sourcelist "$apt/none"; Dir::Etc::sourceparts "$apt/sources"; Debug::NoLocking "true";
END
cat > "$apt/sources/debian.sources" <<END
Types: deb
URIs: http://deb.debian.org/debian
Suites: $(. /etc/os-release && echo "$VERSION_CODENAME")
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END

# Those that are programs here are not needed there.
packages="libstdc++-$(gcc -dumpversion | cut -d. -f1)-dev libcriterion-dev libmicrohttpd-dev ocl-icd-libopencl1"
for package in $BUILD_PACKAGES; do
  case $package in *-dev | *-headers) packages+=" $package" ;; esac
done
APT_CONFIG=$apt/conf apt-get update -qq
APT_CONFIG=$apt/conf apt-get install -y -qq --download-only $packages

mkdir -p "$folder"/usr/{bin,sbin,lib}
for name in bin sbin lib; do ln -sfn "usr/$name" "$folder/$name"; done
for package in "$apt"/archives/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder" --keep-directory-symlink; done
# The linker would follow absolute links into this machine's folders.
find "$folder/usr" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  ln -sfn "$(realpath -ms --relative-to="$(dirname "$link")" "$folder$(readlink "$link")")" "$link"
done
