/// PyTorch's tensors as views of the library, and tensors for what it writes.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ttr/tensor.h"

namespace ttr::pytorch {

using Tensor = torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// The view of a strided tensor on the CPU; no copy. Error, which calls it `name`: another device,
/// a dtype that the library lacks, more than four axes.
TensorView ViewOf(std::string_view op, std::string_view name, const Tensor& tensor);

/// Is the last axis contiguous? (Where the tensor is not on the CPU ViewOf() says so.)
bool HasRows(const Tensor& tensor);
Tensor CopyRows(const Tensor& tensor);

/// A contiguous tensor on the CPU whose numbers are not set.
Tensor Empty(DType dtype, const Shape& shape);
Tensor Zeros(DType dtype, const Shape& shape);

/// As many bytes, at a multiple of 64.
Tensor EmptyBytes(std::size_t bytes);
/// What lies in a tensor of bytes. Error: other numbers, or some that are not contiguous.
std::span<std::byte> BytesOf(std::string_view op, std::string_view name, const Tensor& tensor);

}  // namespace ttr::pytorch
