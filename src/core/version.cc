#include "ttr/version.h"

namespace ttr {

const char* Version() { return TTR_VERSION_STRING; }

}  // namespace ttr
