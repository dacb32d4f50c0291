# Where kernels are compiled for several targets: tests of those that a program does not choose by itself,
# under the label `targets`. A test goes through all of them, unless TTR_TARGET names one.

# ttr_has_target(NAME RESULT): are kernels compiled for Highway's target NAME?
include(CheckCXXSourceCompiles)
function(ttr_has_target name result)
  set(CMAKE_REQUIRED_LIBRARIES hwy::hwy)
  set(CMAKE_REQUIRED_INCLUDES "${PROJECT_SOURCE_DIR}")
  check_cxx_source_compiles("#include <src/simd/targets.h>
#include <hwy/detect_targets.h>
static_assert((HWY_TARGETS & HWY_${name}) != 0);
int main() {}" TTR_HAS_${name})
  set(${result} ${TTR_HAS_${name}} PARENT_SCOPE)
endfunction()

# Everything without vectors: strips are one number wide, and what a vector operation does to NaN and
# infinity is somebody's choice. Highway's target for that depends on the compiler; 64-bit Arm always has
# vectors, and none.
foreach(target SCALAR EMU128)
  ttr_has_target(${target} has)
  if(has)
    ttr_shards(ttr_test_engines 8 engines_without_vectors targets 200 TTR_TARGET=${target})
    ttr_shards(ttr_test_layer 16 layer_without_vectors targets 200 TTR_TARGET=${target})
    break()
  endif()
endforeach()

# On narrower vectors every engine's tables of cases: outputs, gradients, single tokens.
file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/tables.txt" tables)
string(JOIN ":" tables ${tables})
ttr_has_target(AVX2 has)
if(has)
  ttr_shards(ttr_test_linalg 1 linalg_on_AVX2 targets 10 TTR_TARGET=AVX2)
  ttr_shards(ttr_test_engines 4 engines_on_AVX2 targets 50 TTR_TARGET=AVX2 "GTEST_FILTER=Targets/*:All/*")
  ttr_shards(ttr_test_layer 8 layer_on_AVX2 targets 50 TTR_TARGET=AVX2 "GTEST_FILTER=${tables}")
endif()
