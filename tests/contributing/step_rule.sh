#!/usr/bin/env bash
# Applies the diff of CONTRIBUTING.md's "A step rule" to a copy of the tree, builds the library for one
# SIMD target, and runs step_rule.cc: outputs and gradients of the new rule against the definition.
#   step_rule.sh SOURCE_DIR WORK_DIR CXX [LAUNCHER]
set -euo pipefail
source=$1 work=$2 cxx=$3 launcher=${4-}

rm -rf "$work"
mkdir -p "$work"
cp -r "$source"/{CMakeLists.txt,cmake,include,src} "$work"
# The first diff behind the heading.
awk '/^## A step rule/ {here = 1} here && /^```$/ && on {exit} on {print} here && /^```diff$/ {on = 1}' \
  "$source/CONTRIBUTING.md" >"$work/change.diff"
patch --directory="$work" --strip=1 --fuzz=0 --quiet <"$work/change.diff"

# One target, this machine's, little optimised: what is judged is the mathematics.
cmake -S "$work" -B "$work/build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" -DTTR_BUILD_COMMAND=OFF -DTTR_BUILD_TESTS=OFF \
  -DTTR_TARGETS=native -DCMAKE_CXX_FLAGS_DEBUG=-O1 \
  -DCMAKE_INSTALL_PREFIX="$work/prefix" >/dev/null
cmake --build "$work/build" --parallel "$(nproc)" --target install >"$work/build.log" 2>&1 || {
  tail -n 40 "$work/build.log" >&2
  exit 1
}
flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name ttr.pc)") pkg-config --cflags --libs ttr)
# shellcheck disable=SC2086
"$cxx" -std=c++20 "$source/tests/contributing/step_rule.cc" $flags -o "$work/step_rule"
"$work/step_rule"
