# ttr_target(TARGET): the warnings, the floating-point rules and the sanitizers of this project.
function(ttr_target target)
  # Kernels write their fused multiply-adds out; everywhere else the compiler must not invent any,
  # so that an experiment prints the same numbers on every machine.
  target_compile_options(${target} PRIVATE -ffp-contract=off -Wall -Wextra -Wconversion -Wshadow
                                           -Wno-sign-conversion $<$<BOOL:${TTR_WERROR}>:-Werror>)
  # Highway's NEON takes AES along, and g++ inlines its vectors' constructors only into code for the
  # same instructions; what it makes itself, as constructors of structs, is for the command line's.
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
     AND NOT CMAKE_CXX_FLAGS MATCHES "-m(arch|cpu)=")
    target_compile_options(${target} PRIVATE -march=armv8-a+crypto)
  endif()
  if(TTR_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TTR_SANITIZE} -fno-sanitize-recover=all
                                             -fno-omit-frame-pointer)
    # Instrumented code makes g++ 12 see uninitialised values that are none, in the standard library.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_link_options(${target} PRIVATE -fsanitize=${TTR_SANITIZE})
  endif()
endfunction()

# ttr_library(TARGET): what every part of the library is compiled with.
function(ttr_library target)
  ttr_target(${target})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                                       PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_precompile_headers(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/precompiled.h")
  # Header-only parts leave no trace in the installed package.
  target_link_libraries(${target} PRIVATE TBB::tbb hwy::hwy $<BUILD_INTERFACE:Eigen3::Eigen>
                                          $<BUILD_INTERFACE:Random123::Random123>
                                          $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
endfunction()

# ttr_kernels(TARGET DEFINITION...): the objects of inner loops, for the SIMD targets that the definitions
# leave (cmake/TtrSimdTargets.cmake).
function(ttr_kernels target)
  add_library(${target} OBJECT)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O3>)
  target_compile_definitions(${target} PRIVATE ${ARGN})
  ttr_library(${target})
endfunction()

# TTR_TOGETHER: small files of a folder become one translation unit, so that what they all include is read
# and instantiated once. `make demo` takes an eighth less of processor time (327 to 286 s
# on a virtual Zen 5); a changed file costs its folder.
option(TTR_TOGETHER "Compile the small files of a folder together" OFF)

# ttr_together(TARGET NAME FILE...): these files of the target, if TTR_TOGETHER. Their anonymous namespaces
# become one: no two may give one name to two things.
function(ttr_together target name)
  if(TTR_TOGETHER)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${name})
  endif()
endfunction()

# ttr_room([PART] [TOGETHER] [ALONE FILE...]): adds every .cc file of the calling folder, and of the folders
# in it, to the library ttr, or to a part of it that is compiled in another way: ttr_kernels, of the rooms
# that hold inner loops. TOGETHER: as ttr_together, all but the files behind ALONE.
function(ttr_room)
  cmake_parse_arguments(PARSE_ARGV 0 arg "TOGETHER" "" "ALONE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  set(part ttr)
  if(arg_UNPARSED_ARGUMENTS)
    set(part ${arg_UNPARSED_ARGUMENTS})
  endif()
  target_sources(${part} PRIVATE ${sources})
  if(arg_TOGETHER)
    get_filename_component(name "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
    list(TRANSFORM arg_ALONE PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    list(REMOVE_ITEM sources ${arg_ALONE})
    ttr_together(${part} ${name} ${sources})
  endif()
endfunction()

# ttr_quick(TARGET): what is compiled more often than it runs: a release optimises it little.
function(ttr_quick target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# ttr_shards(PROGRAM SHARDS NAME LABEL COST [VARIABLE=VALUE...]): the tests of a program as ctest runs
# them, dealt out to the processes NAME.0, NAME.1, ..., in this environment. A process a test would cost
# more than most tests do. COST: seconds of a shard; those of the highest cost begin first.
function(ttr_shards program shards name label cost)
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${name}.${shard} COMMAND ${program} --gtest_brief=1)
    set(environment GTEST_TOTAL_SHARDS=${shards} GTEST_SHARD_INDEX=${shard} ${ARGN})
    # What a program answers for a target that the processor lacks: tests/support/main.cc.
    set_tests_properties(
      ${name}.${shard} PROPERTIES ENVIRONMENT "${environment}" LABELS ${label} COST ${cost}
                                  SKIP_RETURN_CODE 77 TIMEOUT 3600 TIMEOUT_SIGNAL_NAME SIGTERM)
  endforeach()
endfunction()

# ttr_test_kernels(NAME PROGRAM DEFINITION...): tests/NAME/*kernels.cc for the SIMD targets that the definitions
# leave, as the library's kernels are, for a program.
function(ttr_test_kernels name program)
  file(GLOB kernels CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*kernels.cc")
  if(kernels)
    add_library(${program}_kernels OBJECT EXCLUDE_FROM_ALL ${kernels})
    ttr_target(${program}_kernels)
    ttr_quick(${program}_kernels)
    target_compile_definitions(${program}_kernels PRIVATE ${ARGN})
    target_link_libraries(${program}_kernels PRIVATE ttr_test_support)
    target_link_libraries(${program} PRIVATE ${program}_kernels)
  endif()
endfunction()

# ttr_test(NAME SHARDS COST): one executable of all tests/NAME/*.cc, run in shards under the label NAME.
function(ttr_test name shards cost)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc")
  if(NOT sources)
    return()
  endif()
  list(FILTER sources EXCLUDE REGEX "kernels[.]cc$")
  add_executable(ttr_test_${name} ${sources})
  ttr_test_kernels(${name} ttr_test_${name} ${TTR_TARGET_DEFINITIONS})
  ttr_target(ttr_test_${name})
  ttr_quick(ttr_test_${name})
  target_link_libraries(ttr_test_${name} PRIVATE ttr_test_support)
  if(name STREQUAL "core")
    target_precompile_headers(ttr_test_core PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/precompiled.h")
  else()
    target_precompile_headers(ttr_test_${name} REUSE_FROM ttr_test_core)
  endif()
  if(TTR_DISCOVER_TESTS)
    gtest_discover_tests(ttr_test_${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                         PROPERTIES LABELS ${name} TIMEOUT 600)
  else()
    ttr_shards(ttr_test_${name} ${shards} ${name} ${name} ${cost})
  endif()
endfunction()
