/// All of ttr's headers.
#pragma once

#include "ttr/call.h"        // IWYU pragma: export
#include "ttr/decoder.h"     // IWYU pragma: export
#include "ttr/dtype.h"       // IWYU pragma: export
#include "ttr/error.h"       // IWYU pragma: export
#include "ttr/executor.h"    // IWYU pragma: export
#include "ttr/features.h"    // IWYU pragma: export
#include "ttr/forecast.h"    // IWYU pragma: export
#include "ttr/gates.h"       // IWYU pragma: export
#include "ttr/inputs.h"      // IWYU pragma: export
#include "ttr/layer.h"       // IWYU pragma: export
#include "ttr/memory.h"      // IWYU pragma: export
#include "ttr/norm.h"        // IWYU pragma: export
#include "ttr/plan.h"        // IWYU pragma: export
#include "ttr/recipe.h"      // IWYU pragma: export
#include "ttr/regression.h"  // IWYU pragma: export
#include "ttr/short_conv.h"  // IWYU pragma: export
#include "ttr/state.h"       // IWYU pragma: export
#include "ttr/state_pool.h"  // IWYU pragma: export
#include "ttr/target.h"      // IWYU pragma: export
#include "ttr/tensor.h"      // IWYU pragma: export
#include "ttr/version.h"     // IWYU pragma: export
#include "ttr/zoo.h"         // IWYU pragma: export
