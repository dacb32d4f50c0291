// What nearly every test includes, parsed once.
#include <gtest/gtest.h>

#include "cmake/precompiled.h"
