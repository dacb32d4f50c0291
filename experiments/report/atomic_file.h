// Files and folders for programs: what ttr/util/atomic_file.h does, and what only a program may do.
#pragma once

#include <filesystem>
#include <string_view>

#include "ttr/util/atomic_file.h"

namespace ttr::report {

using ttr::AtomicFile;

// The whole content of a file in one call.
void WriteFile(const std::filesystem::path& path, std::string_view content);

// Creates the folder and those above it. Throws ttr::SystemError.
void EnsureFolder(const std::filesystem::path& folder);

// From now on SIGINT, SIGTERM and SIGHUP remove the temporary files of all atomic files before they
// end the program. A signal that already has a handler keeps it.
void RemoveTemporariesOnSignals();

}  // namespace ttr::report
