# TTR_TARGETS: the SIMD targets that kernels are compiled for. Which of them runs is chosen when a
# program starts; the environment variable TTR_TARGET names another.
#
#   all      every target of src/simd/targets.h: for programs that are handed on
#   native   the best one of this processor: compiles in a third of the time
#   NAME     that one, by its name in Highway (AVX2)
set(TTR_TARGETS all CACHE STRING "SIMD targets of kernels: all, native, or the name of one")
set_property(CACHE TTR_TARGETS PROPERTY STRINGS all native AVX3 AVX2 SCALAR NEON)

# Highway knows which instructions the processor has and the system lets programs use.
function(ttr_find_native_target)
  if(DEFINED TTR_NATIVE_TARGET)
    return()
  endif()
  if(CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "TTR_TARGETS=native: this build is for another machine; name its target")
  endif()
  try_run(code compiled "${CMAKE_BINARY_DIR}/native_target"
          "${PROJECT_SOURCE_DIR}/cmake/native_target.cc"
          CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR}" LINK_LIBRARIES hwy::hwy
          CXX_STANDARD 20 COMPILE_OUTPUT_VARIABLE text RUN_OUTPUT_VARIABLE target)
  if(NOT compiled OR NOT code EQUAL 0)
    message(FATAL_ERROR "TTR_TARGETS=native: this processor's target was not found\n${text}")
  endif()
  set(TTR_NATIVE_TARGET "${target}" CACHE INTERNAL "The best SIMD target of this processor")
endfunction()

# TTR_TARGET_DEFINITIONS: what kernels are compiled with; TTR_OTHER_DEFINITIONS: for what this processor has
# beside its best target, where they are compiled for that one.
set(best_first AVX3 AVX2 NEON SCALAR EMU128)
set(TTR_TARGET_DEFINITIONS "")
set(TTR_OTHER_DEFINITIONS "")
if(NOT TTR_TARGETS STREQUAL "all")
  set(target "${TTR_TARGETS}")
  if(target STREQUAL "native")
    ttr_find_native_target()
    set(target "${TTR_NATIVE_TARGET}")
    list(FIND best_first "${target}" place)
    math(EXPR count "${place} + 1")
    list(SUBLIST best_first 0 ${count} without)
    list(TRANSFORM without PREPEND "HWY_")
    list(JOIN without "|" without)
    set(TTR_OTHER_DEFINITIONS "TTR_WITHOUT_TARGETS=(${without})")
  endif()
  if(NOT target IN_LIST best_first)
    message(FATAL_ERROR "TTR_TARGETS must be all, native or one of ${best_first} "
                        "but is \"${target}\"")
  endif()
  message(STATUS "SIMD target: ${target}")
  set(TTR_TARGET_DEFINITIONS HWY_COMPILE_ONLY_STATIC HWY_BASELINE_TARGETS=HWY_${target})
endif()
