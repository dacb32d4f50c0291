/// Tensors on disk in the safetensors format: an 8-byte little-endian header length, a JSON header
/// that gives dtype, shape and byte range of each tensor, then raw little-endian data.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "ttr/tensor.h"

namespace ttr {

struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;  ///< the header's "__metadata__"
};

/// Reads a file. Every offset, size and dtype is checked against the file's length before anything
/// is allocated. Tensors of dtypes outside of DType, and ranks above kMaxRank, are refused.
/// Error: names the file and the tensor. SystemError: the file cannot be read.
TensorFile ReadSafetensors(const std::filesystem::path& path);

/// Writes a file, atomically: to a temporary file beside it, synced, then renamed. Equal content
/// gives the same bytes.
void WriteSafetensors(const std::filesystem::path& path, const TensorFile& file);

}  // namespace ttr
