# Toolchain of the preset clang: the newest clang this machine has.
find_program(TTR_CLANG NAMES clang++-19 clang++-20 clang++-18 clang++-17 clang++ REQUIRED)
set(CMAKE_CXX_COMPILER "${TTR_CLANG}")
