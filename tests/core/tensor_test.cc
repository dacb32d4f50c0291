#include "ttr/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ttr/error.h"

namespace ttr {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

template <class F>
std::string ErrorOf(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Shape, SizesAndText) {
  const Shape shape{2, 64, 4, 128};
  EXPECT_EQ(shape.rank(), 4);
  EXPECT_EQ(shape[1], 64);
  EXPECT_EQ(shape.elements(), 2 * 64 * 4 * 128);
  EXPECT_EQ(shape.ToString(), "[2, 64, 4, 128]");
  EXPECT_EQ(Shape{}.ToString(), "[]");
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{3, 0}).elements(), 0);
  EXPECT_NE((Shape{3}), (Shape{3, 0}));
}

TEST(Shape, ElementsAreChecked) {
  const std::int64_t half = std::int64_t{1} << 32;
  EXPECT_EQ((Shape{half / 2, half / 2}).elements(), std::int64_t{1} << 62);
  EXPECT_EQ((Shape{kMax}).elements(), kMax);
  EXPECT_EQ((Shape{half, half, 0}).elements(), 0);
  EXPECT_EQ((Shape{0, half, half}).elements(), 0);
  EXPECT_EQ(ErrorOf([&] { (void)Shape{half, half}.elements(); }),
            "[Shape] number of elements must be below 2^63 but is the product of "
            "[4294967296, 4294967296]");
  EXPECT_THROW((void)(Shape{kMax, 2}).elements(), Error);
  EXPECT_THROW((void)(Shape{3, kMax / 2}).elements(), Error);
}

TEST(Shape, RefusesNegativeSizesAndHighRanks) {
  EXPECT_EQ(ErrorOf([] { Shape{2, -1}; }), "[Shape] sizes must be >= 0 but is [2, -1]");
  EXPECT_EQ(ErrorOf([] { Shape{1, 1, 1, 1, 1}; }), "[Shape] rank must be at most 4 but is 5");
}

TEST(TensorView, DefaultIsAbsent) {
  const TensorView view;
  EXPECT_FALSE(view.defined());
  EXPECT_FALSE(Tensor().defined());
}

TEST(TensorView, RowMajorStrides) {
  std::array<float, 24> data{};
  const TensorView view = TensorView::Of(data.data(), {2, 3, 4});
  EXPECT_EQ(view.dtype(), DType::kFloat32);
  EXPECT_EQ(view.stride(0), 12);
  EXPECT_EQ(view.stride(1), 4);
  EXPECT_EQ(view.stride(2), 1);
  EXPECT_TRUE(view.contiguous());
  view.Set({1, 2, 3}, 5);
  EXPECT_EQ(data[23], 5);
  EXPECT_EQ(view.At({1, 2, 3}), 5);
}

TEST(TensorView, NullNeedsAnEmptyShape) {
  EXPECT_NO_THROW(TensorView(static_cast<void*>(nullptr), DType::kFloat32, Shape{2, 0, 3}));
  EXPECT_EQ(ErrorOf([] { TensorView(static_cast<void*>(nullptr), DType::kFloat32, Shape{2}); }),
            "[TensorView] data must be memory of shape [2] but is null");
}

TEST(TensorView, IndicesAreChecked) {
  std::array<double, 6> data{};
  const TensorView view = TensorView::Of(data.data(), {2, 3});
  EXPECT_EQ(ErrorOf([&] { (void)view.At({1, 3}); }),
            "[TensorView] index must be inside of [2, 3] but is [1, 3]");
  EXPECT_THROW((void)view.At({-1, 0}), Error);
  EXPECT_THROW((void)view.At({0}), Error);
  EXPECT_THROW(view.Set({0, 0, 0}, 1), Error);
}

TEST(TensorView, StridesCountElements) {
  std::array<double, 12> data{};
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<double>(i);
  const std::array<std::int64_t, 2> transposed{1, 4};
  const TensorView view(data.data(), DType::kFloat64, Shape{4, 3}, transposed);
  EXPECT_FALSE(view.contiguous());
  EXPECT_EQ(view.At({3, 2}), 11);
  EXPECT_EQ(view.At({1, 2}), 9);
  const std::array<std::int64_t, 2> broadcast{0, 1};
  EXPECT_EQ(TensorView(data.data(), DType::kFloat64, Shape{1000, 3}, broadcast).At({999, 2}), 2);
  // The stride of an axis with one row is never taken.
  const std::array<std::int64_t, 3> any{999, 3, 1};
  EXPECT_TRUE(TensorView(data.data(), DType::kFloat64, Shape{1, 4, 3}, any).contiguous());
  EXPECT_THROW(TensorView(data.data(), DType::kFloat64, Shape{12}, broadcast), Error);
}

TEST(TensorView, SlicesShareMemory) {
  std::array<float, 24> data{};
  const TensorView view = TensorView::Of(data.data(), {2, 3, 4});
  const TensorView slice = view.Slice(1, 1, 2).Slice(0, 1, 1);
  EXPECT_EQ(slice.shape(), (Shape{1, 2, 4}));
  slice.Set({0, 1, 2}, 7);
  EXPECT_EQ(view.At({1, 2, 2}), 7);
  EXPECT_EQ(view.Slice(2, 4, 0).shape(), (Shape{2, 3, 0}));
  EXPECT_EQ(ErrorOf([&] { (void)view.Slice(1, 2, 2); }),
            "[Slice] rows of axis 1 must be inside of [2, 3, 4] but is 2 and 2 from there");
  EXPECT_THROW((void)view.Slice(1, -1, 1), Error);
  EXPECT_THROW((void)view.Slice(1, 1, kMax), Error);
  EXPECT_THROW((void)view.Slice(3, 0, 1), Error);
}

TEST(StoreElement, IntegersSaturate) {
  std::int8_t small[4];
  const double values[] = {300, -300, std::nan(""), -7.9};
  for (int i = 0; i < 4; ++i) StoreElement(small, DType::kInt8, i, values[i]);
  EXPECT_EQ(small[0], 127);
  EXPECT_EQ(small[1], -128);
  EXPECT_EQ(small[2], 0);
  EXPECT_EQ(small[3], -7);
  std::int64_t large[3];
  StoreElement(large, DType::kInt64, 0, 1e30);
  StoreElement(large, DType::kInt64, 1, -1e30);
  StoreElement(large, DType::kInt64, 2, -9223372036854775808.0);
  EXPECT_EQ(large[0], kMax);
  EXPECT_EQ(large[1], std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(large[2], std::numeric_limits<std::int64_t>::min());
}

TEST(Tensor, IsZeroAndAligned) {
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt64, DType::kInt8}) {
    // Dirty the heap first: fresh pages would be zero in any case.
    {
      std::memset(Tensor(dtype, {3, 5, 7}).data(), 0xff, 105 * SizeOf(dtype));
    }
    const Tensor tensor(dtype, {3, 5, 7});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0U);
    EXPECT_EQ(tensor.bytes(), static_cast<std::int64_t>(105 * SizeOf(dtype)));
    const auto* bytes = static_cast<const unsigned char*>(tensor.data());
    for (std::int64_t i = 0; i < tensor.bytes(); ++i) ASSERT_EQ(bytes[i], 0) << i;
  }
  EXPECT_TRUE(Tensor(DType::kFloat32, {4, 0}).defined());
  EXPECT_TRUE(Tensor(DType::kFloat32, {4, 0}).as<float>().empty());
}

TEST(Tensor, RefusesWhatNoMemoryHolds) {
  EXPECT_THROW(Tensor(DType::kFloat64, Shape{kMax / 4}), Error);
  EXPECT_THROW(Tensor(DType::kInt8, Shape{kMax, 2}), Error);
  EXPECT_THROW(Tensor(DType::kInt8, Shape{kMax}), Error);
}

TEST(Tensor, CopiesAreDeepAndMovesAreNot) {
  Tensor first(DType::kFloat32, {2});
  first.as<float>()[0] = 1;
  Tensor second = first;
  second.as<float>()[0] = 2;
  EXPECT_EQ(first.as<float>()[0], 1);
  Tensor third;
  third = second;
  third.as<float>()[1] = 3;
  EXPECT_EQ(second.as<float>()[1], 0);
  const Tensor& self = third;
  third = self;
  EXPECT_EQ(third.as<float>()[0], 2);
  const void* memory = third.data();
  const Tensor fourth = std::move(third);
  EXPECT_EQ(fourth.data(), memory);
  EXPECT_FALSE(Tensor(Tensor()).defined());
}

TEST(Tensor, CopyOfAnyStrides) {
  std::vector<double> data(2 * 3 * 4 * 5);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<double>(i) + 0.25;
  const std::array<std::int64_t, 4> strides{1, 40, 2, 8};  // axes in another order
  const TensorView view(data.data(), DType::kFloat64, Shape{2, 3, 4, 5}, strides);
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const Tensor copy = Tensor::Copy(view, dtype);
    ASSERT_EQ(copy.shape(), view.shape());
    ASSERT_TRUE(copy.view().contiguous());
    for (std::int64_t a = 0; a < 2; ++a) {
      for (std::int64_t b = 0; b < 3; ++b) {
        for (std::int64_t c = 0; c < 4; ++c) {
          for (std::int64_t d = 0; d < 5; ++d) {
            ASSERT_EQ(copy.view().At({a, b, c, d}),
                      static_cast<double>(a + 40 * b + 2 * c + 8 * d) + 0.25);
          }
        }
      }
    }
  }
}

TEST(Tensor, CopyOfLowRanks) {
  std::array<double, 6> data{0, 1, 2, 3, 4, 5};
  const std::array<std::int64_t, 1> every_second{2};
  const Tensor odd =
      Tensor::Copy(TensorView(data.data() + 1, DType::kFloat64, Shape{3}, every_second));
  EXPECT_EQ(odd.as<double>()[0], 1);
  EXPECT_EQ(odd.as<double>()[2], 5);
  const Tensor scalar = Tensor::Copy(TensorView::Of(data.data() + 4, {}), DType::kInt64);
  EXPECT_EQ(scalar.as<std::int64_t>()[0], 4);
  EXPECT_FALSE(Tensor::Copy(TensorView()).defined());
}

TEST(Tensor, CopyConvertsLongRows) {
  // Longer than the pieces in which rows are converted.
  Tensor wide(DType::kFloat64, {3, 1001});
  for (std::int64_t i = 0; i < wide.elements(); ++i) {
    wide.as<double>()[static_cast<std::size_t>(i)] = static_cast<double>(i) * 1.1;
  }
  const Tensor narrow = Tensor::Copy(wide.view().Slice(1, 1, 999), DType::kBFloat16);
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t i = 0; i < 999; ++i) {
      ASSERT_EQ(narrow.as<BFloat16>()[static_cast<std::size_t>(row * 999 + i)].bits,
                ToBFloat16(static_cast<double>(row * 1001 + i + 1) * 1.1).bits);
    }
  }
}

TEST(Tensor, CopyOfTheSameTypeIsExact) {
  Tensor whole(DType::kInt64, {2, 2});
  whole.as<std::int64_t>()[3] = kMax - 1;  // no double
  EXPECT_EQ(Tensor::Copy(whole).as<std::int64_t>()[3], kMax - 1);
  EXPECT_EQ(Tensor::Copy(whole.view().Slice(1, 1, 1)).as<std::int64_t>()[1], kMax - 1);
  const std::uint64_t payload = 0x7ff4000000001234U;  // a signalling NaN
  Tensor nan(DType::kFloat64, {1});
  std::memcpy(nan.data(), &payload, sizeof payload);
  const Tensor copy = Tensor::Copy(nan);
  EXPECT_EQ(std::memcmp(copy.data(), &payload, sizeof payload), 0);
}

TEST(CopyInto, WritesThroughStrides) {
  std::array<float, 12> target{};
  const std::array<std::int64_t, 2> strides{1, 4};
  Tensor source(DType::kFloat64, {4, 3});
  for (std::size_t i = 0; i < 12; ++i) source.as<double>()[i] = static_cast<double>(i);
  const TensorView to(target.data(), DType::kFloat32, Shape{4, 3}, strides);
  CopyInto(source, to);
  EXPECT_EQ(target[0], 0);
  EXPECT_EQ(target[4], 1);
  EXPECT_EQ(target[11], 11);
  EXPECT_EQ(target[3], 9);
  EXPECT_EQ(ErrorOf([&] { CopyInto(source, to.Slice(0, 0, 2)); }),
            "[CopyInto] to must be [4, 3] but is [2, 3]");
}

}  // namespace
}  // namespace ttr
