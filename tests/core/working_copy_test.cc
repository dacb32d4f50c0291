#include "src/core/working_copy.h"

#include <gtest/gtest.h>

#include <array>

namespace ttr {
namespace {

Tensor Counting(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    StoreElement(tensor.data(), dtype, i, static_cast<double>(i));
  }
  return tensor;
}

/// [rows, columns] of `tensor`, transposed.
TensorView Transposed(const Tensor& tensor) {
  const std::array<std::int64_t, 2> strides = {1, tensor.shape()[1]};
  return {tensor.data(), tensor.dtype(), Shape{tensor.shape()[1], tensor.shape()[0]}, strides};
}

TEST(WorkingCopy, IsTheCallersTensorWhereThatFits) {
  const Tensor home = Counting(DType::kFloat32, {2, 3});
  for (const Layout layout : {Layout::kAnyStrides, Layout::kContiguousRows, Layout::kContiguous}) {
    const WorkingCopy copy(home, DType::kFloat32, layout);
    EXPECT_FALSE(copy.copied());
    EXPECT_EQ(copy.view().data(), home.data());
  }
  EXPECT_FALSE(WorkingCopy(Transposed(home), DType::kFloat32).copied());
}

TEST(WorkingCopy, AbsentStaysAbsent) {
  const WorkingCopy absent[] = {WorkingCopy(), WorkingCopy(TensorView(), DType::kFloat64),
                                WorkingCopy(TensorView(), Layout::kContiguous),
                                WorkingCopy::Zeros({}, DType::kFloat32),
                                WorkingCopy::OfHeads({}, 2, DType::kFloat32)};
  for (const WorkingCopy& copy : absent) {
    EXPECT_FALSE(copy.view().defined());
    copy.WriteBack();
  }
}

TEST(WorkingCopy, OfAnotherDtypeGoesBack) {
  const Tensor home = Counting(DType::kBFloat16, {2, 3});
  const WorkingCopy copy(home, DType::kFloat64);
  ASSERT_TRUE(copy.copied());
  EXPECT_EQ(copy.view().dtype(), DType::kFloat64);
  EXPECT_EQ(copy.view().At({1, 2}), 5);
  copy.view().Set({1, 2}, -1);
  EXPECT_EQ(home.view().At({1, 2}), 5);
  copy.WriteBack();
  EXPECT_EQ(home.view().At({1, 2}), -1);
  EXPECT_EQ(home.view().At({1, 1}), 4);
}

TEST(WorkingCopy, OfAnotherLayoutGoesBack) {
  const Tensor home = Counting(DType::kFloat32, {2, 3});
  const TensorView view = Transposed(home);
  const WorkingCopy copy(view, Layout::kContiguousRows);
  ASSERT_TRUE(copy.copied());
  EXPECT_TRUE(copy.view().contiguous());
  EXPECT_EQ(copy.view().At({2, 1}), view.At({2, 1}));
  copy.view().Set({2, 1}, 7);
  copy.WriteBack();
  EXPECT_EQ(home.view().At({1, 2}), 7);
}

TEST(WorkingCopy, RowsOfOneNumberAreContiguous) {
  const Tensor home = Counting(DType::kFloat32, {1, 3});
  EXPECT_FALSE(WorkingCopy(Transposed(home), Layout::kContiguousRows).copied());
}

TEST(WorkingCopy, ZerosAreNotWhatIsAtHome) {
  const Tensor home = Counting(DType::kFloat32, {2, 3});
  const WorkingCopy copy = WorkingCopy::Zeros(home, DType::kFloat32);
  ASSERT_TRUE(copy.copied());
  EXPECT_EQ(copy.view().At({1, 2}), 0);
  copy.view().Set({0, 1}, 2);
  copy.WriteBack();
  EXPECT_EQ(home.view().At({0, 1}), 2);
  EXPECT_EQ(home.view().At({1, 2}), 0);
}

TEST(WorkingCopy, HeadsThatAreSharedGetSums) {
  const Tensor home(DType::kBFloat16, {1, 2, 1, 2});
  EXPECT_FALSE(WorkingCopy::OfHeads(home, 1, DType::kFloat32).copied());
  const WorkingCopy copy = WorkingCopy::OfHeads(home, 3, DType::kFloat32);
  ASSERT_EQ(copy.view().shape(), (Shape{1, 2, 3, 2}));
  CopyInto(Counting(DType::kFloat32, {1, 2, 3, 2}), copy.view());
  copy.WriteBack();
  EXPECT_EQ(home.view().At({0, 0, 0, 0}), 0 + 2 + 4);
  EXPECT_EQ(home.view().At({0, 0, 0, 1}), 1 + 3 + 5);
  EXPECT_EQ(home.view().At({0, 1, 0, 0}), 6 + 8 + 10);
  EXPECT_EQ(home.view().At({0, 1, 0, 1}), 7 + 9 + 11);
}

}  // namespace
}  // namespace ttr
