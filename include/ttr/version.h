#ifndef TTR_VERSION_H_
#define TTR_VERSION_H_

namespace ttr {

// The version of the library that was linked, as "MAJOR.MINOR.PATCH".
const char* Version();

}  // namespace ttr

#endif  // TTR_VERSION_H_
