# Installs the library, its headers, the command, and what lets others find them:
# find_package(ttr) and pkg-config.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ttr)

install(TARGETS ttr EXPORT ttrTargets)
install(DIRECTORY include/ttr DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET ttr_command)
  install(TARGETS ttr_command)
  # A shared ttr is found beside the command, wherever the prefix is moved to.
  file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(ttr_command PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
endif()

install(EXPORT ttrTargets NAMESPACE ttr:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ttrConfig.cmake.in ttrConfig.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(ttrConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ttrConfig.cmake ${PROJECT_BINARY_DIR}/ttrConfigVersion.cmake
              cmake/FindHWY.cmake
        DESTINATION ${package_dir})

# Who links a static ttr links its dependencies too.
if(BUILD_SHARED_LIBS)
  set(TTR_PC_REQUIRES "Requires.private")
else()
  set(TTR_PC_REQUIRES "Requires")
endif()
file(RELATIVE_PATH TTR_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/ttr.pc.in ttr.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ttr.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
