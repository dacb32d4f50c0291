#include "tests/support/hostile.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "ttr/error.h"

namespace ttr::test {

int Draws(int usual) {
  const char* const given = std::getenv("TTR_DRAWS");
  return given != nullptr ? std::atoi(given) : usual;
}

void Spoil(Memory& memory, const std::vector<TensorView*>& others, TensorView& view) {
  const TensorView before = view;
  const int rank = before.rank();
  std::vector<std::int64_t> sizes, strides;
  for (int axis = 0; axis < rank; ++axis) {
    sizes.push_back(before.size(axis));
    strides.push_back(before.stride(axis));
  }
  DType dtype = before.dtype();
  std::int64_t shift = 0;
  const auto any = [&] { return static_cast<std::size_t>(memory.Below(rank)); };
  switch (memory.Below(9)) {
    case 0: {
      constexpr DType kAll[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt64,
                                DType::kInt8};
      dtype = kAll[memory.Below(5)];
      break;
    }
    case 1: sizes[any()] += memory.Below(3) - 1; break;
    case 2: sizes[any()] = memory.Below(2); break;
    case 3:
      if (memory.OneIn(2)) {
        sizes.pop_back();
        strides.pop_back();
      } else if (rank < kMaxRank) {
        sizes.push_back(1);
        strides.push_back(1);
      }
      break;
    case 4: strides[any()] = 0; break;
    case 5: strides[any()] *= memory.OneIn(2) ? -1 : 2; break;
    case 6: std::swap(strides[any()], strides[any()]); break;
    case 7: shift = 1 + memory.Below(7); break;
    default: {  // in the memory of another
      const TensorView& other =
          *others[static_cast<std::size_t>(memory.Below(static_cast<std::int64_t>(others.size())))];
      const auto bytes = [](const TensorView& of) {
        return of.shape().elements() * static_cast<std::int64_t>(SizeOf(of.dtype()));
      };
      if (other.defined() && other.contiguous() && before.contiguous() &&
          bytes(other) >= bytes(before)) {
        view = TensorView(other.data(), before.dtype(), before.shape());
      }
      return;
    }
  }
  for (std::int64_t& size : sizes) size = std::max<std::int64_t>(size, 0);
  const Shape shape{std::span<const std::int64_t>(sizes)};
  view = memory.Make(dtype, shape, strides, shift);
  if (shape == before.shape() && IsFloating(dtype) && IsFloating(before.dtype()) && shift == 0) {
    CopyInto(before, view);
  }
}

std::string Describe(const TensorView& view) {
  if (!view.defined()) return "absent";
  std::string text = std::string(Name(view.dtype())) + view.shape().ToString() + " strides";
  for (int axis = 0; axis < view.rank(); ++axis) text += " " + std::to_string(view.stride(axis));
  return text;
}
bool Refuses(const Memory& memory, const std::function<void()>& act) {
  const auto before = memory.Snapshot();
  try {
    act();
    return false;
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_TRUE(memory.Snapshot() == before) << "written before: " << text;
    return true;
  }
}

}  // namespace ttr::test
