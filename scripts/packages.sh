# SPDX-License-Identifier: Apache-2.0
# Sourced by quickstart and check: what each needs from Debian, and getting it.
BUILD_PACKAGES="gcc libc6-dev cmake ninja-build pkg-config llvm-19-dev libprotobuf-c-dev protobuf-c-compiler libcjson-dev zlib1g-dev libxxhash-dev opencl-c-headers libjpeg62-turbo-dev libpng-dev libtiff-dev libwebp-dev libopenjp2-7-dev libre2-dev g++"
PYTHON_PACKAGES="python3 python3-venv"
CHECK_PACKAGES="mandoc locales libmicrohttpd-dev curl valgrind dpkg-dev file libcriterion-dev clang libclang-rt-14-dev clang-format ocl-icd-libopencl1 pocl-opencl-icd"

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# need PACKAGE...: installs those that are missing, as root or through sudo; else says what to type and ends.
need() {
  local missing=() root=()
  if ! command -v apt-get >/dev/null; then
    echo "This is no Debian: what is needed must be here already, by names like: $*" >&2
    return
  fi
  for package in "$@"; do is_installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || ! { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      echo "Some packages are missing; as root, type:"
      echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
      exit 1
    fi
    root=(sudo)
  fi
  echo "Installing ${missing[*]}"
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# build FOLDER TARGET... -- CMAKE_FLAG...: configures once, builds.
build() {
  local folder=$1 targets=() generator=() log
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do targets+=(--target "$1"); shift; done
  [ $# -eq 0 ] || shift
  [ -e "$folder/CMakeCache.txt" ] || ! command -v ninja >/dev/null || generator=(-G Ninja)
  log=$(cmake -S . -B "$folder" "${generator[@]}" "$@" 2>&1) || { echo "$log"; return 1; }
  cmake --build "$folder" -j "$(nproc)" "${targets[@]}"
}

# The project's own Python; with an argument also the packages of that list.
python_environment() {
  [ -x build/venv/bin/python ] || python3 -m venv build/venv
  [ $# -eq 0 ] || cmp -s "$1" build/venv/installed.txt ||
    { build/venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$1" && cp "$1" build/venv/installed.txt; }
}
