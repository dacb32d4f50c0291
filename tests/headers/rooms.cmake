# Reads every #include line of the project and holds it against the plan of the house (DESIGN.md).
#   cmake -D SOURCE_DIR=... -P rooms.cmake

set(violations "")

# check(FILES PATTERN [ONLY REGEX | NEVER REGEX] WHY text): FILES are those below PATTERN, and each
# of what they include, written as <x> or "x", must match ONLY, or must not match NEVER.
function(check)
  cmake_parse_arguments(arg "" "ONLY;NEVER;EXCEPT;WHY" "IN" ${ARGN})
  list(TRANSFORM arg_IN PREPEND "${SOURCE_DIR}/" OUTPUT_VARIABLE roots)
  set(files "")
  foreach(root IN LISTS roots)
    file(GLOB_RECURSE found RELATIVE "${SOURCE_DIR}" "${root}/*.h" "${root}/*.cc")
    list(APPEND files ${found})
  endforeach()
  foreach(file IN LISTS files)
    if(arg_EXCEPT AND file MATCHES "${arg_EXCEPT}")
      continue()
    endif()
    file(STRINGS "${SOURCE_DIR}/${file}" lines REGEX "^[ \t]*#[ \t]*include[ \t]")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^[ \t]*#[ \t]*include[ \t]+([<\"][^>\"]*[>\"]).*" "\\1" included
             "${line}")
      if((arg_ONLY AND NOT included MATCHES "${arg_ONLY}")
         OR (arg_NEVER AND included MATCHES "${arg_NEVER}"))
        string(APPEND violations "  ${file} includes ${included}: ${arg_WHY}\n")
      endif()
    endforeach()
  endforeach()
  set(violations "${violations}" PARENT_SCOPE)
endfunction()

# Standard headers have neither a folder nor a suffix in their names.
check(IN include ONLY "^(<[a-z_0-9]+>|\"ttr/(util/)?[a-z_0-9]+\\.h\")$"
      WHY "public headers need the standard library alone")
check(IN src include EXCEPT "^src/definition/" NEVER "^[<\"](unsupported/)?Eigen/"
      WHY "only the definition is written on Eigen")
check(IN src include EXCEPT "^src/(simd|linalg|machine|engines)/" NEVER "^[<\"]hwy/"
      WHY "Highway lives in src/simd, src/linalg, src/machine and in the engines")
check(IN src include EXCEPT "^src/parallel/" NEVER "^[<\"](tbb|oneapi)/"
      WHY "threads live in src/parallel")
check(IN src/engines NEVER "^\"(src/(recipe|plan|definition|adapters|layer|memory)/|ttr/(recipe|zoo|inputs|state|plan|layer|decoder|memory)\\.h)"
      WHY "an engine knows numbers and kernels, not recipes")
check(IN src/definition NEVER "^\"(src/(engines|simd|linalg|adapters|plan|layer)/|ttr/(layer|decoder|plan)\\.h)"
      WHY "the definition judges the engines and shares nothing with them")
check(IN src/plan src/layer src/memory src/forecast src/regression NEVER "^\"src/(engines|linalg)/"
      WHY "only an adapter knows both recipes and an engine")
check(IN src/operators NEVER "^\"src/(engines/(common|fast_weights|curvature|scan|least_squares|kernel_smoother|kernel_regression|kernel_dictionary|local_polynomial|network)|adapters|plan|layer|memory)/"
      WHY "operators have rows, and no recipe of a memory")
check(IN src/simd src/linalg src/machine src/parallel src/core
      NEVER "^\"src/(recipe|plan|definition|adapters|layer|engines)/"
      WHY "shared rooms lie below the others")
check(IN src/simd src/parallel src/core NEVER "^\"src/linalg/"
      WHY "linalg is written on simd")
check(IN src include NEVER "^\"(experiments|tools|tests|bench|python)/"
      WHY "the library does not know who uses it")

check(IN python NEVER "^[<\"](src|experiments|tools|tests|bench)/"
      WHY "Python sees public headers only")
check(IN src include experiments tools NEVER "^[<\"](nanobind|torch|Python\\.h|pybind11|ATen|c10)"
      WHY "the library knows no framework")
check(IN python/core NEVER "^[<\"](torch|ATen|c10)/"
      WHY "import ttr needs NumPy alone")

# Engines do not know each other, but for what is common to all, and for the row-wise one: the
# others may fuse its rows.
file(GLOB engines RELATIVE "${SOURCE_DIR}/src/engines" "${SOURCE_DIR}/src/engines/*")
foreach(engine IN LISTS engines)
  foreach(other IN LISTS engines)
    set(below "common")
    if(NOT engine STREQUAL "common")
      list(APPEND below "rows")
    endif()
    if(NOT engine STREQUAL other AND NOT other IN_LIST below
       AND IS_DIRECTORY "${SOURCE_DIR}/src/engines/${engine}")
      check(IN src/engines/${engine} NEVER "^\"src/engines/${other}/"
            WHY "what engines share moves down, to src/engines/common, src/simd or src/parallel")
    endif()
  endforeach()
endforeach()

if(violations)
  message(FATAL_ERROR "These lines break the plan of the house (DESIGN.md):\n${violations}")
endif()
