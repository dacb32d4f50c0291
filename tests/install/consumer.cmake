# Installs ttr under a fresh prefix, then builds and runs examples/consumer against it twice: by
# find_package and by pkg-config. Both programs must run and print the same.
#   cmake -D BUILD_DIR= -D SOURCE_DIR= -D WORK_DIR= -D CONFIG= -D CXX= -D LIBDIR= -D VERSION= -P ...

file(REMOVE_RECURSE "${WORK_DIR}")
file(MAKE_DIRECTORY "${WORK_DIR}")
set(prefix "${WORK_DIR}/prefix")
set(consumer "${SOURCE_DIR}/examples/consumer")
# The README shows this very program.
file(READ "${consumer}/main.cc" program)
file(READ "${SOURCE_DIR}/README.md" readme)
string(FIND "${readme}" "${program}" place)
if(place EQUAL -1)
  message(FATAL_ERROR "README.md does not show examples/consumer/main.cc as it is")
endif()
file(READ "${consumer}/layer.cc" program)
file(READ "${SOURCE_DIR}/docs/cpp.md" document)
string(FIND "${document}" "${program}" place)
if(place EQUAL -1)
  message(FATAL_ERROR "docs/cpp.md does not show examples/consumer/layer.cc as it is")
endif()
# What this machine has installed, or the surrounding make exports, must not leak in.
set(ENV{PKG_CONFIG_PATH} "${prefix}/${LIBDIR}/pkgconfig")
set(ENV{LD_LIBRARY_PATH} "${prefix}/${LIBDIR}")
unset(ENV{MAKEFLAGS})

execute_process(COMMAND ${CMAKE_COMMAND} --install "${BUILD_DIR}" --prefix "${prefix}"
                        --config "${CONFIG}"
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

execute_process(COMMAND ${CMAKE_COMMAND} -S "${consumer}" -B "${WORK_DIR}/cmake"
                        "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CXX}"
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK_DIR}/cmake" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${WORK_DIR}/cmake/consumer" OUTPUT_VARIABLE by_cmake
                COMMAND_ERROR_IS_FATAL ANY)

execute_process(COMMAND "${WORK_DIR}/cmake/layer" OUTPUT_VARIABLE by_layer COMMAND_ERROR_IS_FATAL ANY)
# Its document shows what it prints, but for numbers.
string(REGEX REPLACE "[-0-9.]+" "#" printed "${by_layer}")
string(REGEX REPLACE "[-0-9.]+" "#" shown "${document}")
string(FIND "${shown}" "${printed}" place)
if(place EQUAL -1)
  message(FATAL_ERROR "docs/cpp.md does not show what examples/consumer/layer.cc prints:\n${by_layer}")
endif()

execute_process(COMMAND make -C "${consumer}" "CXX=${CXX}" "OUT=${WORK_DIR}/consumer"
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${WORK_DIR}/consumer" OUTPUT_VARIABLE by_pkg_config
                COMMAND_ERROR_IS_FATAL ANY)

if(by_cmake STREQUAL "" OR NOT by_cmake STREQUAL by_pkg_config)
  message(FATAL_ERROR "the consumer prints\n'${by_cmake}' when built by find_package, and\n"
                      "'${by_pkg_config}' when built by pkg-config")
endif()
execute_process(COMMAND pkg-config --modversion ttr OUTPUT_VARIABLE version
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT version STREQUAL VERSION)
  message(FATAL_ERROR "pkg-config says that ttr is ${version}, and it is ${VERSION}")
endif()
if(EXISTS "${prefix}/bin/ttr")
  execute_process(COMMAND "${prefix}/bin/ttr" --help OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endif()
message("${by_cmake}")
