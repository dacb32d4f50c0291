# Highway 1.0.3, as Debian 12 ships it, is found through pkg-config. Defines hwy::hwy.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PC_HWY QUIET IMPORTED_TARGET GLOBAL "libhwy>=1.0.3")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(HWY REQUIRED_VARS PC_HWY_LINK_LIBRARIES
                                  VERSION_VAR PC_HWY_VERSION)
if(HWY_FOUND AND NOT TARGET hwy::hwy)
  add_library(hwy::hwy INTERFACE IMPORTED GLOBAL)
  target_link_libraries(hwy::hwy INTERFACE PkgConfig::PC_HWY)
endif()
