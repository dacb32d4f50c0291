#include "tests/support/engines.h"

#include <limits>
#include <span>

namespace ttr::test {

Data MakeData(DType dtype, const Shape& shape, bool head_major) {
  if (!head_major) {
    Data data{Tensor(dtype, shape), {}};
    data.view = data.memory.view();
    return data;
  }
  const std::int64_t d = shape.rank() == 4 ? shape[3] : 1;
  Data data{Tensor(dtype, {shape[0], shape[2], shape[1], d}), {}};
  const std::int64_t strides[] = {shape[2] * shape[1] * d, d, shape[1] * d, 1};
  data.view = TensorView(data.memory.data(), dtype, shape,
                         std::span(strides).first(static_cast<std::size_t>(shape.rank())));
  return data;
}

void Fill(Data& data, const std::function<double()>& number) {
  for (std::int64_t i = 0; i < data.memory.elements(); ++i) {
    StoreElement(data.memory.data(), data.memory.dtype(), i, number());
  }
}

std::vector<std::byte> Bytes(const Tensor& tensor) {
  const auto* data = static_cast<const std::byte*>(tensor.data());
  return {data, data + tensor.bytes()};
}

double Epsilon(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return std::numeric_limits<double>::epsilon();
    case DType::kBFloat16: return 1.0 / 128;
    default: return static_cast<double>(std::numeric_limits<float>::epsilon());
  }
}

}  // namespace ttr::test
