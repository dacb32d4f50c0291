# Where kernels are compiled for this processor's best SIMD target: every engine's tables of cases on its other
# ones, under the label `tables`. The programs are those of the tests, linked with kernels for these targets:
# the target ttr_test_tables builds them.
ttr_kernels(ttr_kernels_others ${TTR_OTHER_DEFINITIONS})
get_target_property(sources ttr_kernels SOURCES)
target_sources(ttr_kernels_others PRIVATE ${sources})
set_target_properties(ttr_kernels_others PROPERTIES EXCLUDE_FROM_ALL ON)
add_custom_target(ttr_test_tables)

file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/tables.txt" filter)
string(JOIN ":" filter "GTEST_FILTER=Targets/*" "All/*" ${filter})
set(library $<FILTER:$<TARGET_OBJECTS:ttr>,EXCLUDE,/ttr_kernels[.]dir/>)
foreach(name linalg engines layer)
  set(program ttr_test_${name}_others)
  add_executable(${program} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:ttr_test_${name}> "${library}")
  ttr_test_kernels(${name} ${program} ${TTR_OTHER_DEFINITIONS})
  target_link_libraries(${program} PRIVATE ttr_test_support ttr_kernels_others)
  add_dependencies(ttr_test_tables ${program})
endforeach()
ttr_shards(ttr_test_linalg_others 1 linalg_tables tables 1 "${filter}")
ttr_shards(ttr_test_engines_others 8 engines_tables tables 10 "${filter}")
ttr_shards(ttr_test_layer_others 16 layer_tables tables 30 "${filter}")
