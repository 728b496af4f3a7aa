#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What an embedder does: makes the packages, installs them, builds programs with them in four ways and runs these.
#   run.sh BUILD         as root the packages are installed, and removed at the end; else, or when some onnxfuse is installed
#                        already, they are unpacked into a folder
#   run.sh BUILD unpack  unpacked in any case
# PYTHON: a Python that has numpy (default: build/venv/bin/python).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1") mode=${2:-} python=${PYTHON:-build/venv/bin/python}
work=$build/embedding model=$PWD/tests/models/classifier/model.onnx
optional=() # plug-ins that this build has; one whose libraries were not there is left out of it
for plugin in image regex; do
  if [ -e "$build/libonnxfuse-$plugin.so" ]; then optional+=("$plugin"); else echo "skipped: the plug-in $plugin, which this build was made without"; fi
done
packages=(libonnxfuse0 libonnxfuse-llvm "${optional[@]/#/libonnxfuse-}" libonnxfuse-dev onnxfuse libonnxfuse-ep)
row=(0.5 -1 2 0 0.25 1 -2 3 0.1 0.2 0.3 0.4 -0.5 -0.6 0.7 0.8)
strict=(-Wall -Wextra -Wpedantic -Werror -O1 -g)
rm -rf "$work"
mkdir -p "$work/bin" "$work/elsewhere"

fail() { echo "FAIL  $*"; exit 1; }
ok() { echo "ok    $*"; }
quiet() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; fail "$*"; }; }

# --- packages and their place ---
quiet cmake --build "$build" --target onnxfuse onnxfuse_static onnxfuse_cli onnxfuse_ep
rm -rf "$build/packages"
quiet cmake -E chdir "$build" cpack
debs=()
for package in "${packages[@]}"; do debs+=("$(ls -t "$build/packages/${package}"_*.deb | head -n 1)"); done
[ -n "$(ls "$build"/packages/*.tar.gz)" ]
# What a plug-in stands on is needed by its package alone.
for deb in "${debs[@]}"; do
  for needs in llvm:libllvm image:libjpeg image:libpng image:libtiff image:libwebp image:libopenjp2 regex:libre2; do
    [[ " llvm ${optional[*]} " = *" ${needs%:*} "* ]] || continue
    case $deb in
      */libonnxfuse-${needs%:*}_*) dpkg-deb -f "$deb" Depends | grep -q "${needs#*:}" || fail "$deb does not need ${needs#*:}" ;;
      *) ! dpkg-deb -f "$deb" Depends | grep -q "${needs#*:}" || fail "$deb needs ${needs#*:}" ;;
    esac
  done
done
for plugin in llvm "${optional[@]}"; do
  dpkg-deb -f "${debs[0]}" Recommends | grep -q "libonnxfuse-$plugin" || fail "libonnxfuse0 does not recommend libonnxfuse-$plugin"
done

if [ "$mode" != unpack ] && [ "$(id -u)" = 0 ] && ! dpkg-query -W "${packages[@]}" >/dev/null 2>&1; then
  root='' how="installed"
  trap 'dpkg --purge "${packages[@]}" >/dev/null 2>&1 || true' EXIT
  quiet dpkg -i "${debs[@]}"
else
  root=$work/root how="unpacked"
  for deb in "${debs[@]}"; do dpkg-deb -x "$deb" "$root"; done
  export PKG_CONFIG_PATH=$root/usr/lib/pkgconfig CMAKE_PREFIX_PATH=$root/usr LD_LIBRARY_PATH=$root/usr/lib
fi
ok "${#packages[@]} packages, $how"

# --- what they export ---
others=$(nm --defined-only --extern-only "$root/usr/lib/libonnxfuse.a" 2>/dev/null | awk 'NF == 3 && $3 !~ /^onnxfuse_/ {print $3}')
[ -z "$others" ] || fail "the static library has names of its own for all to see: $others"
readelf -d "$root/usr/lib/libonnxfuse.so" | grep -q 'SONAME.*\[libonnxfuse\.so\.0\]' || fail "the SONAME is not libonnxfuse.so.0"
ok "names: onnxfuse_* alone"

# --- four ways to build ---
quiet cc -std=c11 "${strict[@]}" examples/classify.c -o "$work/bin/classify_pkgconfig" $(pkg-config --cflags --libs onnxfuse)
static=$(pkg-config --static --libs onnxfuse)
quiet cc -std=c11 "${strict[@]}" examples/classify.c -o "$work/bin/classify_static" $(pkg-config --cflags onnxfuse) \
  ${static/-lonnxfuse/-l:libonnxfuse.a}
! readelf -d "$work/bin/classify_static" | grep -q 'NEEDED.*onnxfuse' || fail "the static program needs the shared library"
quiet cmake -S examples -B "$work/cmake" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_FLAGS=${strict[*]}" "-DCMAKE_CXX_FLAGS=${strict[*]}"
quiet cmake --build "$work/cmake"
cp "$work/cmake"/{classify,classify_cpp,describe,requests} "$work/bin"
quiet cc -std=c11 "${strict[@]}" tests/embedding/plugins.c -o "$work/bin/plugins" $(pkg-config --cflags --libs onnxfuse)
quiet cc -std=c11 "${strict[@]}" tests/embedding/plugins.c -o "$work/bin/plugins_static" $(pkg-config --cflags onnxfuse) \
  ${static/-lonnxfuse/-l:libonnxfuse.a}
quiet cc "${strict[@]}" tests/embedding/memory.c -o "$work/bin/memory" $(pkg-config --cflags --libs onnxfuse) -lpthread
quiet cc -std=c11 "${strict[@]}" tests/embedding/unload.c -o "$work/bin/unload" $(pkg-config --cflags onnxfuse) -ldl
ok "built: pkg-config, pkg-config --static, CMake in C and C++"

# --- they run, from anywhere, with kernels to be compiled ---
expected=
for program in classify_pkgconfig classify classify_cpp; do
  got=$(cd / && XDG_CACHE_HOME=$work/cache/$program "$work/bin/$program" "$model" "${row[@]}")
  [ -n "$expected" ] || expected=$got
  [[ $got =~ ^class\ [0-9]+,\ score\ 0\.[0-9]+$ && $got == "$expected" ]] || fail "$program: $got; expected $expected"
  ok "$program: $got"
done
got=$(cd / && XDG_CACHE_HOME=$work/cache/describe "$work/bin/describe" "$model")
[[ $got == *"input x: float32 [batch, 16]"*"output scores: float32 [batch, 10]"* ]] || fail "describe: $got"
got=$(cd / && XDG_CACHE_HOME=$work/cache/cli "$root/usr/bin/onnxfuse" test "${model%/*}" | tail -n 1)
[ "$got" = "1 passed, 0 failed" ] || fail "onnxfuse test: $got"

got=$("$work/bin/unload" "$root/usr/lib/libonnxfuse.so.0" "$model" 2>&1) || fail "opened and closed as a plug-in: code $?, $got"
ok "opened and closed as a plug-in: $got"

# --- plug-ins are found where they are installed, and never in the current directory ---
"$python" tests/embedding/model.py "$work/wide.onnx" "$work/expression.onnx"
plugins=(none) pictures=0 expressions=0
for plugin in "${optional[@]}"; do
  case $plugin in
    image) plugins+=(tests/images/{plain.jpg,plain.png,plain.tiff,lossy.webp,plain.jp2}) pictures=5 ;;
    regex) plugins[0]=$work/expression.onnx expressions=1 ;;
  esac
done
[ "$("$work/bin/plugins" "${plugins[@]}")" = "$pictures pictures, $expressions expression" ] || fail "the plug-ins for pictures and regular expressions"
if [ -n "$root" ]; then
  mkdir -p "$work/bin/onnxfuse"
  for plugin in "${optional[@]}"; do
    ln -s "$root/usr/lib/onnxfuse/libonnxfuse-$plugin.so" "$work/elsewhere" # a good one, in the current directory
    inputs=("${plugins[@]}")
    [[ ${inputs[0]} = none ]] || inputs[0]=$(realpath "${inputs[0]}")
    for ((i = 1; i < ${#inputs[@]}; i++)); do inputs[i]=$(realpath "${inputs[i]}"); done
    got=$(cd "$work/elsewhere" && "$work/bin/plugins_static" "${inputs[@]}" 2>&1) && fail "without $plugin: $got"
    [[ $got == *"libonnxfuse-$plugin.so is neither in $work/bin, nor in "*"the package libonnxfuse-$plugin)"* ]] || fail "without $plugin: $got"
    ln -s "$root/usr/lib/onnxfuse/libonnxfuse-$plugin.so" "$work/bin/onnxfuse"
    ok "without $plugin: \"${got:0:60}...\""
  done
  echo "no library" >"$work/elsewhere/libonnxfuse-llvm.so"
  code=0
  got=$(cd "$work/elsewhere" && XDG_CACHE_HOME=$work/cache/none "$work/bin/classify_static" "$model" "${row[@]}" 2>&1) || code=$?
  [[ $code = 5 && $got == *"libonnxfuse-llvm.so is neither in $work/bin, nor in "* ]] || fail "without the plug-in: $code $got"
  ok "without the plug-in: exit code 5, \"${got:0:60}...\""
  ln -s "$root/usr/lib/onnxfuse/libonnxfuse-llvm.so" "$work/bin/onnxfuse"
fi
got=$(cd "$work/elsewhere" && XDG_CACHE_HOME=$work/cache/static "$work/bin/classify_static" "$model" "${row[@]}")
[ "$got" = "$expected" ] || fail "classify_static: $got; expected $expected"
[ "$("$work/bin/plugins_static" "${plugins[@]}")" = "$pictures pictures, $expressions expression" ] || fail "plug-ins of a program with the static library"
ok "classify_static: $got"

# --- eight threads under valgrind, and their memory ---
export XDG_CACHE_HOME=$work/cache/valgrind
got=$(valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
  --errors-for-leak-kinds=definite,indirect --suppressions=tests/embedding/valgrind.supp "$work/bin/requests" "$model" 16 600000 2>"$work/valgrind.log") ||
  { tail -n 60 "$work/valgrind.log"; fail "valgrind: $got"; }
[ ! -s "$work/valgrind.log" ] || { head -n 40 "$work/valgrind.log"; fail "valgrind reports"; }
ok "eight threads under valgrind: $got"
got=$("$work/bin/memory" "$work/wide.onnx" 256 2048) || fail "memory of eight requests: $got"
ok "memory of eight requests: ${got//$'\n'/; }"
